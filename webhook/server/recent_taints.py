"""NoExecute taints that slices had recently: a taint that a driver removes and sets again is not reported again."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from webhook.admission.slice_guard import TaintId, evicting
from webhook.api.slices import ResourceSlice

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.inventory.state import InventoryObject

KEPT_SECONDS: Final = 600.0
_KEPT_MOST: Final = 100_000
"""About 40 MB. Beyond that the oldest is forgotten, and reported again if it comes back."""


class RecentTaints:
    """Taints that were removed from a pool's slices in the last ten minutes, as this replica's watch showed them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` counts seconds and never goes back."""
        self._clock = clock
        self._gone: OrderedDict[tuple[str, str, TaintId], float] = OrderedDict()

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """One object has changed."""
        if not isinstance(old, ResourceSlice):
            return
        before = evicting([old])
        if not before:
            return
        same_pool = isinstance(new, ResourceSlice) and (new.driver, new.pool) == (old.driver, old.pool)
        after = evicting([new]) if isinstance(new, ResourceSlice) and same_pool else set()
        now = self._clock()
        for identity in before - after:
            key = (old.driver, old.pool, identity)
            self._gone[key] = now
            self._gone.move_to_end(key)
        while self._gone and (len(self._gone) > _KEPT_MOST or next(iter(self._gone.values())) < now - KEPT_SECONDS):
            self._gone.popitem(last=False)

    def had(self, driver: str, pool: str, identity: TaintId) -> bool:
        """Whether a slice of the pool had the taint within that time."""
        at = self._gone.get((driver, pool, identity))
        return at is not None and self._clock() - at <= KEPT_SECONDS
