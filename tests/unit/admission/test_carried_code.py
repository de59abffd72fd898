"""The code that a rule carries, where the impact is not known."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.builders import NOW, decoded
from tests.unit.admission.guarding import SECRET, UNKNOWN, ask, node, refusals, tainting, told
from webhook.admission.confirmation import NOTHING, ImpactToConfirm, Numbers, about_of, is_proved, make_code
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


@pytest.mark.parametrize("backdated", [False, True])
def test_code_is_proved_whether_the_time_of_the_rule_was_past_or_not(*, backdated: bool) -> None:
    plain, _ = decoded(tainting())
    code = make_code(about_of(plain, backdated=backdated), NOTHING, "jane", NOW, SECRET)
    rule, _ = decoded(tainting(code=code))
    assert is_proved(rule, SECRET)
    assert not is_proved(rule, b"x" * 32)
    assert not is_proved(plain, SECRET)


def test_code_that_is_replaced_is_judged_and_not_said_to_be_left_behind() -> None:
    """Where there is no cluster, only the new code is looked at."""
    stored = tainting(code=code_for(Numbers(8, 4, 4, 1)))
    decision = ask(tainting(code="v1.1"), stored, sight=None)
    assert told(decision) == [("deny", "is not a code as this webhook makes them")]


def test_code_that_stays_is_not_looked_at_without_a_key() -> None:
    code = code_for(Numbers(8, 4, 4, 1))
    assert told(ask(tainting(node(0), code=code), tainting(code=code), key=None)) == []
