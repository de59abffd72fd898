from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime

import pytest

from tests.tables import table
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


@table(
    "deadline, turn, times, error",
    {
        "exactly its seconds were worked": (20.0, 2.0, [(102.1, 100.0), (104.2, 102.0)], OutOfTurn),
        "nearly twice its seconds have passed": (20.0, 2.0, [(102.5, 102.5), (104.4, 104.4)], None),
        "twice its seconds were worked": (20.0, 2.0, [(102.5, 102.5), (104.4, 104.4), (104.6, 104.6)], OutOfTurn),
        "work is asked for only when its seconds have passed": (
            20.0,
            2.0,
            [(101.0, 101.0), (102.5, 103.0), (103.5, 105.0), (104.5, 105.0), (104.6, 105.0)],
            OutOfTurn,
        ),
        "the end of the budget is its own": (2.0, 1.0, [(102.0, 102.0)], None),
        "the machine does something else": (
            20.0,
            2.0,
            [*[(100 + 2.1 * number, 100 + 0.1 * number) for number in range(1, 10)], (120.1, 100.9)],
            OutOfTime,
        ),
        "the deadline is not put off": (2.0, 5.0, [(102.1, 102.1)], OutOfTime),
    },
)
def test_turn_ends(
    deadline: float, turn: float, times: list[tuple[float, float]], error: type[Exception] | None
) -> None:
    """At the last of these times, by the clock and by the work that was done."""
    clock, work = Clock(), Clock()
    budget = Budget(deadline, clock)
    budget.take_turn(turn, work)
    for clock.seconds, work.seconds in times[:-1]:
        budget.check("policy")
    clock.seconds, work.seconds = times[-1]
    with pytest.raises(error) if error else nullcontext():
        budget.check("policy")
    if error is not OutOfTime:
        budget.end_turn()
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
