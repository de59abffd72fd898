"""Laws of the inventory, whatever the cluster. That its indexes answer as a scan does is in test_inventory_scan.py."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.properties.inventories import (
    DEVICES,
    DRIVERS,
    EVICTING,
    KEYS,
    NAMESPACES,
    NOW,
    POOLS,
    WIDTHS,
    acting_taints,
    after,
    clusters,
    histories,
    interleaved,
    inventory_of,
    left_by,
    selectors,
    tolerating,
    tolerations,
)
from tests.unit.inventory.values import taints_on
from webhook.api.claims import ResourceClaim
from webhook.api.rules import DeviceSelector
from webhook.inventory.impact import Impact, impact_of, union
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from tests.properties.inventories import Event, History
    from webhook.api.taints import DeviceToleration
    from webhook.inventory.impact import Taint
    from webhook.inventory.state import InventoryObject


def answers(inventory: Inventory) -> list[Any]:
    """To every question that can be asked of a small cluster."""
    pools = inventory.pools
    names = product((None, *DRIVERS), (None, *POOLS), (None, *DEVICES))
    return [
        [
            dict(each)
            for each in (inventory.slices, inventory.rules, inventory.claims, inventory.pods, inventory.pod_groups)
        ],
        [inventory.members_of(f"{namespace}/{group}") for namespace in NAMESPACES for group in "gh"],
        *([inventory.publishes(key) for key in KEYS], inventory.taint_keys()),
        [inventory.pods_of(f"{namespace}/c{number}") for namespace in NAMESPACES for number in range(5)],
        [inventory.shares(name) for name in sorted(inventory.pods)],
        [taints_on(inventory, *each) for each in product(DRIVERS, POOLS, DEVICES)],
        [pools.device_count(driver) for driver in (None, *DRIVERS)],
        (len(pools), pools.incomplete, {identity: (pool.devices, pool.evicting) for identity, pool in pools.items()}),
        [inventory.usage.claims_on(*each) for each in names],
        {kin: (found.results, {**found.pods}, {**found.claims}) for kin, found in inventory.usage.groups.items()},
        [impact_of(inventory, selector, EVICTING, NOW) for selector in (None, *WIDTHS)],
    ]


def insides(inventory: Inventory) -> list[Any]:
    """All that it keeps; groups of claims by what is in them."""
    usage = vars(inventory.usage).copy()
    usage["groups"] = {
        kin: [getattr(group, name) for name in group.__slots__] for kin, group in usage["groups"].items()
    }
    usage["_drivers"] = {driver: list(groups) for driver, groups in usage["_drivers"].items()}
    pools = {name: value for name, value in vars(inventory.pools).items() if name not in ("_pools", "_names")}
    outer = {name: value for name, value in vars(inventory).items() if name not in ("pools", "usage")}
    return [outer, usage, pools, {identity: pool.slices for identity, pool in inventory.pools.items()}]


# --- events ---------------------------------------------------------------------------------------


@given(st.data(), histories())
def test_any_order_of_events_gives_the_same_inventory(data: st.DataObject, of_each: list[History]) -> None:
    expected = answers(inventory_of(left_by(of_each)))
    assert answers(after(data.draw(interleaved(of_each)))) == expected


@given(st.data(), histories())
def test_questions_in_between_change_no_answer(data: st.DataObject, of_each: list[History]) -> None:
    inventory = Inventory()
    for old, new in data.draw(interleaved(of_each)):
        inventory.apply(old, new)
        answers(inventory)
    assert answers(inventory) == answers(inventory_of(left_by(of_each)))


@given(st.data(), histories())
def test_same_event_twice_changes_nothing(data: st.DataObject, of_each: list[History]) -> None:
    events: list[Event] = data.draw(interleaved(of_each))
    twice = [event for each in events for event in (each, each)]
    assert insides(after(twice)) == insides(after(events))


@given(st.data(), histories())
def test_first_list_again_changes_nothing(data: st.DataObject, of_each: list[History]) -> None:
    """As after a watch that broke: all that is there comes as added once more, in another order."""
    inventory = after(data.draw(interleaved(of_each)))
    before = answers(inventory)
    for each in data.draw(st.permutations(left_by(of_each))):
        inventory.apply(None, each)
    assert answers(inventory) == before


@given(st.data(), histories())
def test_reverse_of_all_events_leaves_nothing_behind(data: st.DataObject, of_each: list[History]) -> None:
    inventory = after(data.draw(interleaved(of_each)))
    if data.draw(st.booleans()):
        answers(inventory)
    for each in data.draw(st.permutations(left_by(of_each))):
        inventory.apply(each, None)
    empty = Inventory()
    assert answers(inventory) == answers(empty)  # which fills the same memories of answers in both
    assert insides(inventory) == insides(empty)


@given(clusters(), st.data())
def test_change_and_its_reverse_leave_what_was_there(objects: list[InventoryObject], data: st.DataObject) -> None:
    inventory = inventory_of(objects)
    before = answers(inventory)
    for old, new in zip(objects, data.draw(st.permutations(objects)), strict=True):
        if type(old) is type(new):
            changed = structs.replace(new, meta=old.meta)
            inventory.apply(old, changed)
            inventory.apply(changed, old)
    assert answers(inventory) == before


# --- impact ---------------------------------------------------------------------------------------


def due(impact: Impact) -> dict[str, int]:
    """When each pod goes."""
    return {pod: wave.seconds for wave in impact.waves for pod in wave.pods}


@given(clusters(), selectors, acting_taints, st.sampled_from(["driver", "pool", "device"]))
def test_wider_selector_never_shrinks_the_impact(
    objects: list[InventoryObject], selector: DeviceSelector, taint: Taint, field: str
) -> None:
    inventory = inventory_of(objects)
    narrow = impact_of(inventory, selector, taint, NOW)
    wide = impact_of(inventory, structs.replace(selector, **{field: None}), taint, NOW)
    assert (narrow.devices, narrow.pools, narrow.drivers, narrow.allocated) <= (
        wide.devices,
        wide.pools,
        wide.drivers,
        wide.allocated,
    )
    for less, more in (
        (narrow.pods, wide.pods),
        (narrow.now, wide.now),
        (narrow.claims, wide.claims),
        (narrow.namespaces, wide.namespaces),
        (narrow.pod_groups, wide.pod_groups),
        (narrow.tolerating, wide.tolerating | wide.pods),
        (narrow.extended, wide.pods),
        (narrow.extended, narrow.pods),
        (narrow.kept, wide.kept),
        (set(narrow.incomplete_pools), set(wide.incomplete_pools)),
    ):
        assert less <= more
    later = due(wide)
    assert all(later[pod] <= seconds for pod, seconds in due(narrow).items())


@given(clusters(), selectors, acting_taints, tolerations, st.data())
def test_toleration_for_ever_never_adds_an_eviction(
    objects: list[InventoryObject],
    selector: DeviceSelector,
    taint: Taint,
    toleration: DeviceToleration,
    data: st.DataObject,
) -> None:
    for_ever = structs.replace(toleration, toleration_seconds=None)
    more = [
        tolerating(each, for_ever) if isinstance(each, ResourceClaim) and data.draw(st.booleans()) else each
        for each in objects
    ]
    before = impact_of(inventory_of(objects), selector, taint, NOW)
    now = impact_of(inventory_of(more), selector, taint, NOW)
    sooner = due(before)
    assert all(pod in sooner and seconds >= sooner[pod] for pod, seconds in due(now).items())
    assert now.claims <= before.claims
    assert now.namespaces <= before.namespaces
    assert now.pod_groups <= before.pod_groups


@given(clusters(), acting_taints)
def test_impact_is_the_union_of_its_parts(objects: list[InventoryObject], taint: Taint) -> None:
    """By driver, through groups; and device by device, through claims."""
    inventory = inventory_of(objects)
    whole = impact_of(inventory, DeviceSelector(), taint, NOW)
    assert union(impact_of(inventory, DeviceSelector(driver), taint, NOW) for driver in DRIVERS) == whole
    pools = [DeviceSelector(driver, pool) for driver, pool in product(DRIVERS, POOLS)]
    by_pool = union(impact_of(inventory, pool, taint, NOW) for pool in pools)
    assert structs.replace(by_pool, drivers=whole.drivers) == whole


@given(clusters(), selectors, acting_taints)
def test_nobody_is_in_two_places(objects: list[InventoryObject], selector: DeviceSelector, taint: Taint) -> None:
    impact = impact_of(inventory_of(objects), selector, taint, NOW)
    places = [*(wave.pods for wave in impact.waves), impact.tolerating, impact.kept]
    assert sum(map(len, places)) == len(frozenset().union(*places))
    assert [wave.seconds for wave in impact.waves] == sorted({wave.seconds for wave in impact.waves})
