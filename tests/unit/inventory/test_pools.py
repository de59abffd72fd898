"""Pools: generations, completeness, taints beside devices, and what is left when slices go."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.unit.inventory.values import DRIVER, NOW, POOL, inventory_of, pool_slice, taint, taints_on
from webhook.api.slices import Device, SliceTaint
from webhook.inventory.pools import Pool

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


def test_pool_without_slices_has_nothing_and_is_not_complete() -> None:
    pool = Pool()
    assert (pool.newest, pool.complete, pool.devices) == ([], False, {})


def test_only_no_execute_is_evicting() -> None:
    inventory = inventory_of(pool_slice(Device("gpu-0", (A, B)), Device("gpu-1", (B,)), "gpu-2"))
    found = inventory.pools.get((DRIVER, POOL))
    assert found is not None
    assert found.evicting == {"gpu-0": (A,)}


def test_taints_beside_devices_come_by_slice_name_whoever_came_first() -> None:
    first = pool_slice("gpu-0", name="a", count=2, beside=[SliceTaint("gpu-0", A)])
    second = pool_slice(name="b", count=2, beside=[SliceTaint("gpu-0", B)])
    for order in ((first, second), (second, first)):
        assert taints_on(inventory_of(*order), DRIVER, POOL, "gpu-0") == (A, B)


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
