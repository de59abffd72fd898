"""What the report about forgotten rules costs: it blocks the event loop of the worker."""

from __future__ import annotations

import asyncio

import pytest

from tests.builders import DRIVER, NOW
from tests.costs import calls_of
from tests.unit.eviction.objects import rule, slice_of
from tests.unit.eviction.stale import find_stale
from tests.unit.eviction.world import World
from webhook.api.rules import DeviceSelector
from webhook.api.taints import DeviceTaint
from webhook.eviction import expiry
from webhook.eviction.expiry import StaleReporter
from webhook.flowcontrol.workqueue import TimeSlice
from webhook.inventory.state import Inventory


def cluster_of(devices_each: int) -> Inventory:
    """Rules that name devices which are gone, in a cluster of ten pools with this number of devices each."""
    inventory = Inventory()
    for number in range(10):
        devices: dict[str, tuple[DeviceTaint, ...]] = {f"gpu-{device}": () for device in range(devices_each)}
        inventory.apply(None, slice_of(devices, name=f"slice-{number}", pool=f"node-{number}"))
    for number in range(5):
        inventory.apply(None, rule(f"gone-{number}", selector=DeviceSelector(device=f"gone-{number}")))
    return inventory


def test_rules_that_name_a_device_do_not_look_at_all_devices() -> None:
    """L3: a rule that names a device is looked up by that name, so its cost does not grow with the cluster."""

    def look(inventory: Inventory) -> None:
        assert len(find_stale(inventory, {}, NOW).rules_without_devices) == 5

    small, large = calls_of(look, lambda: cluster_of(4)), calls_of(look, lambda: cluster_of(64))
    assert large < 2 * small


def test_rules_are_looked_up_by_each_of_their_names() -> None:
    """A rule has devices if a pool of its driver and name has the device, or has any where it names none."""
    inventory = cluster_of(2)
    inventory.apply(None, slice_of({}, name="empty", pool="empty"))
    there = {
        "all": DeviceSelector(),
        "driver": DeviceSelector(driver=DRIVER),
        "pool": DeviceSelector(pool="node-3"),
        "device": DeviceSelector(device="gpu-1"),
        "each": DeviceSelector(driver=DRIVER, pool="node-3", device="gpu-1"),
    }
    gone = {
        "no driver": DeviceSelector(driver="another.example.com"),
        "no pool": DeviceSelector(pool="node-10"),
        "no device": DeviceSelector(driver=DRIVER, pool="node-3", device="gpu-2"),
        "elsewhere": DeviceSelector(driver="another.example.com", device="gpu-1"),
        "empty pool": DeviceSelector(pool="empty"),
        "nothing": None,
    }
    for name, selector in {**there, **gone}.items():
        inventory.apply(None, rule(name, selector=selector))
    found = find_stale(inventory, {}, NOW).rules_without_devices
    assert sorted(found) == sorted([*gone, *[f"gone-{number}" for number in range(5)]])


def test_report_yields_to_other_tasks_after_each_rule_and_each_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """L3: the lease and probes wait for a time slice, and not for the whole report."""
    monkeypatch.setattr(expiry, "TimeSlice", lambda: TimeSlice(0.0))
    world = World()
    for number in range(10):
        world.add(slice_of({"gpu-0": ()}, name=f"slice-{number}", pool=f"node-{number}"))
        world.add(rule(f"gone-{number}", selector=DeviceSelector(device="gone")))
    reported: list[dict[str, int]] = []
    monkeypatch.setattr(world.deps.metrics, "set_forgotten", reported.append)

    async def turns() -> int:
        reporting = asyncio.create_task(StaleReporter(world.deps).run())
        count = 0
        while not reported:
            await asyncio.sleep(0)
            count += 1
        reporting.cancel()
        return count

    assert asyncio.run(turns()) > 30  # each rule twice: whether it is in use, and whether it has devices
    assert reported[0]["rules_without_devices"] == 10
