"""Who may act on a rule: the lease holder, by what it knows for certain."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.eviction.objects import claim, pod, rule, tolerates
from tests.unit.eviction.world import World, evicting
from webhook.api.rules import DeviceSelector


def test_new_leader_looks_at_rules_within_half_a_second() -> None:
    world = evicting()
    world.leads = False
    world.add(rule())
    world.advance(100)
    assert world.cluster.writes == []
    world.leads = True
    world.advance(0.5)
    assert world.condition("rule")[1] == "Waiting"


def test_worker_that_may_be_behind_writes_only_that_a_generation_is_looked_at() -> None:
    world = evicting(claim(), pod(hold="later"), rule())
    world.trusted = False
    world.catch_up()
    asyncio.run(world.worker.rules.sync("rule"))
    [first] = [write for write in world.cluster.writes if write[1] == "devicetaint.io/Eviction"]
    world.clock.elapsed += 60
    world.change(world.pod("pod"), pod())
    world.catch_up()
    asyncio.run(world.worker.rules.sync("rule"))
    assert [write for write in world.cluster.writes if write[1] == "devicetaint.io/Eviction"] == [first]
    world.trusted = True
    asyncio.run(world.worker.rules.sync("rule"))
    assert len([write for write in world.cluster.writes if write[1] == "devicetaint.io/Eviction"]) == 2


@pytest.mark.parametrize(("pending", "seconds"), [(True, 10.0), (False, 30.0)])
def test_rule_whose_pods_are_gone_is_looked_at_again_for_its_released_devices_alone(
    pending: bool,  # noqa: FBT001 -- a table's
    seconds: float,
) -> None:
    world = evicting()
    if pending:
        world.add(claim("pod", tolerates(3600)), pod())
    world.add(rule(selector=DeviceSelector(device="gpu-0")))
    world.advance(20)
    world.clock.elapsed += 20.0
    assert asyncio.run(world.worker.rules.sync("rule")) == seconds


@pytest.mark.parametrize(("seconds", "count"), [(3599.0, 1), (3600.0, 2)])
def test_event_about_a_rule_that_is_held_up_is_renewed_after_an_hour(seconds: float, count: int) -> None:
    world = evicting(claim(), pod(hold="later"), rule(), max_hold_seconds=86400)
    world.advance(20)
    world.clock.elapsed = world.worker.rules._states["uid-rule"].last_event_at + seconds
    asyncio.run(world.worker.rules.sync("rule"))
    world.settle()
    assert world.told("EvictionHeld").count("rule") == count


def sync_at(world: World, seconds: float) -> float | None:
    """Looks at the rule so many seconds after the beginning."""
    world.catch_up()
    world.clock.elapsed = 1000.0 + seconds
    return asyncio.run(world.worker.rules.sync("rule"))


@pytest.mark.parametrize(
    ("seconds", "pending", "left"),
    [(9.75, "1 pod pending", 0.25), (10.0 - 1e-9, "2 pods pending", 10.0), (10.0, "2 pods pending", 10.0)],
)
def test_condition_is_written_again_ten_seconds_after_the_last_time(seconds: float, pending: str, left: float) -> None:
    """A wait that is too short to be added to the time is none."""
    world = evicting(claim("pod", tolerates(3600)), pod(), rule())
    world.settle()
    world.add(claim("more", tolerates(3600)), pod("more"))
    assert sync_at(world, seconds) == left
    assert pending in world.condition("rule")[2]


@pytest.mark.parametrize(("seconds", "reason"), [(4.5, "Waiting"), (5.0, "NothingToDo")])
def test_allocations_are_known_five_seconds_after_the_rule_was_seen(seconds: float, reason: str) -> None:
    world = evicting(rule(), condition_seconds=0.0)
    sync_at(world, 0.0)
    sync_at(world, seconds)
    assert world.condition("rule")[1] == reason


@pytest.mark.parametrize(
    ("selector", "seconds", "left"),
    [
        pytest.param(DeviceSelector(device_class_name="gpu"), 4.5, 0.5, id="when allocations are known"),
        pytest.param(DeviceSelector(device="gpu-0"), 5.0, 3.0, id="they are known"),
        pytest.param(DeviceSelector(device="gpu-0"), 5.5, 3.0, id="they have been known"),
    ],
)
def test_rule_is_looked_at_again_when_its_condition_may_differ(
    selector: DeviceSelector, seconds: float, left: float
) -> None:
    """Nothing is known of the devices of the first one, and the others have a pod that is not due."""
    world = evicting(claim("pod", tolerates(3600)), pod(), rule(selector=selector), condition_seconds=3.0)
    sync_at(world, 0.0)
    assert sync_at(world, seconds) == left
