"""What several taints that come together would do, as one impact: each device, claim and pod counts once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from webhook.inventory.extent import Extent
from webhook.inventory.fates import DeviceNames
from webhook.inventory.impact import Impact, impact_on_users, union
from webhook.inventory.steps import in_steps, unchecked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from webhook.api.rules import DeviceSelector
    from webhook.inventory.impact import Taint
    from webhook.inventory.pools import PoolId
    from webhook.inventory.state import Inventory
    from webhook.inventory.steps import Check


def joint_impact(
    inventory: Inventory,
    taints: Sequence[tuple[DeviceSelector, Taint]],
    now: datetime,
    check: Check = unchecked,
) -> Impact:
    """What the taints would do from `now` on, each on the devices of its selector. `check` may raise to stop.

    As `impact.impact_of` has it, a selector with fields that cannot be judged is taken for every device.
    """
    users: list[Impact] = []
    for selector, taint in taints:
        check()
        narrowed = selector if not selector.unknown else structs.replace(selector, driver=None, pool=None, device=None)
        users.append(impact_on_users(inventory, narrowed, taint, now, check))
    names = list(dict.fromkeys([DeviceNames.of(selector) for selector, _ in taints]))
    pools, incomplete = _pools(inventory, names, check)
    return structs.replace(
        union(users) if users else Impact(),
        devices=Extent(names).count(inventory.pools, None, check),
        pools=len(pools),
        drivers=len({driver for driver, _ in pools}),
        allocated=users[0].allocated if len(names) == 1 else _allocated(inventory, names, check),
        incomplete_pools=incomplete,
    )


def _pools(
    inventory: Inventory, names: Iterable[DeviceNames], check: Check
) -> tuple[frozenset[PoolId], tuple[PoolId, ...]]:
    """The pools of which devices are named, and all that are named and not published in full."""
    missing = inventory.pools.incomplete
    found: set[PoolId] = set()
    incomplete: set[PoolId] = set()
    for driver, name, device in in_steps(names, check):
        for identity, pool in in_steps(inventory.pools.selected(driver, name), check):
            if identity in missing:
                incomplete.add(identity)
            if device in pool.devices if device is not None else pool.devices:
                found.add(identity)
    return frozenset(found), tuple(sorted(incomplete))


def _allocated(inventory: Inventory, names: Sequence[DeviceNames], check: Check) -> int:
    """Entries of allocation results that are named, each once."""
    found = {
        (key, position)
        for each in in_steps(names, check, size=1)
        for key in inventory.usage.claims_on(*each, check)
        for position, result in enumerate(inventory.claims[key].allocation or ())
        if each.includes(result)
    }
    return len(found)
