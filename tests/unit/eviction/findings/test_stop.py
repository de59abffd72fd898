"""How long the end of the process takes, and what is still written then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.unit.eviction.hurried import LoopClock, at_work, hurry
from tests.unit.eviction.objects import claim, pod, rule, tolerates
from tests.unit.eviction.world import FREE, FakeCluster, World
from webhook.config.evict import parse_evict
from webhook.daemons.evict import Worker
from webhook.eviction.modes import Mode
from webhook.flowcontrol.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from webhook.api.rules import Condition, DeviceTaintRule
    from webhook.eviction.ports import PodRef, WriteFailure

STOP_SECONDS = 10.0
"""How long evictions may still take after SIGTERM: the lease has to be given back within 30 s."""
CONDITION_SECONDS = 5.0
"""How long conditions may be written after that."""


class Busy(FakeCluster):
    """An API server that asks for a pause of 30 s, and answers late."""

    throttle: Throttle
    answer_seconds = 0.0

    async def prepare(self, pod: PodRef, *, delete: bool, unsure: bool) -> bool:
        await asyncio.sleep(self.throttle.delay_seconds())
        return await super().prepare(pod, delete=delete, unsure=unsure)

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
        await asyncio.sleep(self.answer_seconds)
        return await super().set_conditions(rule, conditions)


def busy() -> tuple[World, Busy]:
    world = World(Mode.REPLACEMENT, FREE, clock=LoopClock(), cluster=Busy)
    assert isinstance(world.cluster, Busy)
    world.cluster.throttle = Throttle(100, 200, world.clock.seconds)
    return world, world.cluster


async def seconds_to_stop(world: World) -> float:
    before = world.clock.seconds()
    await world.worker.stop()
    return world.clock.seconds() - before


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="eviction.md M11")
def test_eviction_that_waits_for_its_turn_does_not_delay_the_end() -> None:
    """M11: an eviction that waits for the rate limit is dropped at SIGTERM, however long the wait would be."""

    async def test() -> None:
        world, server = busy()
        server.throttle.pause(30)
        async with at_work(world):
            world.add(claim("pod"), pod("pod"), rule())
            await asyncio.sleep(0.5)
            assert await seconds_to_stop(world) <= STOP_SECONDS

    hurry(test())


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="eviction.md M11")
def test_last_conditions_are_written_in_bounded_time() -> None:
    """M11: the last conditions of six rules are written at the same time, and for five seconds at most."""

    async def test() -> None:
        world, server = busy()
        pods = [pod(f"pod-{number}") for number in range(6)]
        async with at_work(world):
            for number, each in enumerate(pods):
                world.add(claim(each.meta.name, tolerates(3600)), each, rule(f"rule-{number}"))
            await asyncio.sleep(30)
            world.remove(*pods)
            server.answer_seconds = 10.0
            assert await seconds_to_stop(world) <= CONDITION_SECONDS + 1

    hurry(test())


def test_stage_of_a_worker_that_lost_its_lease_writes_no_last_conditions(tmp_path: Path) -> None:
    """M1: a worker that ends because it lost its lease writes no conditions."""
    world = World(Mode.REPLACEMENT, FREE)
    waits = pod("pod")
    world.add(claim("pod", tolerates(3600)), waits, rule())
    world.advance(20)
    world.remove(waits)
    world.cluster.writes.clear()

    async def test() -> None:
        lease = ["--leader-elect", "--leader-elect-lease=ns/evict"]
        worker = Worker(parse_evict("evict", [f"--kubeconfig={tmp_path / 'kubeconfig'}", *lease], {}))
        worker.stages()
        worker._controller = world.worker
        world.trusted = worker._trusted()
        await worker._end()

    asyncio.run(test())
    assert world.cluster.writes == []
