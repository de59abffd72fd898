"""Who may act on a rule: the lease holder, by what it knows for certain."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, pod, rule, tolerates
from tests.unit.eviction.world import FREE, World
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, DeviceSelector
from webhook.eviction.modes import Mode


@pytest.mark.parametrize("trusted", [True, False])
def test_worker_that_does_not_lead_writes_no_rule(trusted: bool) -> None:  # noqa: FBT001 -- a table's
    world = World(Mode.REPLACEMENT, FREE)
    world.add(claim(), pod(), rule(annotations={EXPIRES_AT: format_time(NOW)}))
    before = world.inventory.rules["rule"]
    world.leads, world.trusted = False, trusted
    waits = [asyncio.run(world.worker.rules.sync("rule")) for _ in range(3)]
    assert len(set(waits)) == 1
    assert waits[0] is not None
    assert 0 < waits[0] <= 1
    assert world.inventory.rules["rule"] is before
    assert world.cluster.writes == []


def test_new_leader_looks_at_rules_within_half_a_second() -> None:
    world = World(Mode.REPLACEMENT, FREE)
    world.leads = False
    world.add(rule())
    world.advance(100)
    assert world.cluster.writes == []
    world.leads = True
    world.advance(0.5)
    assert world.condition("rule")[1] == "Waiting"


def test_worker_that_may_be_behind_writes_only_that_a_generation_is_looked_at() -> None:
    world = World(Mode.REPLACEMENT, FREE)
    world.add(claim(), pod(hold="later"), rule())
    world.trusted = False
    asyncio.run(world.worker.rules.sync("rule"))
    [first] = [write for write in world.cluster.writes if write[1] == "devicetaint.io/Eviction"]
    world.clock.elapsed += 60
    world.change(world.pod("pod"), pod())
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
    world = World(Mode.REPLACEMENT, FREE)
    if pending:
        world.add(claim("pod", tolerates(3600)), pod())
    world.add(rule(selector=DeviceSelector(device="gpu-0")))
    world.advance(20)
    world.clock.elapsed += 20.0
    assert asyncio.run(world.worker.rules.sync("rule")) == seconds


@pytest.mark.parametrize(("seconds", "count"), [(3599.0, 1), (3600.0, 2)])
def test_event_about_a_rule_that_is_held_up_is_renewed_after_an_hour(seconds: float, count: int) -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, max_hold_seconds=86400))
    world.add(claim(), pod(hold="later"), rule())
    world.advance(20)
    world.clock.elapsed = world.worker.rules._states["uid-rule"].last_event_at + seconds
    asyncio.run(world.worker.rules.sync("rule"))
    world.settle()
    assert world.told("EvictionHeld").count("rule") == count
