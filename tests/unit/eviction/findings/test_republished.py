"""Taints in slices of a pool that is not published in full evict nobody; rules act all the same."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import NO_BREAKER, Budget, World, evicting
from webhook.api.rules import DeviceSelector
from webhook.api.slices import ResourceSlice
from webhook.api.taints import DeviceTaint

Devices = dict[str, tuple["DeviceTaint", ...]]


def half(devices: Devices, *, name: str = "slice", generation: int = 2) -> ResourceSlice:
    """One of the two slices of a generation."""
    return structs.replace(slice_of(devices, name=name, generation=generation), slice_count=2)


def published(*tolerations: int) -> World:
    """A pod on a device that its slice taints, in a pool of one slice."""
    world = evicting(breaker=NO_BREAKER)
    world.add(slice_of({"gpu-0": (taint(),)}), claim("pod", *[tolerates(each) for each in tolerations]), pod())
    return world


@pytest.mark.parametrize("devices", [{"gpu-1": ()}, {"gpu-0": (taint(),)}], ids=["not there yet", "there already"])
def test_taint_of_a_pool_that_is_not_complete_evicts_nobody_until_it_is(devices: Devices) -> None:
    world = published(10)
    world.advance(5)
    world.change(world.inventory.slices["slice"], half(devices))
    world.advance(50)
    assert (world.evicted, world.told("EvictionCancelled")) == ([], [])
    rest: Devices = {"gpu-1": ()} if "gpu-0" in devices else {"gpu-0": (taint(),)}
    world.add(half(rest, name="rest"))
    assert world.settled() == ["pod"]


def test_taint_of_a_pool_that_is_never_completed_evicts_nobody() -> None:
    world = evicting(half({"gpu-0": (taint(),)}), claim("pod"), pod(), breaker=NO_BREAKER)
    assert world.after(3600) == []


def test_worker_that_starts_with_such_a_pool_waits_for_it() -> None:
    world = evicting(breaker=NO_BREAKER)
    world.worker.started = False
    world.add(half({"gpu-0": (taint(),)}), claim("pod"), pod())
    world.worker.start()
    assert world.after(60) == []
    world.add(half({}, name="rest"))
    assert world.settled() == ["pod"]


def test_device_that_a_pool_has_lost_evicts_nobody() -> None:
    """M6: not while the generation is incomplete, however long that lasts."""
    world = published(300)
    world.settle()
    world.add(half({"gpu-9": ()}, name="other"))
    assert world.after(3600) == []


def test_deadline_goes_on_and_no_eviction_is_cancelled_while_a_pool_is_published_again_and_again() -> None:
    """M6: while the newest generation is incomplete, the last complete one counts."""
    world = evicting(claim("pod"), pod("pod"), budgets=[Budget()], deadline_seconds=600, delete_after_deadline=True)
    for generation in range(1, 9):
        halves: dict[str, Devices] = {"slice-a": {"gpu-9": ()}, "slice-b": {"gpu-0": (taint(),)}}
        for name, devices in halves.items():
            world.change(world.inventory.slices.get(name), half(devices, name=name, generation=generation))
            world.settle()
        world.advance(300)
    assert [verb for verb, _, _ in world.cluster.calls] == ["delete"]
    assert world.told("EvictionCancelled") == []


def test_taint_that_is_gone_from_the_complete_generation_evicts_nobody() -> None:
    world = published(10)
    world.change(world.inventory.slices["slice"], half({"gpu-1": ()}))
    world.advance(20)
    world.add(half({"gpu-0": ()}, name="rest"))
    world.advance(60)
    assert (world.evicted, world.planned) == ([], {})


@pytest.mark.parametrize("devices", [1, 2])
def test_rules_act_on_the_devices_of_such_a_pool(devices: int) -> None:
    """Or a driver that is gone would block its own drain. With a claim of two devices it makes no difference."""
    names = tuple([f"gpu-{number}" for number in range(devices)])
    world = evicting(half({name: (taint(),) for name in names}), claim("pod", devices=names), pod(), breaker=NO_BREAKER)
    assert world.after(30) == []
    world.add(rule(selector=DeviceSelector(driver=DRIVER)))
    assert world.after(1) == ["pod"]


def test_taint_that_is_due_before_a_rule_does_not_hurry_it() -> None:
    world = evicting(breaker=NO_BREAKER)
    world.add(half({"gpu-0": (taint(key="health"),)}), claim("pod", tolerates(30)), pod(), rule())
    assert world.after(29) == []
    assert world.after(2) == ["pod"]


def test_request_that_waits_while_the_pool_is_published_again_is_not_sent() -> None:
    world = published()
    world.remove(world.pod("pod"))
    world.cluster.while_connecting.append(lambda: world.change(world.inventory.slices["slice"], half({"gpu-1": ()})))
    world.add(pod())
    world.advance(30)
    assert world.cluster.requests == []


def test_other_members_of_a_gang_do_not_wait_for_the_pool_of_one() -> None:
    world = evicting(half({"gpu-0": (taint(key="health"),)}), claim("a"), pod("a", gang="train"), breaker=NO_BREAKER)
    world.add(claim("b", devices=("gpu-b",), pool="node-1"), pod("b", gang="train"))
    world.add(rule(selector=DeviceSelector(driver=DRIVER, pool="node-1")))
    assert world.after(1) == ["b"]
