"""The objects of a collection: lists and events added up, whatever comes twice, late or out of order."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic

from webhook.cluster.cache.wire import Stored, V, is_newer, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.flowcontrol.timeslice import TimeSlice

_TOMBSTONES_MOST: Final = 1024
"""Deleted objects that are remembered, so that an event that comes late does not bring one back."""


class Store(Generic[V]):
    """Objects by `namespace/name` or name, and subscribers that are notified of each change."""

    def __init__(self, items: Mapping[str, V] | None = None) -> None:
        """`items`: where the first subscriber keeps the objects, by the same keys; then they are not kept here."""
        own: dict[str, V] = {}
        self._own = own if items is None else None
        self._tombstones: dict[str, str] = {}
        self._subscribers: list[Callable[[V | None, V | None], None]] = []
        self.items: Mapping[str, V] = MappingProxyType(own) if items is None else items

    def subscribe(self, on_change: Callable[[V | None, V | None], None]) -> None:
        """Calls `on_change(old, new)` for every change from now on, after the items have changed."""
        self._subscribers.append(on_change)

    def upsert(self, new: V) -> None:
        """Added or changed; ignored if this version or a later one has been seen."""
        key = key_of(new.meta)
        known = self.items.get(key)
        latest = known.meta.resource_version if known is not None else self._tombstones.get(key)
        if latest is None or is_newer(new.meta.resource_version, latest):
            self._set(key, new)

    def delete(self, last: V) -> None:
        """Deleted; the version is that of the deletion."""
        key, version = key_of(last.meta), last.meta.resource_version
        known = self.items.get(key)
        if known is not None and is_newer(known.meta.resource_version, version):
            return
        self._tombstones[key] = version
        if len(self._tombstones) > _TOMBSTONES_MOST:
            del self._tombstones[next(iter(self._tombstones))]
        if known is not None:
            self._remove(key)

    def collect(self, found: dict[str, V], new: V) -> None:
        """Adds an item of a list to `found`, as the object that is stored already if it has not changed."""
        key = key_of(new.meta)
        known = self.items.get(key)
        found[key] = known if known is not None and _same_state(known, new) else new

    async def replace(self, found: Mapping[str, V], timeslice: TimeSlice) -> None:
        """The items become those found, change by change; other tasks run in between."""
        self._tombstones.clear()
        for key in [key for key in self.items if key not in found]:
            self._remove(key)
            await timeslice.pause()
        for key, new in found.items():
            self._set(key, new)
            await timeslice.pause()

    def _set(self, key: str, new: V) -> None:
        """The object is there now; one of the same name but another uid is another object."""
        old = self.items.get(key)
        if old is not None:
            if old.meta.resource_version == new.meta.resource_version:
                return
            if old.meta.uid != new.meta.uid:
                self._remove(key)
                old = None
        if self._own is not None:
            self._own[key] = new
        self._notify(old, new)

    def _remove(self, key: str) -> None:
        old = self.items[key]
        if self._own is not None:
            del self._own[key]
        self._notify(old, None)

    def _notify(self, old: V | None, new: V | None) -> None:
        for on_change in self._subscribers:
            on_change(old, new)


def _same_state(known: Stored, new: Stored) -> bool:
    return known.meta.resource_version == new.meta.resource_version and known.meta.uid == new.meta.uid
