"""Detects the in-tree eviction controller by its writes to the status of rules."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.cache.wire import ObjectIdentity

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


class _RuleWrites(msgspec.Struct, frozen=True, gc=False):
    """A rule's metadata, and when the in-tree controller last wrote its status; empty if it never did."""

    metadata: _RuleMeta
    at: str = ""

    @property
    def meta(self) -> _RuleMeta:
        return self.metadata

    def to_value(self) -> _RuleWrites:
        times = [each.time for each in self.metadata.managed_fields or () if each.manager == IN_TREE_MANAGER]
        return _RuleWrites(msgspec.structs.replace(self.metadata, managed_fields=None), max(times, default=""))


class InTreeWrites:
    """Writes of the in-tree controller to the status of rules, kept by a watch of their metadata."""

    def __init__(self, cluster: Cluster, collection: Collection, *, random: Callable[[], float]) -> None:
        self.reflector = Reflector[Any](
            cluster, collection, _RuleWrites, random=random, metadata_only=True, optional=True
        )
        self.reflector.subscribe(self._changed)
        self.seen = asyncio.Event()
        """Set once it has written a status after the first list, so it is running."""

    def _changed(self, old: _RuleWrites | None, new: _RuleWrites | None) -> None:
        if new is None or not new.at or not self.reflector.synced.is_set():
            return
        if old is None or old.at != new.at:
            self.seen.set()
