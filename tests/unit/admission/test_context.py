from __future__ import annotations

from datetime import UTC, datetime

import pytest

from webhook.admission.context import UNLIMITED, AdmissionContext, Budget, OutOfTime
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
    budget.check("lint")
    clock.seconds = 102.001
    with pytest.raises(OutOfTime) as caught:
        budget.check("lint")
    assert (caught.value.phase, str(caught.value)) == ("lint", "lint")


def test_unlimited_budget_never_ends() -> None:
    UNLIMITED.check("anything")


def test_context_enforces_documented_rules_for_the_newest_release_unless_told_otherwise() -> None:
    context = AdmissionContext(datetime(2026, 6, 1, tzinfo=UTC))
    assert context.release is NEWEST
    assert context.policy.documented_rules is PolicyMode.ENFORCE
    assert not context.policy.bump_slice_time_added
    assert context.policy.trusted_controllers == ("system:serviceaccount:kube-system:resource-claim-controller",)
    assert context.budget is UNLIMITED
