"""When pods under a disruption budget may ask it, and for how long it counts as refusing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates
from tests.unit.eviction.world import BLOCKED, FREE, Budget, World
from webhook.api.budgets import DisruptionBudget
from webhook.api.meta import ObjectMeta
from webhook.eviction.budget_gate import BudgetGate
from webhook.eviction.modes import Mode
from webhook.eviction.pod_plan import PodPlan
from webhook.eviction.ports import BudgetLimit, EvictionOutcome, EvictionResult
from webhook.eviction.profiles import Profile
from webhook.inventory.evictions import Eviction

if TYPE_CHECKING:
    from webhook.api.pods import Pod

EVICTED = EvictionOutcome(EvictionResult.EVICTED)
PENDING = BLOCKED._replace(budget_pending=True)
SHORT = BLOCKED._replace(short=True)
LIMIT = BudgetLimit("ml", ("web",))
WEB = (("app", "web"),)


class Budgets:
    """One budget, `web`, that selects pods whose name begins so."""

    def __init__(self, *names: str) -> None:
        self.names = names or ("web",)
        self.status: int | None = None

    def select(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        return tuple(map(self._shown, self.names)) if pod.meta.name.startswith("web") else ()

    def find(self, namespace: str, name: str) -> DisruptionBudget:
        assert (namespace, name) == ("ml", "web")
        return self._shown(name)

    def _shown(self, name: str) -> DisruptionBudget:
        return DisruptionBudget(ObjectMeta(name=name, namespace="ml"), None, self.status)


class Bench:
    """A gate, and requests that are answered at once."""

    def __init__(self, *names: str) -> None:
        self.budgets = Budgets(*names)
        self.gate = BudgetGate(self.budgets)

    def ask(self, plan: PodPlan, answer: EvictionOutcome | None, now: float) -> None:
        assert self.gate.blocks([plan], now) is None
        self.gate.end(plan, self.gate.begin(plan, now), answer, now)

    def open(self, plan: PodPlan, now: float) -> bool:
        return self.gate.blocks([plan], now) is None


def plan(name: str = "web-0") -> PodPlan:
    return PodPlan(f"ml/{name}", f"uid-{name}", pod(name), Eviction(NOW, ()), Profile(0, FREE))


def test_budget_without_status_gets_one_request_at_a_time() -> None:
    bench, first, second = Bench(), plan("web-0"), plan("web-1")
    limit = bench.gate.begin(first, 0.0)
    assert limit == LIMIT
    assert bench.gate.blocks([second], 0.0) == LIMIT
    bench.gate.end(first, limit, EVICTED, 0.1)
    assert bench.open(second, 0.1)


def test_pod_whose_labels_bring_it_under_a_budget_after_it_was_taken_is_one_eviction() -> None:
    bench, one = Bench(), plan("other")
    assert bench.open(one, 0.0)
    bench.budgets.status = 0
    one.pod = pod("web-0")
    assert bench.gate.shortage(one) == "budget web allows 0 of 1 evictions that belong together"


def test_budget_that_allowed_an_eviction_may_be_asked_at_once() -> None:
    bench = Bench()
    bench.ask(plan(), EVICTED, 0.0)
    assert bench.gate.wait_seconds(LIMIT, 0.1) == 0.0


def test_budget_that_refused_is_asked_again_after_five_seconds() -> None:
    bench = Bench()
    bench.ask(plan(), BLOCKED, 0.0)
    assert not bench.open(plan("web-1"), 4.9)
    assert bench.gate.wait_seconds(LIMIT, 1.0) == 4.0
    assert bench.open(plan("web-1"), 5.0)
    assert bench.gate.wait_seconds(LIMIT, 5.0) == 0.0


def test_server_that_asks_to_wait_longer_is_obeyed() -> None:
    bench = Bench()
    bench.ask(plan(), BLOCKED._replace(retry_after_seconds=10.0), 0.0)
    assert [bench.open(plan(), seconds) for seconds in (9.9, 10.0)] == [False, True]


def test_status_says_how_many_requests_may_be_in_flight() -> None:
    bench = Bench()
    bench.budgets.status = 2
    begun = [bench.gate.begin(plan(f"web-{number}"), 0.0) for number in range(2)]
    assert begun == [LIMIT, LIMIT]
    assert not bench.open(plan("web-2"), 0.0)
    bench.gate.end(plan("web-0"), LIMIT, EVICTED, 0.1)
    assert not bench.open(plan("web-2"), 0.1)  # the status does not show this eviction yet
    bench.gate.end(plan("web-1"), LIMIT, EvictionOutcome(EvictionResult.FAILED), 0.1)
    assert bench.open(plan("web-2"), 0.1)


def test_wide_budget_gets_four_requests_at_a_time() -> None:
    bench = Bench()
    bench.budgets.status = 100
    for number in range(4):
        assert bench.open(plan(f"web-{number}"), 0.0)
        bench.gate.begin(plan(f"web-{number}"), 0.0)
    assert not bench.open(plan("web-4"), 0.0)


def test_status_that_allows_none_is_doubted_every_five_seconds() -> None:
    bench = Bench()
    bench.budgets.status = 0
    bench.ask(plan(), EVICTED, 0.0)
    assert [bench.open(plan("web-1"), seconds) for seconds in (0.0, 4.9, 5.0)] == [False, False, True]


def test_new_status_opens_the_gate_at_once() -> None:
    bench = Bench()
    bench.budgets.status = 0
    bench.ask(plan(), BLOCKED, 0.0)
    assert bench.gate.observe("ml", "web") == [LIMIT]
    assert not bench.open(plan("web-1"), 1.0)
    bench.budgets.status = 1
    bench.gate.observe("ml", "web")
    assert bench.open(plan("web-1"), 1.0)


def test_request_that_was_not_made_delays_none() -> None:
    bench = Bench()
    bench.budgets.status = 0
    bench.ask(plan(), None, 100.0)
    assert bench.open(plan("web-1"), 100.0)


def test_pod_without_a_budget_waits_only_after_it_was_refused() -> None:
    bench, lone = Bench(), plan("lone")
    assert bench.gate.begin(lone, 0.0) is None
    bench.gate.end(lone, None, BLOCKED, 0.0)
    assert bench.gate.blocks([lone], 1.0) == BudgetLimit("ml", (), "uid-lone")
    assert bench.open(lone, 5.0)
    bench.ask(lone, EVICTED, 5.0)
    assert bench.gate.limit_of(lone) is None


def test_pods_with_two_budgets_have_a_gate_of_their_own() -> None:
    bench = Bench("api", "web")
    bench.ask(plan(), BLOCKED, 0.0)
    bench.budgets.names = ("web",)
    assert bench.open(plan("web-1"), 0.1)


# --- deadline ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "overdue"),
    [
        ([BLOCKED] * 5, True),
        ([BLOCKED] * 4, False),
        ([BLOCKED] * 4 + [PENDING], False),
        ([BLOCKED, BLOCKED, EVICTED, BLOCKED, BLOCKED], False),
    ],
    ids=["long enough", "too short", "still being processed", "progress"],
)
def test_deadline_counts_the_time_of_refusals_without_progress(answers: list[EvictionOutcome], overdue: bool) -> None:  # noqa: FBT001
    bench, asking = Bench(), plan()
    for number, answer in enumerate(answers):
        bench.ask(asking, answer, number * 5.0)
    assert bench.gate.overdue(asking, 20.0, 20.0) is overdue


def test_deadline_is_over_when_it_has_passed_and_not_before() -> None:
    bench, asking = Bench(), plan()
    for number in range(4):
        bench.ask(asking, BLOCKED, number * 5.0)
    assert [bench.gate.overdue(asking, seconds, 15.0) for seconds in (15.0, 15.1)] == [True, False]


def test_time_in_which_the_budget_was_not_asked_does_not_count() -> None:
    bench, asking = Bench(), plan()
    bench.ask(asking, BLOCKED, 0.0)
    bench.ask(asking, BLOCKED, 7200.0)
    assert not bench.gate.overdue(asking, 600.0, 7200.0)
    bench.ask(asking, BLOCKED, 7210.0)
    assert bench.gate.overdue(asking, 10.0, 7210.0)


@pytest.mark.parametrize(("seconds", "counts"), [(10.1, True), (15.0, True), (15.1, False)])
def test_time_between_two_refusals_counts_up_to_three_questions_apart(seconds: float, *, counts: bool) -> None:
    bench, asking = Bench(), plan()
    bench.ask(asking, BLOCKED, 0.0)
    bench.ask(asking, BLOCKED, seconds)
    assert bench.gate.overdue(asking, seconds, seconds) is counts


def test_refusal_must_be_fresh() -> None:
    bench, asking = Bench(), plan()
    for number in range(5):
        bench.ask(asking, BLOCKED, number * 5.0)
    assert [bench.gate.overdue(asking, 20.0, seconds) for seconds in (30.0, 30.1)] == [True, False]


def test_status_that_allows_evictions_is_progress() -> None:
    bench, asking = Bench(), plan()
    for number in range(5):
        bench.ask(asking, BLOCKED, number * 5.0)
    bench.budgets.status = 1
    bench.gate.observe("ml", "web")
    assert not bench.gate.overdue(asking, 20.0, 20.0)


@pytest.mark.parametrize(("allowed", "overdue"), [(1, True), (2, False)])
def test_status_is_progress_for_a_unit_if_it_allows_all_of_it(allowed: int, *, overdue: bool) -> None:
    bench, unit = Bench(), [plan("web-0"), plan("web-1")]
    bench.gate.blocks(unit, 0.0)
    for number in range(5):
        bench.gate.end(unit[0], bench.gate.begin(unit[0], number * 5.0), SHORT, number * 5.0)
    assert bench.gate.overdue(unit[0], 20.0, 20.0)
    bench.budgets.status = allowed
    bench.gate.observe("ml", "web")
    assert bench.gate.overdue(unit[0], 20.0, 20.0) is overdue


def test_status_may_change_before_a_unit_that_waits_for_it_was_refused() -> None:
    bench, unit = Bench(), [plan("web-0"), plan("web-1")]
    bench.budgets.status = 1
    bench.ask(plan("web-2"), BLOCKED, 0.0)
    blocked = bench.gate.blocks(unit, 1.0)
    bench.budgets.status = 2
    assert blocked in bench.gate.observe("ml", "web")
    assert bench.gate.blocks(unit, 6.0) is None


def test_progress_starts_the_time_of_refusals_from_nothing() -> None:
    bench, asking = Bench(), plan()
    bench.ask(asking, EVICTED, 0.0)
    for number in range(5):
        bench.ask(asking, BLOCKED, 5.0 + number * 5.0)
    assert [bench.gate.overdue(asking, seconds, 25.0) for seconds in (20.0, 20.1)] == [True, False]


def test_gate_is_forgotten_ten_minutes_after_the_last_request() -> None:
    bench = Bench()
    bench.ask(plan(), BLOCKED, 100.0)
    sizes = []
    for seconds in (700.0, 700.1):
        bench.gate.forget_idle(seconds)
        sizes.append(len(bench.gate._gates))
    assert sizes == [1, 0]
    bench.gate.begin(plan(), 600.0)
    bench.gate.forget_idle(5000.0)
    assert len(bench.gate._gates) == 1


@pytest.mark.parametrize("answer", [None, EVICTED, BLOCKED, SHORT])
def test_sizes_of_units_are_forgotten_with_the_gates(answer: EvictionOutcome | None) -> None:
    """Also of a unit that could go but did not ask, or that a dry run refused."""
    bench, unit = Bench(), [plan(f"web-{number}") for number in range(3)]
    bench.budgets.status = 3
    assert bench.gate.blocks(unit, 0.0) is None
    if answer is not None:
        bench.gate.end(unit[0], bench.gate.begin(unit[0], 0.0), answer, 0.0)
    bench.budgets.status = 1
    blocked = bench.gate.blocks(unit, 1.0)
    assert blocked is None or blocked in bench.gate.limits_like(LIMIT), (
        "its pods are looked for when the budget changes"
    )
    bench.gate.forget_idle(2.0)
    assert blocked is None or blocked in bench.gate.limits_like(LIMIT)
    bench.gate.forget_idle(700.0)
    assert (len(bench.gate._gates), bench.gate._units) == (0, {})
    assert bench.gate.limits_like(LIMIT) == [LIMIT]


# --- units ---------------------------------------------------------------------------------------


def test_unit_waits_after_the_refusal_of_a_single_pod() -> None:
    bench, unit = Bench(), [plan("web-0"), plan("web-1")]
    bench.budgets.status = 2
    bench.ask(plan("web-2"), BLOCKED, 0.0)
    assert [bench.gate.blocks(unit, seconds) is None for seconds in (4.9, 5.0)] == [False, True]


def test_single_pods_wait_after_the_server_refused_a_pod_of_a_unit() -> None:
    bench, unit = Bench(), [plan("web-0"), plan("web-1")]
    bench.budgets.status = 2
    assert bench.gate.blocks(unit, 0.0) is None
    bench.gate.end(unit[0], bench.gate.begin(unit[0], 0.0), BLOCKED, 0.0)
    assert [bench.open(plan("web-2"), seconds) for seconds in (4.9, 5.0)] == [False, True]


def test_unit_that_its_budget_was_short_for_waits_for_five_seconds() -> None:
    bench, unit = Bench(), [plan("web-0"), plan("web-1")]
    bench.budgets.status = 2
    assert bench.gate.blocks(unit, 0.0) is None
    bench.gate.end(unit[0], bench.gate.begin(unit[0], 0.0), SHORT, 0.0)
    assert [bench.gate.blocks(unit, seconds) is None for seconds in (4.9, 5.0)] == [False, True]
    assert bench.open(plan("web-2"), 0.0), "single pods do not"


def test_unit_that_its_budget_allows_as_a_whole_goes_beside_four_requests() -> None:
    bench = Bench()
    bench.budgets.status = 100
    for number in range(4):
        bench.gate.begin(plan(f"web-{number}"), 0.0)
    assert bench.gate.blocks([plan("web-4"), plan("web-5")], 0.0) is None
    assert not bench.open(plan("web-6"), 0.0)


def test_refused_single_pods_have_one_limit_in_all() -> None:
    bench = Bench()
    bench.ask(plan(), BLOCKED, 0.0)
    assert not bench.open(plan("web-1"), 1.0)
    assert bench.gate.limits_like(LIMIT) == [LIMIT]


@pytest.mark.parametrize(("status", "allowed"), [(None, None), (0, 0), (1, 1), (2, None), (3, None)])
def test_budget_that_allows_fewer_than_belong_together_is_named(status: int | None, allowed: int | None) -> None:
    bench, unit = Bench(), [plan("web-0"), plan("web-1"), plan("other")]
    bench.budgets.status = status
    bench.gate.blocks(unit, 0.0)
    words = "" if allowed is None else f"budget web allows {allowed} of 2 evictions that belong together"
    assert [bench.gate.shortage(each) for each in unit] == [words, words, ""]


# --- in the worker -------------------------------------------------------------------------------


def test_status_of_the_budget_lets_the_next_pod_go_at_once() -> None:
    world = World(Mode.REPLACEMENT, FREE)
    web = Budget("web", every_seconds=2.0, allows_at=0.0, status=1)
    world.add_budget(web)
    for number in range(5):
        world.add(claim(f"web-{number}", devices=(f"gpu-{number}",)), owned(f"web-{number}"))
    world.add(rule())
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
    world = World(Mode.REPLACEMENT, FREE)
    world.add_budget(Budget(labels=WEB, status=0))
    before = owned("web", labels=WEB)
    world.add(claim("web"), before, rule())
    world.settle()
    assert world.evicted == []
    # The budget is not asked for five seconds, so what happens before that is due to the labels.
    world.change(before, structs.replace(before, labels=(("app", app), ("more", ""))))
    world.settle()
    assert world.evicted == evicted


@pytest.mark.parametrize(("app", "evicted"), [("api", ["web"]), ("web", [])], ids=["none", "one"])
def test_pod_is_evicted_under_the_budgets_that_its_newest_labels_have(app: str, evicted: list[str]) -> None:
    world = World(Mode.REPLACEMENT, FREE)
    world.add_budget(Budget(labels=WEB))
    before = owned("web", labels=(("app", "api"),))
    world.add(claim("web", tolerates(10)), before, rule())
    world.change(before, structs.replace(before, labels=(("app", app),)))
    world.advance(12)
    assert world.evicted == evicted


def test_refused_pods_take_turns() -> None:
    """Whether a budget allows an eviction may depend on the pod: one that is not ready may go where others may not."""
    world = World(Mode.REPLACEMENT, FREE)
    world.add_budget(Budget("web"))
    for number in range(3):
        world.add(claim(f"web-{number}", devices=(f"gpu-{number}",)), pod(f"web-{number}"))
    world.add(rule())
    world.advance(17)
    assert [name for _, name, _ in world.cluster.requests] == ["ml/web-0", "ml/web-1", "ml/web-2", "ml/web-0"]


def test_wait_for_a_request_that_is_not_answered_yet_is_never_below_zero() -> None:
    bench = Bench()
    bench.gate.begin(plan(), 0.0)
    assert [bench.gate.wait_seconds(LIMIT, now) for now in (0.0, 1.0, 4.5, 5.0, 60.0)] == [5.0, 4.0, 0.5, 0.0, 0.0]


def test_pods_past_their_deadline_are_deleted_without_waiting_for_each_other() -> None:
    """That one of them is gone is no progress of the budget."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, deadline_seconds=20.0, delete_after_deadline=True))
    world.add_budget(Budget("web"))
    for number in range(3):
        world.add(claim(f"web-{number}", devices=(f"gpu-{number}",)), pod(f"web-{number}"))
    world.add(rule())
    world.advance(60)
    assert [verb for verb, _, _ in world.cluster.calls] == ["delete"] * 3
    assert len({round(seconds) for _, _, seconds in world.cluster.calls}) == 1
