"""The code that a rule carries, where the impact is not known."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.builders import NOW, decoded
from tests.unit.admission.guarding import SECRET, UNKNOWN, ask, refusals, tainting
from webhook.admission.confirmation import ImpactToConfirm, Numbers, about_of, make_code
from webhook.policy.model import Action, ImpactSettings

TOLERANT = ImpactSettings(unknown_impact=Action.WARN)


def code_for(numbers: Numbers, *, name: str = "unhealthy-gpu", hours: int = 1) -> str:
    rule, _ = decoded(tainting(name=name))
    impact = ImpactToConfirm(numbers, frozenset(), frozenset())
    return make_code(about_of(rule, backdated=False), impact, "jane", NOW + timedelta(hours=hours), SECRET)


@pytest.mark.parametrize("numbers", [Numbers(0, 0, 0, 0), Numbers(8, 4, 4, 1)])
def test_code_for_any_impact_is_fine_while_the_impact_is_not_known(numbers: Numbers) -> None:
    assert refusals(ask(tainting(code=code_for(numbers)), cluster=UNKNOWN, impact=TOLERANT)) == []


@pytest.mark.parametrize(
    "code",
    [code_for(Numbers(0, 0, 0, 0), name="another"), code_for(Numbers(0, 0, 0, 0), hours=-1), "v1.1"],
    ids=["of another rule", "that has ended", "that is none"],
)
def test_code_with_a_fault_is_refused_though_the_impact_is_not_known(code: str) -> None:
    (text,) = refusals(ask(tainting(code=code), cluster=UNKNOWN, impact=TOLERANT))
    assert "is not known" not in text
