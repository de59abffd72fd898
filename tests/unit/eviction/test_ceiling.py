"""The most that a rule may hit before `evict` stops."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import KEY
from tests.unit.eviction.objects import rule
from tests.unit.policy.documents import policy_of
from webhook.admission.confirmation import Numbers
from webhook.api.rules import CONFIRM_IMPACT, EVICT, SOFTENED_FROM, DeviceTaintRule
from webhook.eviction.ceilings import Confirmed, ceiling_of
from webhook.eviction.ports import Ceiling, JudgedWhole
from webhook.policy.model import (
    ImpactLimits,
    ImpactSettings,
    Policy,
    PolicyMode,
    RequesterMatch,
    Share,
    Softening,
    TaintMatch,
)

TOTALS = Numbers(devices=1000, claims=800, pods=400, namespaces=20)
OPERATOR = RequesterMatch(service_accounts=("health/operator",))


def totals() -> Numbers:
    return TOTALS


def no_totals() -> Numbers:
    raise AssertionError("nobody gave a share")


def policy(*limits: ImpactLimits, tolerance: float = 10.0, mode: PolicyMode = PolicyMode.ENFORCE) -> Policy:
    return Policy(mode=mode, impact=ImpactSettings(limits=limits, tolerance_percent=tolerance))


@pytest.mark.parametrize("mode", PolicyMode)
def test_what_was_confirmed_is_the_ceiling(mode: PolicyMode) -> None:
    found = ceiling_of(rule(), policy(ImpactLimits(pods=1), mode=mode), no_totals, Confirmed(110, 3))
    assert found == Ceiling(110, 3)


@pytest.mark.parametrize("mode", PolicyMode)
def test_text_that_does_not_count_is_no_ceiling(mode: PolicyMode) -> None:
    """R5: the policy's limits hold, as they hold for others."""
    limited = policy(ImpactLimits(pods=7), mode=mode)
    found = ceiling_of(rule(), limited, no_totals, Confirmed(problem="it was made up"))
    limits = Ceiling(7, None, confirmed=False, text_problem="it was made up")
    assert found == (limits if mode is PolicyMode.ENFORCE else None)
    assert ceiling_of(rule(), policy(ImpactLimits(pods=7)), no_totals) == limits._replace(text_problem="")


@pytest.mark.parametrize(
    ("limits", "pods"),
    [
        pytest.param((ImpactLimits(requesters=OPERATOR, pods=200), ImpactLimits(pods=50)), 200, id="whoever may most"),
        pytest.param((ImpactLimits(requesters=OPERATOR, pods=20), ImpactLimits(pods=50)), 50, id="or everybody"),
        pytest.param(
            (ImpactLimits(OPERATOR, TaintMatch(keys=("other/*",)), pods=200), ImpactLimits(pods=50)),
            50,
            id="limits for other taints do not count",
        ),
        pytest.param(
            (ImpactLimits(taints=TaintMatch(keys=(KEY,)), pods=5), ImpactLimits(pods=50)),
            5,
            id="the first that holds for everybody is the last that may hold",
        ),
        pytest.param(
            (ImpactLimits(taints=TaintMatch(effects=("NoSchedule",)), pods=5), ImpactLimits(pods=50)),
            50,
            id="the effect counts",
        ),
        pytest.param((ImpactLimits(pods=Share(5)),), 20, id="a share"),
        pytest.param((ImpactLimits(requesters=OPERATOR), ImpactLimits(pods=50)), None, id="one without limits"),
        pytest.param((), None, id="no limits at all"),
    ],
)
def test_without_confirmation_the_widest_limit_that_may_hold_does(
    limits: tuple[ImpactLimits, ...], pods: int | None
) -> None:
    found = ceiling_of(rule(), policy(*limits), totals)
    assert found == (None if pods is None else Ceiling(pods, None, confirmed=False))


def test_limits_that_a_document_does_not_name_stop_the_worker_too() -> None:
    limited = policy_of(impact={"limits": [{"devices": "5%"}]})
    assert ceiling_of(rule(), limited, no_totals) == Ceiling(50, 10, confirmed=False)
    lifted = policy_of(impact={"limits": [{"pods": None, "devices": "5%"}]})
    assert ceiling_of(rule(), lifted, no_totals) == Ceiling(None, 10, confirmed=False)


def test_rule_that_asks_for_eviction_is_limited_as_one_that_evicts() -> None:
    limits = (ImpactLimits(taints=TaintMatch(effects=("NoExecute",)), pods=5), ImpactLimits(pods=50))
    found = ceiling_of(rule(effect="NoSchedule", evict=True), policy(*limits), no_totals)
    assert found == Ceiling(5, None, confirmed=False)


@pytest.mark.parametrize("mode", [PolicyMode.WARN, PolicyMode.OFF])
def test_where_nothing_was_refused_nothing_is_stopped(mode: PolicyMode) -> None:
    assert ceiling_of(rule(), policy(ImpactLimits(pods=1), mode=mode), no_totals) is None


SOFT = ImpactLimits(OPERATOR, pods=20, namespaces=5, soften=Softening.OVER)
ADMINS = ImpactLimits(RequesterMatch(groups=("admins",)))
OTHER_SOFT = ImpactLimits(RequesterMatch(users=("u",)), pods=Share(10), soften=Softening.ALWAYS)


def softened(**fields: Any) -> DeviceTaintRule:
    return rule(effect="NoSchedule", annotations={EVICT: "true", SOFTENED_FROM: "NoExecute"}, **fields)


@pytest.mark.parametrize(
    ("limits", "pods", "namespaces"),
    [
        pytest.param((ADMINS, SOFT, ImpactLimits(pods=50)), 20, 5, id="its own, though others may more"),
        pytest.param((SOFT, ImpactLimits(pods=7, namespaces=1)), 20, 5, id="and those who are refused may less"),
        pytest.param((SOFT, OTHER_SOFT, ADMINS), 20, 5, id="the lowest of those that soften"),
        pytest.param((ImpactLimits(OPERATOR, soften=Softening.OVER), OTHER_SOFT), 40, None, id="a share"),
        pytest.param((ADMINS, ImpactLimits(pods=50)), 50, None, id="of all, where the policy softens no longer"),
        pytest.param((ADMINS,), None, None, id="none at all"),
    ],
)
def test_softened_rule_has_the_lowest_limit_that_may_have_softened_it(
    limits: tuple[ImpactLimits, ...], pods: int | None, namespaces: int | None
) -> None:
    found = ceiling_of(softened(), policy(*limits), totals, protected=sorted)
    assert found == Ceiling(pods, namespaces, confirmed=False, softened=True, protected=sorted)
    found = ceiling_of(softened(), policy(*limits), totals, Confirmed(problem="made up"))
    assert found == Ceiling(pods, namespaces, confirmed=False, softened=True, text_problem="made up")


def test_softened_rule_that_is_confirmed_has_what_was_confirmed() -> None:
    assert ceiling_of(softened(), policy(SOFT), no_totals, Confirmed(110, 2), sorted) == Ceiling(110, 2)


@pytest.mark.parametrize("mode", PolicyMode)
def test_softened_rule_waits_in_every_mode(mode: PolicyMode) -> None:
    """Else the switch that is for emergencies would evict what waits for a confirmation."""
    expected = Ceiling(20, 5, confirmed=False, softened=True)
    assert ceiling_of(softened(), policy(SOFT, mode=mode), no_totals) == expected


TO_CONFIRM = (
    "its devices stay closed, and its pods stay until devicetaint.io/confirm-impact confirms them: set to any text,"
    " such as renew, it is refused, and the refusal contains the right one"
)


def test_what_is_above_for_a_softened_rule_names_the_way_to_confirm() -> None:
    ceiling = Ceiling(3, None, confirmed=False, softened=True, protected=lambda names: [n for n in names if "sys" in n])
    assert ceiling.exceeded_by(3, 2, ["a", "b"]) == ""
    assert ceiling.exceeded_by(4, 2) == f"hits 4 pods, the limit is 3 and nothing was confirmed; {TO_CONFIRM}"
    found = ceiling.exceeded_by(1, 3, ["x-sys", "b", "a-sys"])
    assert found == f"hits pods in protected namespace a-sys, and nothing was confirmed; {TO_CONFIRM}"
    forged = ceiling._replace(text_problem="made up").exceeded_by(1, 1, ["sys"])
    assert forged.startswith("hits pods in protected namespace sys, and its confirmation does not count: made up; ")


def test_what_is_above_is_said_in_words() -> None:
    assert Ceiling(3, None).exceeded_by(3, 9) == ""
    assert Ceiling(3, None).exceeded_by(4, 9) == "hits 4 pods, at most 3 were confirmed"
    told = "hits pods in 9 namespaces, the limit is 8 and nothing was confirmed"
    assert Ceiling(None, 8, confirmed=False).exceeded_by(4, 9) == told


WHOLE = JudgedWhole("ResourceSlicePatch firmware", "all of its rules")


def test_ceiling_of_several_rules_names_what_was_judged() -> None:
    ceiling = Ceiling(3, None, whole=WHOLE)
    assert ceiling.exceeded_by(3, 9) == ""
    expected = "ResourceSlicePatch firmware, with all of its rules, hits 4 pods, at most 3 were confirmed"
    assert ceiling.exceeded_by(4, 9) == expected
    soft = ceiling._replace(confirmed=False, softened=True, protected=frozenset({"sys"}).intersection)
    where = f"its pods stay until {CONFIRM_IMPACT} on ResourceSlicePatch firmware confirms them: set to any text"
    assert where in soft.exceeded_by(4, 9)
    protected = "ResourceSlicePatch firmware, with all of its rules, hits pods in protected namespace sys, and nothing"
    assert soft.exceeded_by(1, 1, ["sys"]).startswith(protected)
