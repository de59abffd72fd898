"""When pods are planned again, a large change in pieces, and that nobody goes before all of it is decided."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.unit.eviction.hurried import LoopClock, at_work, hurried, looped
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, tolerates, using
from tests.unit.eviction.test_order import CASES, Case
from tests.unit.eviction.world import FREE, FakeCluster, World, evicting
from webhook.api.rules import Condition, DeviceTaintRule
from webhook.eviction import affected, controller, plan
from webhook.eviction.line import Line, Taking
from webhook.eviction.modes import Mode
from webhook.eviction.pod_plan import Wait
from webhook.eviction.ports import WriteFailure
from webhook.eviction.profiles import Profiles
from webhook.eviction.room import Room
from webhook.flowcontrol.workqueue import TimeSlice
from webhook.inventory.gangs import is_leaving
from webhook.policy.match import NamespaceFacts
from webhook.policy.model import EvictionProfile, NamespaceMatch

MANY = 600
DEADLINE_SECONDS = 20.0


def behind(world: World) -> bool:
    """Whether some of what has changed is still to be followed."""
    return world.worker._core.affected.pending > 0


def many(world: World) -> None:
    """Pods with a device each, which a rule hits."""
    world.add(*using(*[f"p{number}" for number in range(MANY)]), rule())


def due_of(world: World) -> dict[str, float]:
    """When the pods of the plan are due, in seconds from now, by name."""
    made, pods, now = world.worker._core.plan, world.inventory.pods, world.clock.wall
    there = {key: eviction for key, eviction in made.hit.items() if key in pods and not is_leaving(pods[key])}
    assert {pods[key].meta.uid for key in there} == {*made.going, *made.waits}
    return {key.partition("/")[2]: (eviction.due - now).total_seconds() for key, eviction in there.items()}


# --- in pieces ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("when", ["later", "each time", "meanwhile"])
def test_in_pieces_the_same_is_planned(case: Case, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether what came before is decided, or not, or half of it, when something new comes."""
    monkeypatch.setattr(controller, "AT_ONCE_MOST", -1)
    monkeypatch.setattr(affected, "_STEP", 1)
    monkeypatch.setattr(plan, "_STEP", 1)
    world = World(case.mode)
    steps = world.worker.planner.steps()
    for old, new in [*[(None, each) for each in case.before], *[change for event in case.events for change in event]]:
        world.change(old, new)
        if when == "each time":
            world.catch_up()
        elif when == "meanwhile":
            steps = steps if next(steps, steps) is None else world.worker.planner.steps()
    for _ in steps:
        pass
    while world.is_due:
        world.catch_up()
    assert world.planned == case.planned
    assert due_of(world) == case.planned


def test_many_pods_are_not_planned_in_one_go() -> None:
    world = evicting()
    many(world)
    assert behind(world)
    steps = 0
    for _ in world.worker.planner.steps():
        steps += 1
        assert steps > 5 or world.worker.take() is None
    assert steps >= 20
    assert len(world.planned) == len(world.worker._core.line) == MANY


class LateConditions(FakeCluster):
    """An API server that takes a minute to write conditions."""

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
        await asyncio.sleep(60.0)
        return await super().set_conditions(rule, conditions)


@pytest.mark.untraced
@hurried
async def test_many_pods_are_evicted_as_soon_as_all_are_planned() -> None:
    """Also if nothing else happens then that would wake the worker, such as a change of the rule."""
    world = evicting(clock=LoopClock(), cluster=LateConditions)
    async with at_work(world):
        await asyncio.sleep(1.0)
        many(world)
        assert behind(world)
        await asyncio.sleep(1.0)
        assert len(world.evicted) == MANY


async def impatient(world: World) -> None:
    """Wakes everybody who waits for a turn, again and again."""
    while True:
        world.worker._woken.set()
        await asyncio.sleep(0)


@looped
async def test_nobody_goes_and_nothing_is_said_before_all_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many pods the first to go is the one of the lowest priority, in whatever order they were looked at."""
    monkeypatch.setattr(controller, "TimeSlice", lambda clock: TimeSlice(0.0005, clock))
    world = World(Mode.REPLACEMENT, EvictionProfile(rate=0.01, burst=1, per_owner_unavailable=None))
    world.clock.real = True
    priorities = list(range(MANY))
    random.Random(1).shuffle(priorities)
    for number, priority in enumerate(priorities):
        world.add(claim(f"p{number}"), pod(f"p{number}", priority=priority))
    lowest = f"p{priorities.index(0)}"
    later = claim("later", tolerates(60))
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


@looped
async def test_rule_is_not_called_done_while_somebody_may_have_come() -> None:
    """Counting takes turns with the rest, and who comes meanwhile is not counted."""
    world = evicting(*using(*[f"d{number}" for number in range(8)], make=owned, kind="DaemonSet"), rule())
    world.catch_up()
    world.clock.elapsed += 60
    world.clock.step = 0.004
    counting = asyncio.create_task(world.worker.rules.sync("rule"))
    await asyncio.sleep(0)
    assert not counting.done()
    world.clock.step = 0.0
    world.add(claim("late", tolerates(60)), pod("late"))
    assert (await counting, world.cluster.writes) == (0.2, [])
    world.catch_up()
    await world.worker.rules.sync("rule")
    assert world.condition("rule")[:2] == ("True", "Waiting")


@looped
async def test_leader_that_stops_decides_what_is_left_and_says_it() -> None:
    world = evicting(*using(*[f"p{number}" for number in range(MANY)], after=60), rule())
    assert behind(world)
    await world.worker.stop()
    assert not behind(world)
    assert world.condition("rule")[2].startswith(f"0 pods evicted; {MANY} pods pending in 1 namespace")


# --- when ---------------------------------------------------------------------------------------


CHANGES: dict[str, tuple[Callable[[World], None], bool]] = {
    "nothing": (lambda _: None, False),
    "hold": (lambda world: world.edit(world.pod("pod"), hold="later"), True),
    "another rule": (lambda world: world.add(rule("more", key="example.com/more")), True),
    "no rule": (lambda world: world.remove(world.inventory.rules["rule"]), True),
    "no claim": (lambda world: world.remove(world.inventory.claims["ml/pod-claim"]), True),
    "no pod": (lambda world: world.remove(world.pod("pod")), True),
    "readiness": (lambda world: world.change(world.pod("pod"), pod(ready=False)), False),
    "a pod without devices": (lambda world: world.add(pod("other", claims=())), False),
    "a slice without taints": (lambda world: world.add(slice_of({"gpu-9": ()}, pool="other")), False),
    "time": (lambda world: world._move(100.0), False),
}


@pytest.mark.parametrize(("change", "due"), CHANGES.values(), ids=CHANGES)
def test_pods_are_planned_again_after_what_may_change_the_plan(change: Callable[[World], None], *, due: bool) -> None:
    world = evicting(claim(), pod(), rule(), mode=Mode.OBSERVE)
    world.catch_up()
    assert not world.is_due
    change(world)
    assert world.is_due is due


SPARED = structs.replace(FREE, namespaces=NamespaceMatch(labels=(("kind", "spared"),)), skips=True)


def wears(world: World, **labels: str) -> None:
    world.namespaces["ml"] = NamespaceFacts("ml", labels)
    world.worker.requeue_waiting("ml")


def follows(world: World, *profiles: EvictionProfile) -> None:
    world.profiles = Profiles(profiles)
    world.worker.replan_all()


def holds(world: World, text: str = "") -> None:
    world.holds = {"ml": text} if text else {}
    world.worker.requeue_waiting("ml")


def waits(world: World, hours: int) -> None:
    world.clock.wall += timedelta(hours=hours)
    world.worker.requeue_waiting()


NEWS: dict[str, tuple[Callable[[World], None], Callable[[World], None]]] = {
    "another policy": (
        lambda world: follows(world, structs.replace(FREE, skips=True)),
        lambda world: follows(world, FREE),
    ),
    "labels of the namespace": (lambda world: wears(world, kind="spared"), wears),
    "hold of the namespace": (lambda world: holds(world, "later"), holds),
    "another wall clock": (lambda world: waits(world, -1), lambda world: waits(world, 1)),
    "another pod": (lambda world: world.remove(world.pod("pod")), lambda world: world.add(pod())),
}


@pytest.mark.parametrize(("before", "news"), NEWS.values(), ids=NEWS)
@hurried
async def test_worker_acts_on_news_at_once(before: Callable[[World], None], news: Callable[[World], None]) -> None:
    world = World(Mode.REPLACEMENT, SPARED, FREE, clock=LoopClock())
    world.add(claim(), pod(), rule())
    before(world)
    async with at_work(world):
        await asyncio.sleep(2.5)
        assert world.evicted == []
        news(world)
        await asyncio.sleep(0.1)
        assert world.evicted == ["pod"]


@hurried
async def test_worker_acts_as_soon_as_a_pod_is_due() -> None:
    world = evicting(claim("pod", tolerates(5)), pod(), rule(), clock=LoopClock())
    async with at_work(world):
        await asyncio.sleep(6.0)
    [(_, _, at)] = world.cluster.calls
    assert at == pytest.approx(5.0, abs=0.1)


# --- how much work it is ------------------------------------------------------------------------


class Looks:
    """Counts the looks for a unit that may go, and the turns that the event loop gives to others."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_lines = 0
        self.at_limits = 0
        self.turns = 0
        take, closed_by = Line.take, Room.closed_by

        def counted_take(*args: Any) -> Taking:
            self.at_lines += 1
            return take(*args)

        def counted_closed_by(*args: Any) -> Wait | None:
            self.at_limits += 1
            return closed_by(*args)

        monkeypatch.setattr(Line, "take", counted_take)
        monkeypatch.setattr(Room, "closed_by", counted_closed_by)

    async def count_turns(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turns += 1


@pytest.mark.untraced
@hurried
async def test_news_wake_one_worker_and_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(monkeypatch)
    world = evicting(clock=LoopClock(), workers=32)
    many(world)
    async with at_work(world):
        await asyncio.sleep(1.0)
    assert len(world.evicted) == MANY
    assert looks.at_lines < 4 * MANY


def owners_of_two(profile: EvictionProfile) -> World:
    """Two pods of each owner, and one that comes last and has none."""
    world = evicting(base=profile, lingering=True)
    for number in range(MANY):
        for name in (f"a-{number}", f"b-{number}"):
            world.add(claim(name), owned(name, by=f"rs-{number}"))
    world.add(claim("last"), pod("last", priority=1), rule())
    world.catch_up()
    return world


def test_taking_a_pod_is_no_look_at_all_owners_whose_pods_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    world = owners_of_two(structs.replace(FREE, per_owner_unavailable=1))
    for _ in range(MANY):
        assert world.worker.take() is not None
    looks = Looks(monkeypatch)
    last = world.worker.take()
    assert last is not None
    assert [each.key for each in last.members] == ["ml/last"]
    assert world.worker.take() is None
    looks.at_limits = 0
    assert world.worker.take() is None
    assert looks.at_limits < MANY / 4


@looped
async def test_line_that_nobody_may_leave_is_looked_at_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each owner has a limit of its own, and all are closed."""
    world, looks = owners_of_two(structs.replace(FREE, per_owner_unavailable=0)), Looks(monkeypatch)
    others = asyncio.create_task(looks.count_turns())
    taken = await world.worker._next_unit()
    others.cancel()
    assert [each.key for each in taken.members] == ["ml/last"]
    assert looks.turns >= 2 * MANY / 1000


def test_no_pod_is_taken_twice_although_some_are_taken_while_a_plan_is_made() -> None:
    """They are taken by the plan before, and their requests have no answer yet."""
    world = evicting(lingering=True)
    many(world)
    world.catch_up()
    world.worker.requeue_waiting()
    taken = [world.worker.take() for _ in world.worker.planner.steps()]
    taken += iter(world.worker.take, None)
    uids = [unit.members[0].uid for unit in taken if unit is not None]
    assert len(uids) == len(set(uids)) == MANY
