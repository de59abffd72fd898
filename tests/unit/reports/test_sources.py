"""What the worker knows, as findings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.builders import (
    decoded,
    make_claim,
    make_condition,
    make_device,
    make_meta,
    make_rule,
    make_slice,
    make_taint,
)
from webhook.admission.audit import AtRest, AuditReason, Author
from webhook.api.field import Finding, Path, Severity, forbidden
from webhook.api.meta import NamespacedName
from webhook.eviction.expiry import StaleTaints
from webhook.reports.sources import of_policy, of_rule, of_stale, of_stored

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
FIELD = Path.root().child("spec")


def rule_of(*conditions: Any, **fields: Any) -> Any:
    return decoded(make_rule(meta=make_meta("r", uid="u1"), conditions=conditions, **fields))[0]


def named(findings: Any) -> list[tuple[str, str, str]]:
    return [(each.subject.name, each.rule, each.outcome.value) for each in findings]


@pytest.mark.parametrize(
    ("reason", "outcome", "severity"),
    [
        (AuditReason.REFUSED, "fail", "high"),
        (AuditReason.WARNED, "warn", "low"),
        (AuditReason.REFUSED_BY_CANDIDATE, "warn", "info"),
        (AuditReason.UNKNOWN_AUTHOR, "warn", "medium"),
        (AuditReason.MALFORMED, "error", "high"),
    ],
)
def test_a_finding_of_the_audit_keeps_its_rule_and_its_reason(reason: AuditReason, outcome: str, severity: str) -> None:
    claim = make_claim(meta=make_meta("c", namespace="train", uid="u1"))
    found = AtRest("resourceclaims", reason, Author.CLAIMED, Finding(Severity.DENY, forbidden(FIELD, "no"), rule="r"))
    [finding] = of_stored(claim, [found])
    assert finding.subject == ("resource.k8s.io/v1", "ResourceClaim", "c", "train", "u1")
    assert (finding.rule, finding.outcome.value, finding.severity.value) == ("r", outcome, severity)
    assert finding.message == "spec: Forbidden: no"
    assert dict(finding.properties) == {"author": "claimed", "field": "spec", "reason": reason.value}


def test_advice_on_a_stored_rule_is_reported_and_does_not_change_as_time_passes() -> None:
    rule = rule_of(selector={}, taint=make_taint(effect="NoExecute", timeAdded="2026-01-01T00:00:00Z"))
    findings = list(of_rule(rule, "v1", NOW))
    assert named(findings) == [("r", "DT011", "warn")]
    assert findings[0].subject == ("resource.k8s.io/v1", "DeviceTaintRule", "r", "", "u1")
    assert list(of_rule(rule, "v1", NOW + timedelta(days=3))) == findings


@pytest.mark.parametrize(
    ("reason", "outcomes"),
    [
        ("Stopped", ["fail"]),
        ("Blocked", ["warn"]),
        ("HeldByPodGroup", ["warn"]),
        ("ReturnsToDevice", ["warn"]),
        ("Evicting", []),
        ("Completed", []),
    ],
)
def test_a_rule_for_which_pods_cannot_be_evicted_is_reported(reason: str, outcomes: list[str]) -> None:
    condition = make_condition(type="devicetaint.io/Eviction", reason=reason, message="hits 60 pods, the limit is 50")
    findings = [each for each in of_rule(rule_of(condition), "v1", NOW) if each.rule.startswith("Eviction")]
    assert [each.outcome.value for each in findings] == outcomes
    assert all(each.message == "hits 60 pods, the limit is 50" for each in findings)


def test_forgotten_taints_are_about_their_rule_or_slice() -> None:
    rule = rule_of()
    published = decoded(make_slice(devices=[make_device("gpu-0"), make_device("gpu-1")]))[0]
    place = (published.driver, published.pool, "gpu-1")
    stale = StaleTaints(("r",), ("r", "gone"), ((*place, "a.example.com/x"), (*place, "a.example.com/y")))
    findings = list(of_stale(stale, [rule], [published], "v1"))
    assert named(findings) == [
        ("r", "RuleWithoutDevices", "warn"),
        ("r", "IdleRule", "warn"),
        (published.meta.name, "OldSliceTaint", "warn"),
        (published.meta.name, "OldSliceTaint", "warn"),
    ]
    assert findings[2].message == "device gpu-1 has had taint a.example.com/x for days"


def test_a_policy_that_cannot_be_loaded_is_an_error_of_its_config_map() -> None:
    [finding] = of_policy("rules[0].action: Required value", NamespacedName("ns", "policy"))
    assert finding.subject == ("v1", "ConfigMap", "policy", "ns", "")
    assert (finding.rule, finding.outcome.value) == ("PolicyNotLoaded", "error")
    assert list(of_policy("", NamespacedName("ns", "policy"))) == []
    assert list(of_policy("bad", None)) == []
