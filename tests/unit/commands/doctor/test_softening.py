"""Whether what the policy softens is carried out."""

from __future__ import annotations

import pytest

from webhook.commands.doctor.checks import Check, Status, softening_check
from webhook.policy.model import ImpactLimits, ImpactSettings, Softening


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([Softening.NEVER], False),
        ([Softening.NEVER, Softening.OVER], True),
        ([Softening.ALWAYS, Softening.NEVER], True),
    ],
)
def test_policy_with_an_entry_that_softens_does(entries: list[Softening], expected: bool) -> None:  # noqa: FBT001
    limits = tuple(ImpactLimits(soften=each) for each in entries)
    assert ImpactSettings(limits=limits).softens is expected


def test_worker_that_does_not_act_is_a_warning() -> None:
    advice = "run evict in mode delegated or replacement, with --leader-elect: docs/eviction.md"
    assert softening_check("no one evicts") == Check(
        "softening", Status.WARN, "the policy softens rules, but no one evicts", advice
    )
    assert softening_check("").status is Status.OK
