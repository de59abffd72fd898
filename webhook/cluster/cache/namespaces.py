"""Labels and holds of namespaces, kept by a watch of their metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from webhook.api.pods import HOLD
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.cache.wire import Meta
from webhook.policy.ports import NamespaceFacts

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.cluster.client.rest import Cluster


class _NamespaceMeta(Meta, frozen=True, gc=False):
    annotations: dict[str, str] | None = None


class _Namespace(msgspec.Struct, frozen=True, gc=False):
    metadata: _NamespaceMeta

    @property
    def meta(self) -> _NamespaceMeta:
        return self.metadata

    def to_value(self) -> _Namespace:
        """With `/hold` as its only annotation."""
        meta = self.metadata
        hold = (meta.annotations or {}).get(HOLD)
        kept = None if hold is None else {HOLD: hold}
        return _Namespace(msgspec.structs.replace(meta, annotations=kept))


class NamespaceCache:
    """Labels and holds by the name of the namespace."""

    def __init__(
        self, cluster: Cluster, *, random: Callable[[], float], on_hold: Callable[[str], None] = lambda _: None
    ) -> None:
        """`on_hold` is called with the name of each namespace whose hold has changed."""
        collection = FixedCollection("", "v1", "namespaces")
        self.reflector = Reflector[_Namespace](cluster, collection, _Namespace, random=random, metadata_only=True)
        self.reflector.subscribe(self._changed)
        self._facts: dict[str, NamespaceFacts] = {}
        self._on_hold = on_hold

    def facts_of(self, name: str) -> NamespaceFacts | None:
        """Its name and labels; None while the namespace is not known."""
        return self._facts.get(name)

    def hold_of(self, namespace: str) -> str | None:
        """The text of annotation `/hold`; None without one."""
        known = self.reflector.items.get(namespace)
        return None if known is None else (known.metadata.annotations or {}).get(HOLD)

    def _changed(self, old: _Namespace | None, new: _Namespace | None) -> None:
        either = new or old
        assert either is not None
        name = either.metadata.name
        if new is None:
            self._facts.pop(name, None)
        else:
            self._facts[name] = NamespaceFacts(name, new.metadata.labels or {})
        before = old.metadata.annotations if old is not None else None
        if before != (new.metadata.annotations if new is not None else None):
            self._on_hold(name)
