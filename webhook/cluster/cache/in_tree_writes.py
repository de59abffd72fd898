"""Detects the in-tree eviction controller by its writes to the status of rules."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.cache.wire import ObjectIdentity
from webhook.eviction.conditions import IN_TREE

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cluster.cache.discovery import Collection
    from webhook.cluster.client.rest import Cluster

IN_TREE_MANAGER: Final = "device-taint-eviction-controller"
"""The field manager of its writes (E-38)."""


class _ManagedFields(msgspec.Struct, frozen=True, gc=False):
    manager: str = ""
    subresource: str = ""
    time: str = ""


class _RuleMeta(ObjectIdentity, frozen=True, gc=False, rename="camel"):
    managed_fields: list[_ManagedFields] | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    conditions: list[dict[str, Any]] | None = None


class _RuleWrites(msgspec.Struct, frozen=True, gc=False):
    """A rule's identity, the in-tree controller's condition, and the times of its writes to the status, as they say."""

    metadata: _RuleMeta
    status: _Status = _Status()
    times: frozenset[str] = frozenset()

    @property
    def meta(self) -> _RuleMeta:
        return self.metadata

    def to_value(self) -> _RuleWrites:
        entries, conditions = self.metadata.managed_fields or (), self.status.conditions or ()
        return _RuleWrites(
            msgspec.structs.replace(self.metadata, managed_fields=None),
            _Status([each for each in conditions if each.get("type") == IN_TREE]),
            frozenset(
                [each.time for each in entries if (each.manager, each.subresource) == (IN_TREE_MANAGER, "status")]
            ),
        )


class InTreeWrites:
    """Writes of the in-tree controller to the status of rules, kept by a watch.

    Who may write rules can send any managedFields, but changes no status with the same write.
    """

    def __init__(self, cluster: Cluster, collection: Collection, *, random: Callable[[], float]) -> None:
        self.reflector = Reflector[Any](cluster, collection, _RuleWrites, random=random, optional=True)
        self.reflector.subscribe(self._changed)
        self.seen = asyncio.Event()
        """Set once it has written a status after the first list, so it is running."""

    def _changed(self, old: _RuleWrites | None, new: _RuleWrites | None) -> None:
        if new is None or not self.reflector.synced.is_set():
            return
        before = old or _RuleWrites(new.metadata)
        if new.times - before.times and new.status.conditions and new.status != before.status:
            self.seen.set()
