"""What reviews find: how it is counted and logged, and what the next reviews know."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.builders import make_claim, make_meta, make_review, make_toleration
from tests.unit.admission.guarding import fleet, node, tainting
from tests.unit.inventory.values import inventory_of
from tests.unit.policy.documents import judge_of, make_entry, policy_of
from tests.unit.server.asking import CLAIM, reviewed
from tests.unit.server.doubles import Clock
from webhook.inventory.state import Sight
from webhook.policy.decide import Judge, PolicyStore
from webhook.policy.model import ImpactLimits, ImpactSettings, Policy, PolicyMode, Softening
from webhook.server.state import AssumedRules, ReviewState
from webhook.telemetry.reviews import PolicyMetrics

if TYPE_CHECKING:
    from collections.abc import Callable


def test_rules_that_matched_are_counted_and_so_is_what_a_candidate_would_do() -> None:
    state = ReviewState(
        PolicyStore(
            judge_of(make_entry("noted", "audit"), make_entry("told", "warn"), make_entry("fine", "allow")),
            judge_of(make_entry("candidate-rule", "deny")),
        )
    )
    answer = reviewed(state, CLAIM)
    metrics = answer["metrics"]
    assert answer["allowed"]
    found = {labels: value for labels, value in metrics.items() if labels[0] == "policy_decisions_total"}
    assert found == {
        ("policy_decisions_total", "noted", "audit"): 1,
        ("policy_decisions_total", "told", "warn"): 1,
        ("policy_decisions_total", "fine", "allow"): 1,
    }
    assert metrics["policy_candidate_differences_total", "candidate-rule", "denied"] == 1


LEFT_OUT = make_claim([make_toleration(key=None, operator="Equal", value=None)])
GUARDED = Policy(impact=ImpactSettings(limits=(ImpactLimits(pods=1),), break_glass_groups=("oncall",)))


def guarded(mode: PolicyMode) -> ReviewState:
    """Four nodes with a pod each, one of which may go."""
    sight = Sight(inventory_of(*fleet()))
    return ReviewState(PolicyStore(Judge(structs.replace(GUARDED, mode=mode))), sight=lambda: sight)


def ruled(mode: PolicyMode) -> ReviewState:
    """A policy that denies every toleration."""
    return ReviewState(PolicyStore(Judge(policy_of(mode=mode, rules=[make_entry("no-team", "deny")]))))


def found(answer: dict[str, Any]) -> dict[tuple[str, str], float]:
    """The findings that were counted, by rule and severity."""
    return {key[1:]: value for key, value in answer["metrics"].items() if key[0] == "findings_total" and value}


@pytest.mark.parametrize(
    ("state", "manifest", "rule"),
    [
        pytest.param(ruled, make_claim([make_toleration()]), "no-team", id="policy"),
        pytest.param(
            lambda mode: ReviewState(PolicyStore(Judge(Policy(mode=mode)))),
            LEFT_OUT,
            "documented",
            id="documented rule",
        ),
        pytest.param(guarded, tainting(), "impact", id="guard"),
    ],
)
def test_mode_warn_counts_what_mode_enforce_refuses(
    state: Callable[[PolicyMode], ReviewState], manifest: Any, rule: str, caplog: pytest.LogCaptureFixture
) -> None:
    """M2: requests and findings alike."""
    with caplog.at_level(logging.INFO, logger="webhook.server.http"):
        warned, refused, off = (
            reviewed(state(mode), make_review(manifest))
            for mode in (PolicyMode.WARN, PolicyMode.ENFORCE, PolicyMode.OFF)
        )
    resource = make_review(manifest)["request"]["resource"]["resource"]
    assert [answer["allowed"] for answer in (warned, refused, off)] == [True, False, True]
    assert [answer["metrics"]["reviews_turned_down_total", resource] for answer in (warned, refused, off)] == [1, 0, 0]
    assert found(warned)[rule, "would_deny"] == found(refused)[rule, "deny"] == 1
    assert (rule, "would_deny") not in found(refused)
    assert not {severity for _, severity in found(off)} & {"deny", "would_deny"}
    told, denied = caplog.records[:2]
    assert (rule in vars(told)["rules"], vars(told)["turnedDown"]) == (True, True)
    assert (rule in vars(denied)["rules"], "turnedDown" in vars(denied)) == (True, False)


GENERATED = {"resource.kubernetes.io/pod-claim-name": "gpu"}


@pytest.mark.parametrize("generated", ["warn", "enforce"])
def test_what_mode_enforce_would_let_pass_as_well_is_not_counted_as_refused(generated: str) -> None:
    """M2: a claim made from a template is only warned of unless generatedClaims says otherwise."""
    claim = make_claim([make_toleration()], meta=make_meta("c", namespace="ml", annotations=GENERATED))
    review = make_review(claim, user="system:serviceaccount:kube-system:resource-claim-controller")
    state = ReviewState(
        PolicyStore(Judge(policy_of(mode="warn", generatedClaims=generated, rules=[make_entry("no-team", "deny")])))
    )
    counted = reviewed(state, review)["metrics"]["reviews_turned_down_total", "resourceclaims"]
    assert counted == (generated == "enforce")


def test_broken_glass_has_a_log_line_and_a_number_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """M2."""
    with caplog.at_level(logging.INFO, logger="webhook.server.http"):
        answer = reviewed(guarded(PolicyMode.ENFORCE), make_review(tainting(), groups=["oncall"], user="jane"))
    assert answer["allowed"]
    assert found(answer)["break-glass", "warn"] == 1
    assert answer["metrics"]["reviews_turned_down_total", "devicetaintrules"] == 0
    review, glass = caplog.records
    assert (glass.levelname, glass.getMessage()) == (
        "WARNING",
        "impact limits bypassed by a member of a break-glass group",
    )
    assert (vars(glass)["user"], vars(glass)["object"]) == ("jane", "unhealthy-gpu")
    assert vars(glass)["impact"] == vars(review)["impact"]
    assert vars(glass)["impact"].endswith(" break-glass")


def test_findings_are_counted_under_rules_in_use_and_names_of_our_own_only() -> None:
    """M2."""
    policy = PolicyMetrics()
    policy.use(["known"], [])
    for name in ("known", "DT001", "impact", "gone", "DT1", "DT0001", "impactful"):
        policy.count_finding(name, "warn")
    policy.use([], [])
    counted = {
        (sample.labels["rule"], sample.labels["severity"]): sample.value
        for family in policy.collect()
        for sample in family.samples
        if sample.name == "device_taint_webhook_findings_total" and sample.value
    }
    assert counted == {("DT001", "warn"): 1, ("impact", "warn"): 1, ("other", "warn"): 4}


SOFTENING = ImpactSettings(limits=(ImpactLimits(pods=1, soften=Softening.OVER),))


def test_rule_that_is_softened_is_counted_once() -> None:
    """Not when it is sent again, nor in a dry run."""
    sight = Sight(inventory_of(*fleet()))
    state = ReviewState(PolicyStore(Judge(Policy(impact=SOFTENING))), sight=lambda: sight)
    state.worker_problem = lambda: "no worker evicts"
    first = reviewed(state, make_review(tainting()), path="/mutate")
    assert first["metrics"]["softened_rules_total",] == 1
    assert "no worker evicts" in first["warnings"][0]
    marks = {"devicetaint.io/evict": "true", "devicetaint.io/softened-from": "NoExecute"}
    stored = tainting(effect="NoSchedule", annotations=marks)
    assert reviewed(state, make_review(tainting(), stored), path="/mutate")["metrics"]["softened_rules_total",] == 0
    tried = reviewed(state, make_review(tainting(), dryRun=True), path="/mutate")
    assert tried["metrics"]["softened_rules_total",] == 0


def test_rule_that_mutate_leaves_counts_for_the_next_one() -> None:
    """Of rules that come at once, /mutate answers several before /validate sees the first."""
    sight = Sight(inventory_of(*fleet()))
    policies = PolicyStore(Judge(Policy(impact=SOFTENING)))
    state = ReviewState(policies, sight=lambda: sight, assumed_rules=AssumedRules(Clock()))
    now = datetime.now(UTC)  # noqa: TID251 -- as the server under test does
    first, second = (make_review(tainting(node(number), name=f"r-{number}", added=now)) for number in range(2))
    assert "patch" not in reviewed(state, first, path="/mutate")
    assert "patch" in reviewed(state, second, path="/mutate")
