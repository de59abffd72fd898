"""When pods under a disruption budget may ask it, and for how long it counts as refusing."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.hurried import LoopClock, at_work, hurried
from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates, using
from tests.unit.eviction.world import BLOCKED, EVICTED, FAILED, FREE, Budget, FakeCluster, World, evicting
from webhook.api.rules import DeviceSelector
from webhook.eviction.modes import Mode
from webhook.eviction.pod_plan import Going, Unit
from webhook.eviction.ports import EvictionOutcome, PodRef
from webhook.eviction.upkeep import Attempt
from webhook.flowcontrol.loop import Throttle
from webhook.policy.model import EvictionProfile

PENDING = BLOCKED._replace(budget_pending=True)
SHORT = BLOCKED._replace(text="it allows too few")
WEB = (("app", "web"),)


class Bench:
    """Pods under one budget. A test takes units that may ask it now, and answers for the API server."""

    def __init__(self, pods: int = 9, *, status: int | None = None, gang: int = 0) -> None:
        """`gang`: so many more go together, and come after the single ones."""
        self.world = World(Mode.REPLACEMENT, structs.replace(FREE, delete_after_deadline=True))
        self.budget = Budget("web", status=status)
        self.world.add_budget(self.budget)
        for number in range(pods):
            self._add(f"web-{number}")
        for number in range(gang):
            self._add(f"web-of-gang-{number}", "ring")
        self.world.add(rule())
        self.world.catch_up()
        self._going = dict(self.world.worker._core.plan.going)

    def _add(self, name: str, gang: str = "") -> None:
        self.world.add(claim(name), pod(name, gang=gang, priority=100 if gang else 0))

    def at(self, seconds: float) -> None:
        self.world.clock.elapsed = 1000.0 + seconds

    def take(self, seconds: float = 0.0) -> Unit | None:
        """The next unit that may go then."""
        self.at(seconds)
        if self.world.is_due:
            self.world.catch_up()
        return self.world.worker.take()

    def must_take(self, seconds: float = 0.0) -> Unit:
        unit = self.take(seconds)
        assert unit is not None
        return unit

    def answer(self, unit: Unit, outcome: EvictionOutcome | None, seconds: float = 0.0) -> None:
        """Of a unit the first pod gets this answer, and the others are not asked for."""
        self.at(seconds)
        short = len(unit.members) if outcome is SHORT else 0
        for number, each in enumerate(unit.members):
            answered = None if number else outcome
            attempt = Attempt(each, answered, short=short, sent=answered is not None)
            self.world.worker.upkeep.answered(attempt)

    def ask(self, outcome: EvictionOutcome | None, seconds: float) -> None:
        """The next unit is taken, and answered at once."""
        self.answer(self.must_take(seconds), outcome, seconds)

    def set_status(self, status: int | None) -> None:
        self.budget.status = status
        self.world.worker.observe_budget("ml", "0")

    def overdue(self, deadline: float, seconds: float) -> bool:
        """Whether pods of such a deadline would be deleted past the budget then: the gang, or else all of them."""
        self.at(seconds)
        core = self.world.worker._core
        core.room.begin(core.moment())
        members = [each for each in self._going.values() if each.gang] or list(self._going.values())[:1]
        unit = self._unit([_with_deadline(each, deadline) for each in members])
        return not core.room.asked_by(unit)

    def _unit(self, members: list[Going]) -> Unit:
        first = members[0]
        return Unit(tuple(members), first.gang or first.uid, first.due, (False, 0, 0, first.due, first.key))


def _with_deadline(each: Going, seconds: float) -> Going:
    settings = structs.replace(each.profile.settings, deadline_seconds=seconds)
    return structs.replace(each, profile=each.profile._replace(settings=settings))


# --- who may ask now -----------------------------------------------------------------------------


def test_budget_without_status_gets_one_request_at_a_time() -> None:
    bench = Bench()
    first = bench.must_take()
    assert bench.take() is None
    bench.answer(first, EVICTED, 0.1)
    assert bench.take(0.1) is not None


ASKED: dict[str, tuple[dict[str, int], EvictionOutcome | None, dict[float, bool]]] = {
    "five seconds after a refusal": ({}, BLOCKED, {1.0: False, 4.9: False, 5.0: True}),
    "later if the server asks for that": ({}, BLOCKED._replace(retry_after_seconds=10), {9.9: False, 10.0: True}),
    "to doubt its status every five seconds": ({"status": 0}, EVICTED, {0.0: False, 4.9: False, 5.0: True}),
    "at once if no request was made": ({"status": 0}, None, {0.0: True}),
    "for a unit that it was short for": ({"pods": 0, "status": 2, "gang": 2}, SHORT, {4.9: False, 5.0: True}),
}


@pytest.mark.parametrize(("fields", "answer", "expected"), ASKED.values(), ids=ASKED)
def test_budget_is_asked_again(
    fields: dict[str, int], answer: EvictionOutcome | None, expected: dict[float, bool]
) -> None:
    bench = Bench(**fields)
    bench.ask(answer, 0.0)
    assert {seconds: bench.take(seconds) is not None for seconds in expected} == expected


def test_status_says_how_many_requests_may_be_in_flight() -> None:
    bench = Bench(status=2)
    first, second = bench.must_take(), bench.must_take()
    assert bench.take() is None
    bench.answer(first, EVICTED, 0.1)
    assert bench.take(0.1) is None, "the status does not show this eviction yet"
    bench.answer(second, FAILED, 0.1)
    assert bench.take(0.1) is not None


def test_wide_budget_gets_four_requests_at_a_time() -> None:
    bench = Bench(status=100)
    assert [bench.take() is not None for _ in range(6)] == [True] * 4 + [False] * 2


def test_new_status_lets_the_next_pod_ask_at_once() -> None:
    bench = Bench(status=0)
    bench.ask(BLOCKED, 0.0)
    bench.set_status(0)
    assert bench.take(1.0) is None
    assert bench.world.worker.take_seconds == 4.0
    bench.set_status(1)
    assert bench.take(1.0) is not None


def test_pod_without_a_budget_waits_only_after_it_was_refused_and_keeps_no_other() -> None:
    bench = Bench(2)
    bench.budget.selects = "other"
    first = bench.must_take()
    bench.answer(first, BLOCKED)
    assert bench.must_take(1.0).members != first.members
    assert bench.take(4.9) is None
    assert bench.must_take(5.0).members == first.members


def test_answers_of_two_budgets_say_nothing_of_one_of_them() -> None:
    bench = Bench()
    both = Budget("web")
    bench.world.add_budget(both)
    bench.ask(BLOCKED, 0.0)
    both.selects = "other"
    bench.world.worker.observe_budgets("ml")
    assert bench.take(0.1) is not None


# --- deadline ------------------------------------------------------------------------------------


def asked(*answers: EvictionOutcome) -> dict[float, EvictionOutcome]:
    """Every five seconds."""
    return {number * 5.0: answer for number, answer in enumerate(answers)}


FOUR, FIVE = asked(*[BLOCKED] * 4), asked(*[BLOCKED] * 5)
AFTER_PROGRESS = asked(EVICTED, *[BLOCKED] * 5)


@pytest.mark.parametrize(
    ("answers", "deadline", "now", "overdue"),
    [
        pytest.param(FOUR, 15.0, 15.0, True, id="it has passed"),
        pytest.param(FOUR, 15.1, 15.0, False, id="it has not passed yet"),
        pytest.param(FOUR, 20.0, 20.0, False, id="since the last refusal nothing is known"),
        pytest.param(FIVE, 20.0, 30.0, True, id="the last refusal is fresh"),
        pytest.param(FIVE, 20.0, 30.1, False, id="it is fresh no longer"),
        pytest.param({**FOUR, 20.0: PENDING}, 20.0, 20.0, False, id="the budget is still being processed"),
        pytest.param({**FIVE, 10.0: EVICTED}, 20.0, 20.0, False, id="progress in between"),
        pytest.param(AFTER_PROGRESS, 20.0, 25.0, True, id="from the first refusal after progress on"),
        pytest.param(AFTER_PROGRESS, 20.1, 25.0, False, id="and not from the progress on"),
        pytest.param({0.0: BLOCKED, 7200.0: BLOCKED}, 600.0, 7200.0, False, id="not asked for two hours"),
        pytest.param({0.0: BLOCKED, 7200.0: BLOCKED, 7210.0: BLOCKED}, 10.0, 7210.0, True, id="and then asked again"),
        *[
            pytest.param({0.0: BLOCKED, seconds: BLOCKED}, 10.0, seconds, counts, id=f"refusals {seconds} s apart")
            for seconds, counts in ((10.1, True), (15.0, True), (15.1, False))
        ],
    ],
)
def test_deadline_counts_the_time_of_refusals_without_progress(
    answers: dict[float, EvictionOutcome], deadline: float, now: float, *, overdue: bool
) -> None:
    bench = Bench()
    for seconds, answer in answers.items():
        bench.ask(answer, seconds)
    assert bench.overdue(deadline, now) is overdue


@pytest.mark.parametrize(("gang", "allowed", "overdue"), [(0, 1, False), (2, 1, True), (2, 2, False)])
def test_status_that_allows_all_of_a_unit_is_progress(gang: int, allowed: int, *, overdue: bool) -> None:
    bench = Bench(0 if gang else 9, gang=gang)
    for number in range(5):
        bench.ask(SHORT if gang else BLOCKED, number * 5.0)
    assert bench.overdue(20.0, 20.0)
    bench.set_status(allowed)
    assert bench.overdue(20.0, 20.0) is overdue


@pytest.mark.parametrize("answer", [None, EVICTED, BLOCKED, SHORT])
@pytest.mark.parametrize("gang", [0, 3])
def test_budget_is_forgotten_ten_minutes_after_the_last_request(answer: EvictionOutcome | None, gang: int) -> None:
    bench = Bench(0 if gang else 2, gang=gang)
    known = bench.world.worker._core.ledger.budgets
    unit = bench.must_take(100.0)
    for seconds in (100.0, 5000.0):
        bench.at(seconds)
        bench.world.worker.forget_idle()
        assert known, "it is being asked"
    bench.answer(unit, answer, 5000.0)
    bench.at(5600.0)
    bench.world.worker.forget_idle()
    assert bool(known) is (answer in (BLOCKED, SHORT))
    bench.at(5600.1)
    bench.world.worker.forget_idle()
    assert not known


# --- units ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "sizes"), [(2, [1]), (3, [1, 2])])
def test_unit_waits_after_the_refusal_of_a_single_pod(status: int, sizes: list[int]) -> None:
    bench = Bench(1, status=status, gang=2)
    bench.ask(BLOCKED, 0.0)
    assert bench.take(4.9) is None
    taken = [bench.take(5.0), bench.take(5.0)]
    assert [len(unit.members) for unit in taken if unit is not None] == sizes


def test_single_pod_does_not_wait_behind_a_unit_that_its_budget_was_short_for() -> None:
    bench = Bench(0, status=2, gang=2)
    bench.ask(SHORT, 0.0)
    bench.world.add(claim("web-late"), pod("web-late", priority=200))
    assert len(bench.must_take(0.1).members) == 1


def test_status_that_allows_all_of_a_unit_lets_it_go_at_once_that_was_not_refused_itself() -> None:
    bench = Bench(1, status=1, gang=2)
    bench.ask(BLOCKED, 0.0)
    assert bench.take(1.0) is None
    bench.world.remove(bench.world.pod("web-0"))
    bench.set_status(2)
    assert len(bench.must_take(1.0).members) == 2


def test_unit_that_its_budget_allows_as_a_whole_goes_beside_four_requests() -> None:
    bench = Bench(5, status=100, gang=2)
    taken = [bench.take() for _ in range(6)]
    assert [len(unit.members) for unit in taken if unit is not None] == [1, 1, 1, 1, 2]


@pytest.mark.parametrize(("status", "allowed"), [(None, None), (0, 0), (1, 1), (2, None), (3, None)])
def test_budget_that_allows_fewer_than_belong_together_is_named(status: int | None, allowed: int | None) -> None:
    world = evicting(budgets=[Budget("web", every_seconds=0.0, allows_at=0.0, status=status)])
    world.add(*using("other", "web-0", "web-1", gang="ring"), rule())
    world.advance(20)
    words = f"budget 0 allows {allowed} of 2 evictions that belong together"
    assert len([event for event in world.cluster.events if words in event.text]) == (0 if allowed is None else 3)
    assert len(world.evicted) == (3 if allowed is None else 0)


# --- what goes and when -----------------------------------------------------------------------------


def test_status_of_the_budget_lets_the_next_pod_go_at_once() -> None:
    world = evicting()
    web = Budget("web", every_seconds=2.0, allows_at=0.0, status=1)
    world.add_budget(web)
    world.add(*using(*[f"web-{number}" for number in range(5)], on="gpu-{}", make=owned), rule())
    for _ in range(5):
        world.settle()
        web.status = 0
        world.worker.observe_budget("ml", "0")
        world.advance(2.0)
        web.status = 1
        world.worker.observe_budget("ml", "0")
    assert [seconds for _, _, seconds in world.cluster.requests] == pytest.approx([0, 2, 4, 6, 8], abs=0.01)
    assert len(world.evicted) == 5


@pytest.mark.parametrize(("app", "evicted"), [("api", ["web"]), ("web", [])], ids=["none", "the same"])
def test_pod_that_leaves_its_budget_goes_at_once(app: str, evicted: list[str]) -> None:
    world = evicting(budgets=[Budget(labels=WEB, status=0)])
    before = owned("web", labels=WEB)
    world.add(claim("web"), before, rule())
    assert world.settled() == []
    # The budget is not asked for five seconds, so what happens before that is due to the labels.
    world.edit(before, labels=(("app", app), ("more", "")))
    assert world.settled() == evicted


@pytest.mark.parametrize(("app", "evicted"), [("api", ["web"]), ("web", [])], ids=["none", "one"])
def test_pod_is_evicted_under_the_budgets_that_its_newest_labels_have(app: str, evicted: list[str]) -> None:
    world = evicting(budgets=[Budget(labels=WEB)])
    before = owned("web", labels=(("app", "api"),))
    world.add(claim("web", tolerates(10)), before, rule())
    world.edit(before, labels=(("app", app),))
    assert world.after(12) == evicted


def test_refused_pods_take_turns() -> None:
    """Whether a budget allows an eviction may depend on the pod: one that is not ready may go where others may not."""
    world = evicting(*using(*[f"web-{number}" for number in range(3)], on="gpu-{}"), rule(), budgets=[Budget("web")])
    world.advance(17)
    assert [name for _, name, _ in world.cluster.requests] == ["ml/web-0", "ml/web-1", "ml/web-2", "ml/web-0"]


def test_pods_past_their_deadline_are_deleted_without_waiting_for_each_other() -> None:
    """That one of them is gone is no progress of the budget."""
    world = evicting(deadline_seconds=20.0, delete_after_deadline=True, budgets=[Budget("web")])
    world.add(*using(*[f"web-{number}" for number in range(3)], on="gpu-{}"), rule())
    world.advance(60)
    assert [verb for verb, _, _ in world.cluster.calls] == ["delete"] * 3
    assert len({round(seconds) for _, _, seconds in world.cluster.calls}) == 1


# --- what blocked pods cost, and the pods that wait behind them -----------------------------------


PROBE_SECONDS = 5.0
"""How often one budget may be asked at most."""


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
