"""How many devices several selectors reach together, each device counted once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from webhook.inventory.fates import DeviceNames
from webhook.inventory.pools import BETWEEN_CHECKS, Check, Pool, Pools, in_steps, unchecked

_NO_NAMES: Final[frozenset[str]] = frozenset()


class Extent:
    """Devices by names, of any number of rules. They are indexed by driver and pool: each pool is looked at once."""

    __slots__ = ("_at",)

    def __init__(self, names: Iterable[DeviceNames] = ()) -> None:
        self._at: dict[str | None, dict[str | None, set[str] | None]] = {}
        """Names of devices by driver and pool, as a selector gives them; None instead of names is every device."""
        for each in names:
            self.add(each)

    def add(self, names: DeviceNames) -> None:
        """Add devices."""
        driver, pool, device = names
        pools = self._at.setdefault(driver, {})
        if device is None:
            pools[pool] = None
            return
        known = pools.setdefault(pool, set())
        if known is not None:
            known.add(device)

    def count(self, pools: Pools, driver: str | None = None, check: Check = unchecked) -> int:
        """How many of the named devices are published, of one driver or of all.

        `check` is called every thousand devices and may raise to stop the count.
        """
        drivers = pools.drivers if driver is None else (driver,)
        return sum([self._count_of(pools, name, check) for name in drivers])

    def holds(self, driver: str, pool: str, device: str) -> bool:
        """Whether the device is among them."""
        for places in self._places(driver):
            for name in (pool, None):
                named = places.get(name, _NO_NAMES)
                if named is None or device in named:
                    return True
        return False

    def holds_all(self, names: DeviceNames, pools: Pools, driver: str | None = None, check: Check = unchecked) -> bool:
        """Whether every published device of those names is among them, of one driver or of all.

        `check` is called as by `count`.
        """
        if driver is not None and names.driver not in (None, driver):
            return True
        selected = pools.selected(driver if names.driver is None else names.driver, names.pool)
        for (of, name), pool in _looked_at(selected, check):
            own = pool.devices.keys() if names.device is None else {names.device} & pool.devices.keys()
            if own and not self._all_of(of) and not own <= self._names_in(of, name, pool):
                return False
        return True

    def _places(self, driver: str) -> list[Mapping[str | None, set[str] | None]]:
        return [self._at[name] for name in (driver, None) if name in self._at]

    def _all_of(self, driver: str) -> bool:
        """Whether every device of a driver is named, whatever its pool."""
        return any(places.get(None, _NO_NAMES) is None for places in self._places(driver))

    def _count_of(self, pools: Pools, driver: str, check: Check) -> int:
        places = self._places(driver)
        if not places:
            return 0
        if self._all_of(driver):
            return pools.device_count(driver, check)
        found: Iterable[tuple[tuple[str, str], Pool]]
        if any(None in each for each in places):
            found = pools.selected(driver, None)
        else:
            named = {name for each in places for name in each}
            found = (each for name in in_steps(named, check) for each in pools.selected(driver, name))
        return sum(len(self._names_in(driver, name, pool)) for (_, name), pool in _looked_at(found, check))

    def _names_in(self, driver: str, name: str, pool: Pool) -> AbstractSet[str]:
        """The published devices of a pool that are named."""
        devices: AbstractSet[str] = _NO_NAMES
        for places in self._places(driver):
            for where in (name, None):
                named = places.get(where, _NO_NAMES)
                if named is None:
                    return pool.devices.keys()
                devices = devices | named if devices else named
        return devices & pool.devices.keys()


def _looked_at(pools: Iterable[tuple[tuple[str, str], Pool]], check: Check) -> Iterator[tuple[tuple[str, str], Pool]]:
    """The pools; `check` is called for every thousand devices that they have."""
    left = 0
    for identity, pool in pools:
        if left <= 0:
            check()
            left = BETWEEN_CHECKS
        left -= len(pool.devices) + 1
        yield identity, pool
