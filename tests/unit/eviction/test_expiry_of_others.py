"""A rule that expires breaks no gang that it does not concern; one that a wrong clock let expire acts again."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import rule, using
from tests.unit.eviction.test_expired_rules import Refusing, expiring, pods
from tests.unit.eviction.world import World, evicting
from webhook.api.meta import format_time
from webhook.api.rules import EXPIRES_AT, DeviceSelector


@pytest.mark.parametrize("count", [1, 200])
def test_gang_goes_as_a_whole_while_another_rule_expires(count: int) -> None:
    world = evicting(rate=0.1, burst=1, lingering=True)
    world.add(*using("gang-0", "gang-1", "gang-2", "gang-3", gang="g"))
    world.add(*using(*[f"other-{number}" for number in range(count)], on="gpu-9", hold="held"))
    soon = {EXPIRES_AT: format_time(NOW + timedelta(seconds=1))}
    world.add(rule("other", selector=DeviceSelector(DRIVER, device="gpu-9"), annotations=soon))
    world.add(rule(selector=DeviceSelector(DRIVER, device="gpu-0")))
    world.catch_up()
    world.cluster.while_connecting.extend([lambda: None, lambda: world._move(1.5)])
    unit = world.worker.take()
    assert unit is not None
    asyncio.run(world.worker.evict(unit))
    assert world.evicted == ["gang-0", "gang-1", "gang-2", "gang-3"]


def set_clock(world: World, seconds: float) -> None:
    """As the worker finds out."""
    world.clock.wall += timedelta(seconds=seconds)
    world.worker.requeue_waiting()
    world.worker._core.rules.add("rule")
    world.settle()


def ahead_for_a_while(world: World) -> None:
    """The clock is two hours ahead, and right again before the inventory may be acted on."""
    world.trusted = False
    set_clock(world, 7200)
    world.advance(5)
    set_clock(world, -7200)
    world.trusted = True


def test_rule_is_not_reported_as_done_once_a_clock_that_was_past_its_expiry_is_right() -> None:
    world = evicting(*pods(hold="wait"), expiring(3600))
    world.advance(30)
    ahead_for_a_while(world)
    before = len(world.cluster.writes)
    world.advance(30)
    assert {reason for _, _, reason, _ in world.cluster.writes[before:]}.isdisjoint({"Completed", "NothingToDo"})


def test_rule_expires_in_time_once_a_clock_that_was_past_its_expiry_is_right() -> None:
    world = evicting(*pods(), expiring(3600), cluster=Refusing, rate=0.0005, burst=1)
    ahead_for_a_while(world)
    world.advance(60)
    world.cluster.condition_error = "forbidden"
    before = len(world.after(3600 - 65))
    assert before
    assert len(world.after(3600)) == before
