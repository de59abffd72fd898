"""The most that a rule may hit before `evict` stops."""

from __future__ import annotations

import pytest

from tests.builders import KEY
from tests.unit.eviction.objects import rule
from tests.unit.policy.documents import policy_of
from webhook.admission.confirmation import Numbers
from webhook.eviction.ceiling import Confirmation, ceiling_of
from webhook.eviction.ports import Ceiling
from webhook.policy.model import ImpactLimits, ImpactSettings, Policy, PolicyMode, RequesterMatch, Share, TaintMatch

TOTALS = Numbers(devices=1000, claims=800, pods=400, namespaces=20)
OPERATOR = RequesterMatch(service_accounts=("health/operator",))


def totals() -> Numbers:
    return TOTALS


def no_totals() -> Numbers:
    raise AssertionError("nobody gave a share")


def policy(*limits: ImpactLimits, tolerance: float = 10.0, mode: PolicyMode = PolicyMode.ENFORCE) -> Policy:
    return Policy(mode=mode, impact=ImpactSettings(limits=limits, tolerance_percent=tolerance))


@pytest.mark.parametrize(
    ("tolerance", "pods", "namespaces"), [(0.0, 100, 2), (10.0, 110, 2), (50.0, 150, 3)], ids=["none", "10 %", "50 %"]
)
@pytest.mark.parametrize("mode", PolicyMode)
def test_what_was_confirmed_is_the_ceiling_with_the_tolerance(
    tolerance: float, pods: int, namespaces: int, mode: PolicyMode
) -> None:
    confirmed = Confirmation(Numbers(devices=300, claims=200, pods=100, namespaces=2))
    limited = policy(ImpactLimits(pods=1), tolerance=tolerance, mode=mode)
    assert ceiling_of(rule(), limited, no_totals, confirmed) == Ceiling(pods, namespaces)


@pytest.mark.parametrize("mode", PolicyMode)
def test_code_that_is_not_proved_is_no_ceiling(mode: PolicyMode) -> None:
    """R5: the policy's limits hold, as far as they hold for others."""
    made_up = Confirmation(Numbers(999_999_999, 999_999_999, 999_999_999, 999_999_999), "it was made up")
    limited = policy(ImpactLimits(pods=7), mode=mode)
    found = ceiling_of(rule(), limited, no_totals, made_up)
    limits = Ceiling(7, None, confirmed=False, code_problem="it was made up")
    assert found == (limits if mode is PolicyMode.ENFORCE else None)
    assert ceiling_of(rule(), policy(ImpactLimits(pods=7)), no_totals) == limits._replace(code_problem="")


def test_annotation_that_is_no_code_confirms_nothing() -> None:
    limited = policy(ImpactLimits(pods=7, namespaces=3))
    assert ceiling_of(rule(), limited, no_totals, Confirmation(None)) == Ceiling(7, 3, confirmed=False)


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


def test_what_is_above_is_said_in_words() -> None:
    assert Ceiling(3, None).exceeded_by(3, 9) == ""
    assert Ceiling(3, None).exceeded_by(4, 9) == "hits 4 pods, at most 3 were confirmed"
    told = "hits pods in 9 namespaces, the limit is 8 and nothing was confirmed"
    assert Ceiling(None, 8, confirmed=False).exceeded_by(4, 9) == told
