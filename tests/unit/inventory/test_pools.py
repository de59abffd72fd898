"""Pools: generations, completeness, taints beside devices, and what is left when slices go."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.unit.inventory.values import DRIVER, NOW, POOL, inventory_of, pool_slice, taint, taints_on
from webhook.api.slices import Device, SliceTaint
from webhook.inventory.pools import Pool, Pools

if TYPE_CHECKING:
    from webhook.inventory.state import Inventory

OLD = pool_slice("gpu-0", "gpu-1", name="old", generation=1)
NEW = pool_slice("gpu-1", "gpu-2", name="new", generation=2)
LATER = NOW + timedelta(days=1)
A, B = taint(key="a"), taint("NoSchedule", key="b")


def devices(inventory: Inventory) -> list[str]:
    found = inventory.pools.get((DRIVER, POOL))
    return [] if found is None else sorted(found.devices)


def test_newest_generation_counts() -> None:
    """E-2, K-6."""
    assert devices(inventory_of(NEW, OLD)) == devices(inventory_of(OLD, NEW)) == ["gpu-1", "gpu-2"]


def test_removing_the_newest_generation_makes_the_lower_one_current() -> None:
    inventory = inventory_of(OLD, NEW)
    assert inventory.pools.device_count() == 2
    inventory.apply(NEW, None)
    assert devices(inventory) == ["gpu-0", "gpu-1"]


def test_generation_is_current_until_its_last_slice_is_gone() -> None:
    more = pool_slice("gpu-3", name="newer", generation=2)
    inventory = inventory_of(OLD, NEW, more)
    inventory.apply(NEW, None)
    assert devices(inventory) == ["gpu-3"]


def test_slice_that_goes_back_a_generation_is_followed() -> None:
    inventory = inventory_of(OLD, NEW)
    inventory.apply(NEW, pool_slice("gpu-9", name="new", generation=1))
    assert devices(inventory) == ["gpu-0", "gpu-1", "gpu-9"]


def test_slice_that_moves_leaves_its_pool() -> None:
    inventory = inventory_of(OLD)
    inventory.apply(OLD, pool_slice("gpu-0", name="old", pool="node-1"))
    assert inventory.pools.get((DRIVER, POOL)) is None
    assert [identity for identity, _ in inventory.pools.items()] == [(DRIVER, "node-1")]
    assert len(inventory.pools) == 1


def test_pools_of_one_name_are_told_apart_by_driver() -> None:
    inventory = inventory_of(OLD, pool_slice("nic-0", name="nic", driver="nic.example.com"))
    assert devices(inventory) == ["gpu-0", "gpu-1"]
    assert inventory.pools.device_count() == 3
    assert inventory.pools.device_count("nic.example.com") == 1
    assert inventory.pools.device_count("fpga.example.com") == 0
    assert sorted(identity for identity, _ in inventory.pools.selected(None, POOL)) == [
        (DRIVER, POOL),
        ("nic.example.com", POOL),
    ]


def test_device_count_follows_changes() -> None:
    inventory = inventory_of(OLD)
    assert inventory.pools.device_count() == inventory.pools.device_count(DRIVER) == 2
    inventory.apply(OLD, pool_slice("gpu-0", name="old"))
    assert inventory.pools.device_count() == inventory.pools.device_count(DRIVER) == 1


def test_pool_is_incomplete_until_all_its_slices_are_there() -> None:
    first, second = (pool_slice(f"gpu-{n}", name=f"part-{n}", count=2) for n in (0, 1))
    inventory = inventory_of(first)
    assert inventory.pools.incomplete == {(DRIVER, POOL)}
    inventory.apply(None, second)
    assert inventory.pools.incomplete == frozenset()
    inventory.apply(first, None)
    assert inventory.pools.incomplete == {(DRIVER, POOL)}
    inventory.apply(second, None)
    assert inventory.pools.incomplete == frozenset()


def test_slices_of_older_generations_do_not_complete_a_pool() -> None:
    inventory = inventory_of(OLD, pool_slice("gpu-0", name="new", generation=2, count=2))
    assert inventory.pools.incomplete == {(DRIVER, POOL)}


def test_pool_whose_slices_disagree_on_their_number_is_incomplete() -> None:
    inventory = inventory_of(pool_slice("gpu-0", name="a", count=2), pool_slice("gpu-1", name="b", count=3))
    assert inventory.pools.incomplete == {(DRIVER, POOL)}


def test_pool_without_slices_has_nothing_and_is_not_complete() -> None:
    pool = Pool()
    assert (pool.newest, pool.complete, pool.devices) == ([], False, {})


def test_pool_that_was_never_asked_for_leaves_nothing_behind() -> None:
    pools = Pools()
    pools.apply(None, pool_slice("gpu-0", count=2))
    pools.apply(pool_slice("gpu-0", count=2), None)
    assert pools._changed == set()
    assert pools.incomplete == frozenset()


def test_taints_beside_devices_come_after_their_own() -> None:
    inventory = inventory_of(pool_slice(Device("gpu-0", (A,)), "gpu-1", beside=[SliceTaint("gpu-0", B)]))
    assert taints_on(inventory, DRIVER, POOL, "gpu-0") == (A, B)
    assert taints_on(inventory, DRIVER, POOL, "gpu-1") == ()


def test_taint_beside_devices_reaches_another_slice_of_the_pool() -> None:
    tainting = pool_slice(name="z", count=2, beside=[SliceTaint("gpu-0", A), SliceTaint("gpu-9", A)])
    inventory = inventory_of(tainting, pool_slice("gpu-0", name="a", count=2))
    assert taints_on(inventory, DRIVER, POOL, "gpu-0") == (A,)
    assert taints_on(inventory, DRIVER, POOL, "gpu-9") == ()


def test_taints_beside_devices_come_by_slice_name_whoever_came_first() -> None:
    first = pool_slice("gpu-0", name="a", count=2, beside=[SliceTaint("gpu-0", A)])
    second = pool_slice(name="b", count=2, beside=[SliceTaint("gpu-0", B)])
    for order in ((first, second), (second, first)):
        assert taints_on(inventory_of(*order), DRIVER, POOL, "gpu-0") == (A, B)


def test_taint_beside_devices_of_an_older_generation_is_ignored() -> None:
    inventory = inventory_of(pool_slice("gpu-1", name="old", beside=[SliceTaint("gpu-1", A)]), NEW)
    assert taints_on(inventory, DRIVER, POOL, "gpu-1") == ()


def test_only_no_execute_is_evicting() -> None:
    inventory = inventory_of(pool_slice(Device("gpu-0", (A, B)), Device("gpu-1", (B,)), "gpu-2"))
    found = inventory.pools.get((DRIVER, POOL))
    assert found is not None
    assert found.evicting == {"gpu-0": (A,)}


def test_taint_beside_devices_evicts_and_closes_like_their_own() -> None:
    inventory = inventory_of(pool_slice("gpu-0", "gpu-1", beside=[SliceTaint("gpu-0", A)]))
    found = inventory.pools.get((DRIVER, POOL))
    assert found is not None
    assert (found.evicting, found.closed) == ({"gpu-0": (A,)}, {"gpu-0": NOW})


def test_device_is_closed_from_the_last_taint_that_keeps_from_allocation() -> None:
    early, late, timeless = taint(key="a"), taint("NoSchedule", key="b", added=LATER), taint(key="c", added=None)
    inventory = inventory_of(
        pool_slice(
            Device("gpu-0", (early,)),
            Device("gpu-1", (late, early)),
            Device("gpu-2", (early, timeless)),
            Device("gpu-3", (taint("None", added=LATER),)),
            Device("gpu-4", (early, taint("None", added=LATER))),
            "gpu-5",
        )
    )
    found = inventory.pools.get((DRIVER, POOL))
    assert found is not None
    assert {name: at for name, at in found.closed.items() if name != "gpu-2"} == {
        "gpu-0": NOW,
        "gpu-1": LATER,
        "gpu-4": NOW,
    }
    assert found.closed["gpu-2"].year == 9999


def test_answers_follow_a_slice_that_changes() -> None:
    untainted = pool_slice("gpu-0")
    inventory = inventory_of(untainted)
    found = inventory.pools.get((DRIVER, POOL))
    assert found is not None
    assert (found.evicting, found.taints_of("gpu-0"), found.tainted) == ({}, (), False)
    inventory.apply(untainted, pool_slice(Device("gpu-0", (A,))))
    assert (found.evicting, found.taints_of("gpu-0"), found.tainted) == ({"gpu-0": (A,)}, (A,), True)
