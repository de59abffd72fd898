"""What changes while a pass is made in steps, or while a request is on its way.

Whatever happens between two steps, no pod is taken twice, none goes that would not by what is known as its request is
written, and a pod that may go is found by a later look.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, crowd, owned, pod, rule, tolerates, using
from tests.unit.eviction.slow import UNSURE
from tests.unit.eviction.world import BLUNT, CHANGED, FREE, Budget, World, evicting
from webhook.api.claims import Consumer
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, PodClaim, PodGroup
from webhook.api.rules import CONFIRM_IMPACT
from webhook.eviction import line, plan, planner
from webhook.eviction.modes import Mode
from webhook.eviction.pod_plan import Unit
from webhook.eviction.ports import Ceiling, EvictionOutcome, PodRef
from webhook.eviction.profiles import Profiles
from webhook.policy.model import EvictionProfile, NamespaceMatch

SLOWLY = EvictionProfile(rate=1, burst=1, per_owner_unavailable=None)


def between_steps(number: int, world: World, meanwhile: Callable[[], None]) -> bool:
    """Makes the plan, and does something after this many of its steps; returns whether it has as many."""
    done = 0
    for _ in world.worker.planner.steps():
        done += 1
        if done == number:
            meanwhile()
    return done >= number


def at_each_step(play: Callable[[int], bool]) -> None:
    """Plays with something that happens after one step of a plan, after two, and so on to its end."""
    steps = 1
    while play(steps):
        steps += 1
    assert steps > 5


def evict(world: World, unit: Unit | None) -> None:
    assert unit is not None
    asyncio.run(world.worker.evict(unit))


def rest(world: World) -> Iterator[Unit]:
    while (unit := world.worker.take()) is not None:
        yield unit


# --- while a plan is made ------------------------------------------------------------------------


def test_no_pod_is_taken_twice_although_pods_are_taken_at_each_step() -> None:
    world = evicting(*crowd(600), rule(), lingering=True)
    world.catch_up()
    world.worker.requeue_waiting()
    taken = [world.worker.take() for _ in world.worker.planner.steps()]
    uids = [unit.members[0].uid for unit in (*taken, *rest(world)) if unit is not None]
    assert len(uids) == len(set(uids)) == 600


def test_policy_may_lose_a_profile_at_any_step() -> None:
    def play(number: int) -> bool:
        world = World(Mode.REPLACEMENT, structs.replace(FREE, priority_at_most=-1), FREE)
        world.add(claim("a"), pod("a"), rule())

        def lose() -> None:
            world.profiles = Profiles((FREE,))
            world.worker.replan_all()

        there = between_steps(number, world, lose)
        assert world.settled() == ["a"]
        return there

    at_each_step(play)


def test_plan_that_was_begun_before_the_policy_changed_stops_no_rule() -> None:
    def play(number: int) -> bool:
        most = [1]
        world = evicting(*crowd(2), rule(), ceiling_of=lambda _: Ceiling(most[0]))

        def raise_it() -> None:
            most[0] = 2
            world.worker.replan_all()

        there = between_steps(number, world, raise_it)
        assert len(world.after(60)) == (2 if there else 0), number
        return there

    at_each_step(play)


@pytest.mark.parametrize("along", [False, True])
def test_pods_that_are_taken_and_gone_at_any_step_are_counted(monkeypatch: pytest.MonkeyPatch, *, along: bool) -> None:
    """What the plan says of a rule is what its ceiling goes by until the next plan of all pods."""
    monkeypatch.setattr(planner, "WHOLE_MOST", 0)
    monkeypatch.setattr(plan, "_STEP", 2)

    def play(number: int) -> bool:
        world = evicting(*crowd(6), ceiling_of=lambda _: Ceiling(12))
        if along:
            group = PodGroup(ObjectMeta(name="ring", namespace="ml", uid="uid-ring"), ALL, None)
            world.add(group, claim("y"), pod("y", pod_group="ring"))
            world.add(*[pod(f"z{each}", pod_group="ring", claims=()) for each in range(5)])
        world.add(rule())
        world.catch_up()
        world.worker._core.affected.touch_all()

        def go() -> None:
            for _ in range(4):
                evict(world, world.worker.take())

        there = between_steps(number, world, go)
        seen = world.worker._core.ceilings._seen["uid-rule"].pods
        assert seen == (12 if along else 6), number
        return there

    at_each_step(play)


def test_pod_that_goes_at_any_step_is_counted() -> None:
    """Its eviction counts against the ceiling even if it leaves between the start of a plan and its turn in it."""

    def play(number: int) -> bool:
        world = evicting(claim("a"), pod("a"), claim("b"), pod("b"), rule(), ceiling_of=lambda _: Ceiling(2))
        world.catch_up()
        unit, steps = world.worker.take(), world.worker.planner.steps()

        def meanwhile() -> None:
            world.add(claim("c"), pod("c"))
            for _ in range(number - 1):
                next(steps, None)

        world.cluster.while_connecting.append(meanwhile)
        evict(world, unit)
        there = next(steps, 0) is None
        for _ in steps:
            pass
        for other in rest(world):
            evict(world, other)
        assert len(world.after(60)) <= 2, number
        return there

    at_each_step(play)


def test_look_that_is_due_while_another_line_is_made_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "_STEP", 1)

    def play(number: int) -> bool:
        world = evicting(*using(*"ab", make=owned), rule(), per_owner_unavailable=1, lingering=True)
        assert world.settled() == ["a"]
        world.worker.requeue_waiting()
        there = between_steps(number, world, lambda: world.add_budget(Budget("b", status=5, allows_at=0)))
        assert world.settled() == (["a", "b"] if there else ["a"]), number
        return there

    at_each_step(play)


@pytest.mark.parametrize("mode", [Mode.REPLACEMENT, Mode.OBSERVE])
@pytest.mark.parametrize("uid", ["", "uid-2"], ids=["gone", "replaced"])
def test_no_event_is_remembered_of_a_pod_that_goes_at_any_step(mode: Mode, uid: str) -> None:
    def play(number: int) -> bool:
        world = evicting(claim("a", tolerates(100)), pod("a"), rule(), mode=mode)

        def replace() -> None:
            world.remove(world.pod("a"))
            world.add(*([pod("a", uid=uid)] if uid else ()))

        there = between_steps(number, world, replace)
        world.advance(30)
        for each in list(world.inventory.pods.values()):
            world.remove(each)
        world.advance(700)
        assert not world.worker._core.recorder._last, number
        return there

    at_each_step(play)


def test_pod_that_takes_the_place_of_another_during_a_large_change_is_planned() -> None:
    """A pod of a StatefulSet looks as the one before it did."""
    world = evicting()
    first = pod("a", hold="release week", claims=(PodClaim("a-claim"),))
    users = tuple([Consumer("", "pods", "a", uid) for uid in ("uid-a", "uid-2")])
    world.add(claim("a", owner="", consumers=users), first, rule())
    world.advance(5)
    assert list(world.worker._core.plan.going) == ["uid-a"]
    world.worker._core.affected.mark([f"ml/none-{number}" for number in range(300)])
    world.edit(first, meta=structs.replace(first.meta, uid="uid-2"))
    world.advance(5)
    assert list(world.worker._core.plan.going) == ["uid-2"]


# --- while a request is on its way ---------------------------------------------------------------


def test_pod_is_not_deleted_by_a_profile_that_has_changed_since() -> None:
    world = evicting(claim("a"), pod("a"), rule(), base=BLUNT, budgets=[Budget(status=0)])
    world.catch_up()

    def meanwhile() -> None:
        world.profiles = Profiles((FREE,))
        world.worker.replan_all()

    world.cluster.while_connecting.append(meanwhile)
    evict(world, world.worker.take())
    assert world.cluster.requests == []


def verbs_past_the_deadline(world: World, waits_in: deque[Callable[[], None]]) -> list[str]:
    """How pods are asked for up to the first that is to be deleted past its budget; that request waits for minutes."""
    while world.clock.passed() < 100:
        world.catch_up()
        unit = world.worker.take()
        if unit is not None:
            late = not world.worker._core.room.asked_by(unit)
            waits_in.extend([lambda: world._move(300)] * late)
            evict(world, unit)
            if late:
                return [verb for verb, _, _ in world.cluster.requests]
        world._move(max(world._next_wait(), 0))
    pytest.fail("the deadline is not over")


def test_pod_is_not_deleted_for_refusals_that_are_old_by_then() -> None:
    """It waits for the client's rate limit."""
    world = evicting(deadline_seconds=20.0, delete_after_deadline=True, budgets=[Budget()])
    world.add(claim("a"), pod("a"), rule())
    assert "delete" not in verbs_past_the_deadline(world, world.cluster.meanwhile)


def test_ceiling_that_is_lowered_stops_a_request_on_its_way() -> None:
    most = [3]
    world = evicting(*crowd(3), rule(), base=SLOWLY, ceiling_of=lambda _: Ceiling(most[0]))
    world.catch_up()

    def lower() -> None:
        most[0] = 1
        world.worker.replan_all()

    world.cluster.while_connecting.append(lower)
    evict(world, world.worker.take())
    assert world.cluster.requests == []


@pytest.mark.parametrize("whole_most", [1000, 0], ids=["whole", "part"])
def test_confirmation_of_fewer_pods_counts_at_once(whole_most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "WHOLE_MOST", whole_most)
    most = {"three": 3, "one": 1}
    world = World(
        Mode.REPLACEMENT, SLOWLY, ceiling_of=lambda rule: Ceiling(most[rule.meta.annotations[CONFIRM_IMPACT]])
    )
    world.add(*crowd(3), rule(annotations={CONFIRM_IMPACT: "three"}))
    assert len(world.settled()) == 1
    known = world.inventory.rules["rule"]
    world.edit(known, meta=structs.replace(known.meta, annotations={CONFIRM_IMPACT: "one"}))
    assert len(world.after(60)) == 1


def test_rule_that_comes_while_a_request_waits_for_its_connection_counts_the_pod() -> None:
    world = evicting(claim("a"), pod("a"), rule())
    world.catch_up()
    world.cluster.while_connecting.append(lambda: world.add(rule("other", uid="uid-other")))
    evict(world, world.worker.take())
    tallies = [world.worker._core.ceilings.tally_of(each).total for each in world.inventory.rules.values()]
    assert tallies == [1, 1]


def test_pod_that_something_else_deletes_takes_a_place_at_once() -> None:
    world = evicting(claim("a"), pod("a"), claim("b"), pod("b"), rule(), overall=1)
    world.catch_up()
    world.edit(world.pod("b"), deleting=True)
    for unit in rest(world):
        evict(world, unit)
    assert world.cluster.requests == []


def test_pod_whose_request_had_worked_is_not_taken_again() -> None:
    """It got no answer, so the pod is in line once more when the watch shows that it is on its way out."""
    world = evicting(claim("a"), pod("a", gang="train"), rule(), answers=[UNSURE])
    world.catch_up()
    evict(world, world.worker.take())
    world._move(1)
    world.catch_up()
    assert "uid-a" in world.worker._core.line
    world.edit(world.pod("a"), deleting=True)
    assert world.worker.take() is None
    world.settle()
    world.remove(world.pod("a"))
    world.advance(100)
    ledger = world.worker._core.ledger
    assert (ledger.taken, ledger.begun, dict(ledger._units)) == ({}, set(), {})


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_remembered_of_a_pod_that_is_gone_when_its_answer_comes(*, replaced: bool) -> None:
    world = evicting(claim("a"), pod("a"), rule())
    world.catch_up()

    async def conflict(_: PodRef, __: int | None) -> EvictionOutcome:
        world.remove(world.pod("a"))
        if replaced:
            world.add(pod("a", uid="uid-2"))
        return CHANGED

    world.cluster.evict = conflict  # type: ignore[assignment, method-assign]
    evict(world, world.worker.take())
    world.advance(700)
    assert not world.worker._core.ledger.failures


# --- what wakes the plan -------------------------------------------------------------------------


def test_pod_goes_once_its_group_keeps_its_claim_reserved_no_longer() -> None:
    world = evicting()
    group = PodGroup(ObjectMeta(name="ring", namespace="ml", uid="uid-ring"), SINGLE, None)
    reserved = (Consumer("scheduling.k8s.io", "podgroups", "ring", "uid-ring"),)
    world.add(group, claim("a", consumers=reserved, owner="uid-ring", group="ring"), pod("a", pod_group="ring"), rule())
    assert world.after(20) == []
    world.edit(world.inventory.claims["ml/a-claim"], reserved_for=(Consumer("", "pods", "a", "uid-a"),))
    assert world.after(60) == ["a"]


def test_worker_that_only_observes_rests_after_a_hold_has_lasted() -> None:
    world = evicting(claim("a"), pod("a", hold="checkpoint"), rule(), mode=Mode.OBSERVE, max_hold_seconds=1e6)
    world.settle()
    world.worker.requeue_waiting()
    world.settle()
    world._move(3601)
    passes = 0
    while world.is_due and passes < 50:
        world.catch_up()
        passes += 1
    assert passes < 50


@pytest.mark.parametrize(("before", "after"), [(3600, 0), (0, 600)], ids=["less time", "more time"])
def test_pod_that_gets_other_time_to_terminate_counts_as_stuck_by_that(before: int, after: int) -> None:
    world = evicting(overall=1, stuck_after_seconds=60.0, lingering=True)
    world.add(claim("a"), pod("a"), claim("b"), pod("b"), rule())
    now = world.clock.wall
    world.edit(world.pod("a"), deleting=True, grace_ends=now + timedelta(seconds=before))
    assert world.settled() == []
    world.edit(world.pod("a"), grace_ends=now + timedelta(seconds=after))
    assert world.after(after + 59) == []
    assert world.after(2) == ["b"]


@pytest.mark.parametrize("how", ["labels of the namespace", "policy"])
def test_pod_counts_as_stuck_by_the_profile_that_it_has_now(how: str) -> None:
    patient = structs.replace(FREE, overall=1, stuck_after_seconds=7200.0)
    quick = structs.replace(patient, stuck_after_seconds=60.0)
    world = World(Mode.REPLACEMENT, structs.replace(quick, namespaces=NamespaceMatch(labels=(("fast", "y"),))), patient)
    world.cluster.lingering = True
    world.add(claim("a"), pod("a"), claim("b"), pod("b"), rule())
    world.settle()
    world.edit(world.pod("a"), grace_ends=world.clock.wall)
    world.settle()
    if how == "policy":
        world.change_policy(quick)
    else:
        world.relabel("ml", fast="y")
    assert world.after(300) == ["a", "b"]
