"""How many devices a rule closes, alone and together with all recent taints, and how many it may.

A limit that is a number is for the devices of all drivers together. One that is a share holds for each driver whose
devices the rule closes, and is of that driver's own devices: the devices of a large driver must not make room for all
devices of a small one.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from webhook.admission.recent_impact import PHASE, POOLS_BETWEEN_CHECKS, recent_rules, window_start
from webhook.inventory.extent import Extent
from webhook.inventory.fates import DeviceNames
from webhook.inventory.pools import ShareUse
from webhook.inventory.scope import can_judge
from webhook.inventory.steps import in_steps
from webhook.policy.impact_limits import limit_on_devices
from webhook.policy.model import Share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from webhook.admission.context import AdmissionContext
    from webhook.inventory.pools import Pools
    from webhook.inventory.state import Inventory
    from webhook.inventory.steps import Check


class ClosedDevices(NamedTuple):
    """Devices that are closed, how many may be, and of how many; of one driver, or (None) of all."""

    devices: int
    limit: int
    published: int
    driver: str | None = None

    @property
    def over(self) -> bool:
        """Whether that is more than the limit."""
        return self.devices > self.limit


def closed_together(
    limit: int | Share | None,
    own: Sequence[DeviceNames],
    beside: Iterable[DeviceNames],
    inventory: Inventory,
    context: AdmissionContext,
) -> ClosedDevices | None:
    """What is closed by itself; of several drivers the worst off. None if it has no limit, or nothing is closed.

    `own` are the devices that the limit is for; those `beside` are closed as well, by what has a limit of its own.
    """
    pools, extent, check = inventory.pools, Extent([*own, *beside]), partial(context.budget.check, "impact")
    return _worst(limit, _drivers_of(limit, own, pools, check), pools, partial(extent.count, pools), context, check)


def closed_together_with_recent(
    limit: int | Share | None,
    own: Sequence[DeviceNames],
    beside: Iterable[DeviceNames],
    inventory: Inventory,
    context: AdmissionContext,
) -> ClosedDevices | None:
    """What that and all taints of the window closed together; of several drivers the worst off. Raises OutOfTime.

    Only drivers count of which further devices of `own` are closed: those that no taint of the window keeps closed,
    stored and acting as it is now. What a rule closed that is gone by now is used up all the same. None if there
    is no limit, or nothing further is closed.
    """
    pools = inventory.pools
    since, check = window_start(context), partial(context.budget.check, PHASE)
    drivers = _drivers_of(limit, own, pools, check)
    used, standing = Extent(context.closed), Extent()
    for assumed in recent_rules(context.assumed, since, check):
        used.add(DeviceNames.of(assumed.selector, inventory.servers))
    for stored in recent_rules(inventory.rules.values(), since, check):
        used.add(DeviceNames.of(stored.selector, inventory.servers))
        if can_judge(stored.selector) and not stored.deleting:
            standing.add(DeviceNames.of(stored.selector, inventory.servers))
    for driver in drivers:
        use = None if driver is None else ShareUse(pools, driver)
        for each in _recent_in_slices(driver, pools, since, check):
            standing.add(each)
            if use is None or (each.pool is not None and use.add(each.pool)):
                used.add(each)
    for each in (*own, *beside):
        used.add(each)
    further = [
        driver for driver in drivers if not all(standing.holds_all(names, pools, driver, check) for names in own)
    ]
    return _worst(limit, further, pools, partial(used.count, pools), context, check)


def _drivers_of(
    limit: int | Share | None, own: Sequence[DeviceNames], pools: Pools, check: Check
) -> Sequence[str | None]:
    """The same as `_drivers` for several names, each driver once."""
    if len(own) == 1:
        return _drivers(limit, own[0], pools, check)
    return sorted(
        {driver for names in own for driver in _drivers(limit, names, pools, check)}, key=lambda name: name or ""
    )


def _drivers(limit: int | Share | None, names: DeviceNames, pools: Pools, check: Check) -> Sequence[str | None]:
    """Whose devices a limit is for, one by one: a number is for all together, and a share for each that is reached."""
    if limit is None:
        return ()
    if not isinstance(limit, Share):
        return (None,)
    if names.driver is not None:
        return (names.driver,)
    if names.pool is None:
        return pools.drivers
    return sorted({driver for (driver, _), _ in in_steps(pools.selected(None, names.pool), check)})


def _worst(
    limit: int | Share | None,
    drivers: Iterable[str | None],
    pools: Pools,
    count: Callable[[str | None, Check], int],
    context: AdmissionContext,
    check: Check,
) -> ClosedDevices | None:
    """Of several drivers, the one that has the largest part of its devices closed, and of equals the first by name."""
    worst: ClosedDevices | None = None
    before = context.now - timedelta(seconds=context.policy.impact.window_seconds)
    for driver in drivers:
        published = pools.device_count(driver, check)
        most = limit_on_devices(limit, 0 if driver is None else pools.counted_devices(driver, before, check))
        if most is None:
            return None
        found = ClosedDevices(count(driver, check), most, published, driver)
        # Shares are compared as fractions, a/b < c/d as a*d < c*b; a limit is exceeded by the largest if by any.
        if worst is None or (found.over, found.devices * worst.published) > (
            worst.over,
            worst.devices * found.published,
        ):
            worst = found
    return worst


def _recent_in_slices(driver: str | None, pools: Pools, since: datetime, check: Check) -> Iterator[DeviceNames]:
    """The devices that a driver, or any, closed within the window."""
    for number, ((name, pool), each) in enumerate(pools.selected(driver, None)):
        if number % POOLS_BETWEEN_CHECKS == 0 or each.closed:
            check()
        for device, added in each.closed.items():
            if added >= since:
                yield DeviceNames(name, pool, device)
