"""Pods that a disruption budget blocks, the requests that they cost, and the pods that wait behind them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.builders import DRIVER, NOW
from tests.unit.eviction.hurried import LoopClock, at_work, hurried
from tests.unit.eviction.objects import owned, rule, using
from tests.unit.eviction.world import Budget, FakeCluster, World, evicting
from webhook.api.rules import DeviceSelector
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, PodRef
from webhook.flowcontrol.loop import Throttle
from webhook.policy.model import EvictionProfile

PROBE_SECONDS = 5.0
"""How often one budget may be asked at most."""


@pytest.mark.parametrize("blocked", [30, 120])
def test_pods_blocked_by_a_budget_do_not_delay_pods_that_can_be_evicted(blocked: int) -> None:
    world = evicting()
    world.cluster.request_seconds = 0.1
    world.add_budget(Budget("blocked"))
    world.add(*using(*[f"blocked-{number:03}" for number in range(blocked)], on="{}", pool="node-1"))
    world.add(rule("first", selector=DeviceSelector(driver=DRIVER, pool="node-1")))
    world.advance(15)
    world.add(*using(*[f"free-{number}" for number in range(5)], on="{}", pool="node-2"))
    due = NOW + timedelta(seconds=15)
    world.add(rule("second", selector=DeviceSelector(driver=DRIVER, pool="node-2"), added=due))
    assert sorted(world.after(2)) == [f"free-{number}" for number in range(5)]


def test_budget_that_allows_one_eviction_at_a_time_gets_few_requests_that_it_refuses() -> None:
    world = World(Mode.REPLACEMENT, EvictionProfile())
    world.add_budget(Budget(every_seconds=5.7, allows_at=0.0))
    world.add(*using(*[f"pod-{number:03}" for number in range(21)], on="{}", make=owned), rule())
    world.advance(120)
    refused = len(world.cluster.requests) - len(world.evicted)
    assert refused <= 120 / PROBE_SECONDS + 1


class Throttled(FakeCluster):
    """Requests wait for their turn, ten a second, and take twelve milliseconds."""

    throttle: Throttle

    async def prepare(self, pod: PodRef, *, delete: bool, unsure: bool) -> bool:
        await asyncio.sleep(self.throttle.delay_seconds())
        return await super().prepare(pod, delete=delete, unsure=unsure)

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
        await asyncio.sleep(0.012)
        return await super().evict(pod, grace_period_seconds)


@hurried
async def test_requests_for_blocked_pods_do_not_use_up_the_limit_on_requests() -> None:
    """H1: with 32 evictions at the same time and a limit on requests, pods without a budget are evicted at once."""
    world = evicting(clock=LoopClock(), cluster=Throttled)
    assert isinstance(world.cluster, Throttled)
    world.cluster.throttle = Throttle(10, 20, world.clock.seconds)
    world.add_budget(Budget("blocked"))
    async with at_work(world):
        world.add(*using(*[f"blocked-{number:03}" for number in range(120)], on="{}", pool="node-1"))
        world.add(rule("first", selector=DeviceSelector(driver=DRIVER, pool="node-1")))
        await asyncio.sleep(15)
        world.add(*using(*[f"free-{number}" for number in range(5)], on="{}", pool="node-2"))
        world.add(rule("second", selector=DeviceSelector(driver=DRIVER, pool="node-2"), added=world.clock.now()))
        await asyncio.sleep(2)
    assert sorted(world.evicted) == [f"free-{number}" for number in range(5)]
