"""What is known of a collection: lists and events added up, whatever comes twice, late or out of order."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic

from webhook.cluster.cache.wire import Kept, V, is_newer, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.flowcontrol.timeslice import TimeSlice

_GRAVES: Final = 1024
"""So many deleted objects are remembered, lest an event that comes late brings one back."""


class Known(Generic[V]):
    """Objects by `namespace/name` or name, and who wants to be told of changes."""

    def __init__(self, items: Mapping[str, V] | None = None) -> None:
        """`items`: where the first subscriber keeps what it is told, by the same keys; then it is not kept here."""
        own: dict[str, V] = {}
        self._own = own if items is None else None
        self._graves: dict[str, str] = {}
        self._subscribers: list[Callable[[V | None, V | None], None]] = []
        self.items: Mapping[str, V] = MappingProxyType(own) if items is None else items

    def subscribe(self, on_change: Callable[[V | None, V | None], None]) -> None:
        """From now on every change is told as (old, new); the items have changed already when it is told."""
        self._subscribers.append(on_change)

    def came(self, new: V) -> None:
        """Added or changed; unless it was heard before, or something later was."""
        key = key_of(new.meta)
        known = self.items.get(key)
        latest = known.meta.resource_version if known is not None else self._graves.get(key)
        if latest is None or is_newer(new.meta.resource_version, latest):
            self._put(key, new)

    def went(self, last: V) -> None:
        """Deleted; its version is that of the deletion."""
        key, version = key_of(last.meta), last.meta.resource_version
        known = self.items.get(key)
        if known is not None and is_newer(known.meta.resource_version, version):
            return
        self._graves[key] = version
        if len(self._graves) > _GRAVES:
            del self._graves[next(iter(self._graves))]
        if known is not None:
            self._drop(key)

    def gather(self, found: dict[str, V], new: V) -> None:
        """One more item of a list. What did not change is not held twice for as long as that takes."""
        key = key_of(new.meta)
        known = self.items.get(key)
        found[key] = known if known is not None and _same_state(known, new) else new

    async def replace(self, found: Mapping[str, V], timeslice: TimeSlice) -> None:
        """What is known becomes what was found, change by change. Others have the loop in between."""
        self._graves.clear()
        for key in [key for key in self.items if key not in found]:
            self._drop(key)
            await timeslice.pause()
        for key, new in found.items():
            self._put(key, new)
            await timeslice.pause()

    def _put(self, key: str, new: V) -> None:
        """The object is there now; one of the same name but another uid is another object."""
        old = self.items.get(key)
        if old is not None:
            if old.meta.resource_version == new.meta.resource_version:
                return
            if old.meta.uid != new.meta.uid:
                self._drop(key)
                old = None
        if self._own is not None:
            self._own[key] = new
        self._tell(old, new)

    def _drop(self, key: str) -> None:
        old = self.items[key]
        if self._own is not None:
            del self._own[key]
        self._tell(old, None)

    def _tell(self, old: V | None, new: V | None) -> None:
        for on_change in self._subscribers:
            on_change(old, new)


def _same_state(known: Kept, new: Kept) -> bool:
    return known.meta.resource_version == new.meta.resource_version and known.meta.uid == new.meta.uid
