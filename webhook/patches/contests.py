"""Which patch's taint counts on a device, where several set the same key and effect. `semantics.md` P-11, P-14, P-22.

Looked at are only taints of the same key and effect, and only pools in which something changed. Of the result only
what patches lose is kept, as most lose nothing.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from webhook.inventory.patching import Origin, by_precedence, taints_of_patch
from webhook.patches.filter_match import NO_DEVICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from webhook.api.patches import ResourceSlicePatch
    from webhook.inventory.covering import DeviceNameSet
    from webhook.inventory.pools import PoolId

_NOTHING_LOST: Final[Mapping[PoolId, DeviceNameSet]] = {}


def origins_of(patch: ResourceSlicePatch) -> list[Origin]:
    """What it sets on devices, taints only."""
    return [Origin("taint", taint.key, taint.effect) for taint in taints_of_patch(patch)]


class Contests:
    """All patches with taints, by what they set."""

    def __init__(self) -> None:
        self._entrants: dict[Origin, dict[str, ResourceSlicePatch]] = defaultdict(dict)
        self._ranked: dict[Origin, list[str]] = {}
        self._left: dict[Origin, dict[str, dict[PoolId, DeviceNameSet]]] = defaultdict(dict)
        self._work: dict[tuple[Origin, PoolId], None] = {}

    @property
    def pending(self) -> int:
        """Pools that are to be looked at, counted for each taint."""
        return len(self._work)

    def enter(self, patch: ResourceSlicePatch) -> None:
        """A patch is there; mark the pools in which it selects devices."""
        for origin in origins_of(patch):
            self._entrants[origin][patch.meta.name] = patch
            self._ranked.pop(origin, None)

    def leave(self, patch: ResourceSlicePatch) -> None:
        """A patch is gone; mark the pools in which it selected devices."""
        name = patch.meta.name
        for origin in origins_of(patch):
            del self._entrants[origin][name]
            self._ranked.pop(origin, None)
            self._left[origin].pop(name, None)
            if not self._entrants[origin]:
                del self._entrants[origin]
                self._left.pop(origin, None)

    def mark(self, origins: Iterable[Origin], pools: Iterable[PoolId]) -> None:
        """Something that was selected in these pools, or who selects, changed."""
        pools = list(pools)
        for origin in origins:
            if len(self._entrants.get(origin, ())) > 1 or self._left.get(origin):
                for pool in pools:
                    self._work[origin, pool] = None

    def left_of(self, origin: Origin, patch: str) -> Mapping[PoolId, DeviceNameSet]:
        """The pools in which a patch loses devices that it selects to others, and which devices are left to it."""
        return self._left[origin].get(patch, _NOTHING_LOST) if origin in self._left else _NOTHING_LOST

    def step(self, selected_in: Callable[[str, PoolId], DeviceNameSet]) -> set[str]:
        """Looks at one pool; returns the patches to which other devices are left there than before."""
        origin, pool = next(iter(self._work))
        del self._work[origin, pool]
        taken: DeviceNameSet = NO_DEVICES
        changed: set[str] = set()
        for name in self._ranking(origin):
            own = selected_in(name, pool)
            left = own - taken
            known = self._left[origin].setdefault(name, {})
            before, after = known.pop(pool, None), None if left == own else left
            if after is not None:
                known[pool] = after
            if before != after:
                changed.add(name)
            if not known:
                del self._left[origin][name]
            taken = taken | own if taken else own
        if origin in self._left and not self._left[origin]:
            del self._left[origin]
        return changed

    def _ranking(self, origin: Origin) -> list[str]:
        if origin not in self._entrants:
            return []  # the last one has left meanwhile
        if origin not in self._ranked:
            self._ranked[origin] = [patch.meta.name for patch in by_precedence(self._entrants[origin].values())]
        return self._ranked[origin]
