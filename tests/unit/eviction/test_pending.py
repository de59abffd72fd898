"""What hits more pods than one turn of the loop can plan: time slices, and that nobody goes before all is decided."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from tests.unit.eviction.hurried import LoopClock, at_work, hurry
from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates
from tests.unit.eviction.test_order import CASES, Case
from tests.unit.eviction.world import FREE, FakeCluster, World
from webhook.eviction import planner
from webhook.eviction.core import PendingSet
from webhook.eviction.modes import Mode
from webhook.eviction.ports import OwnerLimit
from webhook.eviction.ready_queue import Idle, ReadyPod, ReadyQueue
from webhook.policy.model import EvictionProfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.api.rules import Condition, DeviceTaintRule
    from webhook.eviction.ports import WriteFailure

MANY = 600
DEADLINE_SECONDS = 20.0


def behind(world: World) -> bool:
    return world.worker.backlog.behind


def test_things_are_in_a_backlog_once() -> None:
    backlog = PendingSet()
    backlog.add("abc")
    backlog.add("bcd")
    assert len(backlog) == 4
    taken = [*backlog.take(3), *backlog.take(3)]
    assert sorted(taken) == ["a", "b", "c", "d"]
    assert backlog.take(3) == []


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_in_slices_the_same_is_planned(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether what came before is decided or not when something new comes."""
    monkeypatch.setattr(planner, "_AT_ONCE_MOST", -1)
    monkeypatch.setattr(planner, "_BATCH_SIZE", 1)
    for caught_up in (False, True):
        world = World(case.mode)
        world.clock.step = 0.004
        for old, new in ((None, each) for each in case.before):
            world.change(old, new)
        for change in [change for event in case.events for change in event]:
            if caught_up:
                world.worker.catch_up()
            world.change(*change)
        world.catch_up()
        assert world.planned == case.planned


def test_many_pods_are_not_planned_in_one_go() -> None:
    world = World(Mode.REPLACEMENT, FREE)
    for number in range(MANY):
        world.add(claim(f"p{number}"), pod(f"p{number}"))
    world.clock.step = 0.002
    world.add(rule())
    assert behind(world)
    slices = 0
    while behind(world):
        world.worker.catch_up()
        slices += 1
    assert slices >= 5
    assert len(world.planned) == MANY


class LateConditions(FakeCluster):
    """An API server that takes a minute to write conditions."""

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
        await asyncio.sleep(60.0)
        return await super().set_conditions(rule, conditions)


def test_many_pods_are_evicted_as_soon_as_all_are_planned() -> None:
    """Also if nothing else happens then that would wake the worker, such as a change of the rule."""

    async def test() -> None:
        world = World(Mode.REPLACEMENT, FREE, clock=LoopClock(), cluster=LateConditions)
        async with at_work(world):
            await asyncio.sleep(1.0)
            for number in range(MANY):
                world.add(claim(f"p{number}"), pod(f"p{number}"))
            world.add(rule())
            assert behind(world)
            await asyncio.sleep(1.0)
            assert len(world.evicted) == MANY

    hurry(test())


async def impatient(world: World) -> None:
    """Wakes everybody who waits for a turn, again and again."""
    while True:
        world.worker._evictor.wake()
        await asyncio.sleep(0)


def test_nobody_goes_and_nothing_is_said_before_all_is_decided() -> None:
    """Of many pods the first to go is the one of the lowest priority, in whatever order they were looked at."""

    async def test() -> None:
        world = World(Mode.REPLACEMENT, EvictionProfile(rate=0.01, burst=1, per_owner_unavailable=None))
        world.clock.real = True
        priorities = list(range(MANY))
        random.Random(1).shuffle(priorities)
        for number, priority in enumerate(priorities):
            world.add(claim(f"p{number}"), pod(f"p{number}", priority=priority))
        lowest = f"p{priorities.index(0)}"
        later = claim("later", tolerates(60))
        world.worker.backlog.timeslice._seconds = 0.0005
        tasks = [asyncio.create_task(world.worker.run()), asyncio.create_task(impatient(world))]
        await asyncio.sleep(0)
        world.add(later, pod("later", priority=-1), rule())
        assert behind(world)
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not world.evicted or not world.cluster.writes:  # noqa: ASYNC110 -- any state
                await asyncio.sleep(0.001)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert world.evicted == [lowest]
        counted = int(world.condition("rule", "EvictionInProgress")[2].split()[0])
        assert counted in (MANY, MANY + 1)  # the one that went is among them, or not any more

    asyncio.run(test())


def test_rule_is_not_called_done_while_somebody_may_have_come() -> None:
    """Counting takes turns with the rest, and who comes meanwhile is not counted."""

    async def test() -> None:
        world = World(Mode.REPLACEMENT, FREE)
        for number in range(8):
            world.add(claim(f"d{number}"), owned(f"d{number}", kind="DaemonSet"))
        world.add(rule())
        world.clock.elapsed += 60
        world.clock.step = 0.004
        counting = asyncio.create_task(world.worker.rules.sync("rule"))
        await asyncio.sleep(0)
        assert not counting.done()
        world.clock.step = 0.0
        world.add(claim("late", tolerates(60)), pod("late"))
        assert (await counting, world.cluster.writes) == (0.2, [])
        await world.worker.rules.sync("rule")
        assert world.condition("rule")[:2] == ("True", "Waiting")

    asyncio.run(test())


def test_line_that_nobody_may_leave_is_looked_at_in_pieces() -> None:
    class Doors:
        asked = 0

        def begin_pass(self) -> None:
            pass

        def wait_seconds(self, group: object, now: float) -> float:  # noqa: ARG002 -- the port's
            return 0.0

        def blocked_by(self, item: ReadyPod, now: float) -> OwnerLimit | None:  # noqa: ARG002 -- the port's
            self.asked += 1
            return None if item.uid == "2400" else OwnerLimit("owner", 0)

        def reserve(self, item: ReadyPod, now: float) -> None:
            pass

    doors = Doors()
    ready = ReadyQueue(doors)
    for number in range(2500):
        ready.push(ReadyPod(str(number), (0, 0, number, ""), "group"))
    taken, turns = ready.pop(0.0), 1
    while taken == Idle(0.0):
        assert doors.asked <= turns * 1000
        taken, turns = ready.pop(0.0), turns + 1
    assert (taken, turns) == ("2400", 3)
    for number in range(2500):
        ready.discard(str(number))
    assert (len(ready), ready.pop(0.0)) == (0, Idle(float("inf")))
    ready.push(ReadyPod("2400", (0, 0, 0, ""), "group"))
    assert ready.pop(0.0) == "2400"


def test_rate_that_changes_moves_everybody_in_line() -> None:
    world = World(Mode.REPLACEMENT, EvictionProfile(rate=1, burst=1, per_owner_unavailable=None))
    for number in range(MANY):
        world.add(claim(f"p{number}"), pod(f"p{number}"))
    slow = rule()
    world.add(slow)
    world.settle()
    assert len(world.evicted) == 1
    fast = rule(annotations={"devicetaint.io/evictions-per-second": "100"})
    world.change(slow, fast)
    assert behind(world)
    world.advance(2.5)
    assert len(world.evicted) >= 200


def test_leader_that_stops_decides_what_is_left_and_says_it() -> None:
    async def test() -> None:
        world = World(Mode.REPLACEMENT, FREE)
        for number in range(MANY):
            world.add(claim(f"p{number}", tolerates(60)), pod(f"p{number}"))
        world.add(rule())
        assert behind(world)
        await world.worker.stop()
        assert not behind(world)
        assert world.condition("rule")[2].startswith(f"0 pods evicted; {MANY} pods pending in 1 namespace")

    asyncio.run(test())
