"""Labels and holds of namespaces, kept by a watch of their metadata."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.pods import HOLD
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.cache.listwatch import Meta, WireValue
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.settings import ReflectorSettings
from webhook.policy.ports import NamespaceFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.cluster.client.rest import Cluster
    from webhook.telemetry.metrics import Metrics

NAMESPACES: Final = FixedCollection("", "v1", "namespaces")


class _NamespaceMeta(Meta, frozen=True, gc=False):
    annotations: dict[str, str] | None = None


class Namespace(WireValue, frozen=True):
    """A namespace's metadata."""

    metadata: _NamespaceMeta

    @property
    def hold(self) -> str | None:
        """The text of annotation `/hold`; None without one."""
        return (self.metadata.annotations or {}).get(HOLD)

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels; empty without any."""
        return self.metadata.labels or {}

    def to_value(self) -> Namespace:
        """With `/hold` as its only annotation."""
        annotations = None if self.hold is None else {HOLD: self.hold}
        return Namespace(msgspec.structs.replace(self.metadata, annotations=annotations))

    def facts(self, known: NamespaceFacts | None) -> NamespaceFacts:
        """Its name and labels: the known facts themselves while labels are the same, since memories go by them."""
        if known is not None and known.labels == self.labels:
            return known
        return NamespaceFacts(self.metadata.name, self.labels)


class NamespaceCache:
    """Labels and holds by the name of the namespace."""

    def __init__(  # noqa: PLR0913 -- all by name
        self,
        cluster: Cluster,
        *,
        random: Callable[[], float],
        on_change: Callable[[str], None] = lambda _: None,
        looked_up: Callable[[str], NamespaceFacts | None] = lambda _: None,
        settings: ReflectorSettings = ReflectorSettings(),  # noqa: B008 -- frozen
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_change` is called with the name of each namespace that is new, gone, or has another hold or other labels.

        `looked_up` returns the facts of a namespace that was read before the watch brought it, if any.
        """
        self.reflector = Reflector[Namespace](
            cluster,
            NAMESPACES,
            Namespace,
            metadata_only=True,
            random=random,
            settings=settings,
            metrics=metrics,
            clock=clock,
        )
        self.reflector.subscribe(self._changed)
        self._facts: dict[str, NamespaceFacts] = {}
        self._on_change = on_change
        self._looked_up = looked_up

    def facts_of(self, name: str) -> NamespaceFacts | None:
        """Its name and labels; None while the namespace is not known."""
        return self._facts.get(name)

    def hold_of(self, namespace: str) -> str | None:
        """The text of annotation `/hold`; None without one."""
        known = self.reflector.items.get(namespace)
        return None if known is None else known.hold

    def _changed(self, old: Namespace | None, new: Namespace | None) -> None:
        either = new or old
        assert either is not None
        name = either.key
        if new is None:
            self._facts.pop(name, None)
        else:
            self._facts[name] = new.facts(self._facts.get(name) or self._looked_up(name))
        if old is None or new is None or (old.hold, old.labels) != (new.hold, new.labels):
            self._on_change(name)
