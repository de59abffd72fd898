from __future__ import annotations

from datetime import UTC, datetime

import pytest

from webhook.admission.context import UNLIMITED, AdmissionContext, Budget, OutOfTime, OutOfTurn
from webhook.policy.model import PolicyMode
from webhook.validation.releases import NEWEST


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_budget_lasts_as_long_as_it_says() -> None:
    clock = Clock()
    budget = Budget(2.0, clock)
    clock.seconds = 102.0
    budget.check("policy")
    budget.check("lint")
    clock.seconds = 102.001
    with pytest.raises(OutOfTime) as caught:
        budget.check("lint")
    assert (caught.value.phase, str(caught.value)) == ("lint", "lint")


def test_no_seconds_are_left_after_the_deadline() -> None:
    clock = Clock()
    budget = Budget(2.0, clock)
    left, spent = [], []
    for clock.seconds in (100.0, 101.5, 102.0, 103.0):
        left.append(budget.seconds_left)
        spent.append(budget.spent)
    assert left == [2.0, 0.5, 0.0, 0.0]
    assert spent == [False, False, True, True]


def test_time_spent_in_a_queue_counts_against_the_budget() -> None:
    clock = Clock()
    budget = Budget(2.0, clock, since=99.0)
    assert budget.seconds_left == 1.0
    clock.seconds = 101.1
    with pytest.raises(OutOfTime):
        budget.check("policy")


def test_turn_ends_when_exactly_its_seconds_were_worked() -> None:
    clock, work = Clock(), Clock()
    budget = Budget(20.0, clock)
    budget.take_turn(2.0, work)
    clock.seconds = 102.1
    budget.check("policy")
    clock.seconds, work.seconds = 104.2, 102.0
    with pytest.raises(OutOfTurn):
        budget.check("policy")


def test_turn_ends_after_twice_its_seconds_of_work() -> None:
    clock = Clock()
    budget = Budget(20.0, clock)
    budget.take_turn(2.0, clock)
    clock.seconds = 102.5
    budget.check("policy")
    clock.seconds = 104.4
    budget.check("policy")
    clock.seconds = 104.6
    with pytest.raises(OutOfTurn):
        budget.check("policy")
    budget.end_turn()
    budget.check("policy")


def test_work_is_asked_for_only_when_the_seconds_of_a_turn_have_passed() -> None:
    clock, work = Clock(), Clock()
    budget = Budget(20.0, clock)
    budget.take_turn(2.0, work)
    for clock.seconds, work.seconds in ((101.0, 101.0), (102.5, 103.0), (103.5, 105.0), (104.5, 105.0)):
        budget.check("policy")
    clock.seconds = 104.6
    with pytest.raises(OutOfTurn):
        budget.check("policy")


def test_turn_may_last_until_the_very_end_of_the_budget() -> None:
    clock = Clock()
    budget = Budget(2.0, clock)
    budget.take_turn(1.0, clock)
    clock.seconds = 102.0
    budget.check("policy")


@pytest.mark.parametrize(("budget_seconds", "end"), [(20.0, 103.0), (6.0, 103.0), (4.0, 102.0)])
def test_part_of_a_review_lasts_for_its_seconds_or_half_of_what_is_left(budget_seconds: float, end: float) -> None:
    clock = Clock()
    goes_on = Budget(budget_seconds, clock).lasting(3.0)
    assert goes_on()
    clock.seconds = end
    assert goes_on()
    clock.seconds = end + 0.001
    assert not goes_on()


def test_turn_goes_on_while_the_machine_does_something_else() -> None:
    clock, work = Clock(), Clock()
    budget = Budget(20.0, clock)
    budget.take_turn(2.0, work)
    for _ in range(9):
        clock.seconds += 2.1
        work.seconds += 0.1
        budget.check("policy")
    clock.seconds = 120.1
    with pytest.raises(OutOfTime):
        budget.check("policy")


def test_turn_does_not_put_the_deadline_off() -> None:
    clock = Clock()
    budget = Budget(2.0, clock)
    budget.take_turn(5.0, clock)
    clock.seconds = 102.1
    with pytest.raises(OutOfTime):
        budget.check("policy")


def test_unlimited_budget_never_ends() -> None:
    UNLIMITED.check("anything")


def test_context_enforces_documented_rules_for_the_newest_release_unless_told_otherwise() -> None:
    context = AdmissionContext(datetime(2026, 6, 1, tzinfo=UTC))
    assert context.release is NEWEST
    assert context.policy.documented_rules is PolicyMode.ENFORCE
    assert not context.policy.bump_slice_time_added
    assert context.policy.trusted_controllers == ("system:serviceaccount:kube-system:resource-claim-controller",)
    assert context.budget is UNLIMITED
