"""How many devices several selectors reach together, each device counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.inventory.fates import ANYWHERE, DeviceNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from webhook.api.rules import DeviceSelector
    from webhook.inventory.pools import Pool, PoolId, Pools

_BETWEEN_CHECKS: Final = 1000
"""Devices that are counted between two checks: well under a millisecond."""


def names_of(selector: DeviceSelector | None) -> DeviceNames:
    """The devices that a selector keeps from being allocated, by name.

    A missing selector is every device (K-5), and so is one with a field that cannot be judged here.
    """
    if selector is None or selector.unknown:
        return ANYWHERE
    return DeviceNames(selector.driver, selector.pool, selector.device)


class Extent:
    """Devices by names, of any number of rules. They are indexed by driver and pool: each pool is looked at once."""

    __slots__ = ("_at",)

    def __init__(self, names: Iterable[DeviceNames] = ()) -> None:
        self._at: dict[tuple[str | None, str | None], set[str] | None] = {}
        """Names of devices by driver and pool, as a selector gives them; None instead of names is every device."""
        for each in names:
            self.add(each)

    def __bool__(self) -> bool:
        return bool(self._at)

    def add(self, names: DeviceNames) -> None:
        """Add devices."""
        driver, pool, device = names
        if device is None:
            self._at[driver, pool] = None
            return
        known = self._at.setdefault((driver, pool), set())
        if known is not None:
            known.add(device)

    def count(self, pools: Pools, driver: str | None = None, check: Callable[[], None] = lambda: None) -> int:
        """How many of the named devices are published, of one driver or of all.

        `check` is called every thousand devices and may raise to stop the count.
        """
        if self._everywhere(None, None) or (driver is not None and self._everywhere(driver, None)):
            return pools.device_count(driver)
        whole = {name for name, pool in self._at if name is not None and self._everywhere(name, pool) and pool is None}
        total = sum(pools.device_count(name) for name in whole if driver in (None, name))
        left = 0
        for identity, pool in self._pools(pools, driver).items():
            if left <= 0:
                check()
                left = _BETWEEN_CHECKS
            if identity[0] not in whole:
                total += self._count_in(identity, pool)
                left -= len(pool.devices)
            left -= 1
        return total

    def _everywhere(self, driver: str | None, pool: str | None) -> bool:
        return (driver, pool) in self._at and self._at[driver, pool] is None

    def _pools(self, pools: Pools, driver: str | None) -> dict[PoolId, Pool]:
        """The pools that any of the names may be in."""
        found: dict[PoolId, Pool] = {}
        for named, pool in self._at:
            if named is None or driver is None or named == driver:
                found.update(pools.selected(driver if named is None else named, pool))
        return found

    def _count_in(self, identity: PoolId, pool: Pool) -> int:
        driver, name = identity
        devices: set[str] = set()
        for place in ((driver, name), (driver, None), (None, name), (None, None)):
            if place in self._at:
                named = self._at[place]
                if named is None:
                    return len(pool.devices)
                devices = devices | named if devices else named
        return len(devices.intersection(pool.devices))
