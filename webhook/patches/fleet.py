"""The published devices by driver and pool, names only, kept up to date pool by pool."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from webhook.inventory.covering import cover_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.api.rules import DeviceSelector
    from webhook.inventory.covering import Cover, DeviceNameSet
    from webhook.inventory.pools import PoolId

NO_DEVICES: Final[DeviceNameSet] = frozenset()


class Fleet:
    """Which devices each pool has. Pools with the same devices share one set."""

    def __init__(self) -> None:
        self._published: dict[str, dict[str, DeviceNameSet]] = defaultdict(dict)
        self._shapes: dict[str, Counter[DeviceNameSet]] = defaultdict(Counter)
        self._sets: dict[DeviceNameSet, DeviceNameSet] = {}

    def of(self, pool: PoolId) -> DeviceNameSet:
        """The devices of a pool; none of one that is not known."""
        driver, name = pool
        return self._published[driver].get(name, NO_DEVICES) if driver in self._published else NO_DEVICES

    def put(self, pool: PoolId, names: DeviceNameSet | None) -> bool:
        """A pool has these devices, or is gone; returns whether that is new."""
        driver, name = pool
        known = self._published[driver].get(name)
        if known == names:
            return False
        shapes = self._shapes[driver]
        if known is not None:
            shapes[known] -= 1
            if not shapes[known]:
                del shapes[known]
        if names is None:
            del self._published[driver][name]
        else:
            shared = self._sets.setdefault(names, names)
            self._published[driver][name] = shared
            shapes[shared] += 1
        if not self._published[driver]:
            del self._published[driver], self._shapes[driver]
        return True

    def forget_unused(self) -> None:
        """Drops sets of devices that no pool has any more."""
        self._sets = {each: each for shapes in self._shapes.values() for each in shapes}

    def named(self, selector: DeviceSelector) -> Iterator[tuple[PoolId, DeviceNameSet]]:
        """The pools with devices that have the names in a selector, and which these are."""
        drivers = [selector.driver] if selector.driver is not None else sorted(self._published)
        for driver in drivers:
            pools = self._published.get(driver, {})
            found = pools.items() if selector.pool is None else [(selector.pool, pools.get(selector.pool, NO_DEVICES))]
            for name, devices in found:
                own = devices if selector.device is None else devices & {selector.device}
                if own:
                    yield (driver, name), own

    def cover(self, driver: str, wanted: Mapping[str, DeviceNameSet]) -> Cover:
        """The fewest selectors for devices of a driver, given by pool."""
        return cover_of(driver, self._published[driver], self._shapes[driver], wanted)
