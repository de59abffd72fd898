"""What the worker knows as findings: of the audit, about rules, about taints that look forgotten, about the policy.

Nothing in a finding may change by itself as time passes, or each pass would write all reports again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.admission.audit import AuditReason
from webhook.admission.lint import lint
from webhook.api.meta import GROUP
from webhook.eviction.conditions import EVICTION, ConditionReason, condition_of
from webhook.reports.findings import ReportFinding, ReportOutcome, ReportSeverity, ReportSubject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from webhook.admission.audit import AtRest
    from webhook.api.field import JSON
    from webhook.api.meta import NamespacedName
    from webhook.api.rules import DeviceTaintRule
    from webhook.api.slices import ResourceSlice
    from webhook.eviction.expiry import StaleTaints

POLICY: Final = "DeviceTaintPolicy"
"""`policy` of what the policy says about stored claims and templates, and of the policy itself."""
RULES_CHECKED: Final = "DeviceTaintRules"
"""`policy` of findings about rules."""
TAINTS_CHECKED: Final = "ForgottenTaints"
"""`policy` of rules and taints that look forgotten."""
_OF_TIME: Final = frozenset({"DT007", "DT008"})
"""Advice on timeAdded: for authors only, and it changes with each second."""
_STORED: Final = {
    AuditReason.REFUSED: (ReportOutcome.FAIL, ReportSeverity.HIGH),
    AuditReason.WARNED: (ReportOutcome.WARN, ReportSeverity.LOW),
    AuditReason.REFUSED_BY_CANDIDATE: (ReportOutcome.WARN, ReportSeverity.INFO),
    AuditReason.UNKNOWN_AUTHOR: (ReportOutcome.WARN, ReportSeverity.MEDIUM),
    AuditReason.MALFORMED: (ReportOutcome.ERROR, ReportSeverity.HIGH),
}
_CONDITIONS: Final = {
    ConditionReason.STOPPED.value: (ReportOutcome.FAIL, ReportSeverity.HIGH),
    ConditionReason.BLOCKED.value: (ReportOutcome.WARN, ReportSeverity.MEDIUM),
    ConditionReason.HELD_BY_POD_GROUP.value: (ReportOutcome.WARN, ReportSeverity.MEDIUM),
    ConditionReason.RETURNS_TO_DEVICE.value: (ReportOutcome.WARN, ReportSeverity.MEDIUM),
}


def of_stored(value: JSON, found: Iterable[AtRest]) -> Iterator[ReportFinding]:
    """What the audit found about one claim or template; `value` has its kind and version."""
    assert isinstance(value, dict)
    meta = value["metadata"]
    texts = [str(meta.get(field) or "") for field in ("name", "namespace", "uid")]
    subject = ReportSubject(str(value.get("apiVersion")), str(value.get("kind")), *texts)
    for each in found:
        outcome, severity = _STORED[each.reason]
        properties = (("author", each.author.value), ("field", each.finding.error.field), ("reason", each.reason.value))
        message = str(each.finding)
        yield ReportFinding(subject, POLICY, each.finding.name, outcome, severity, message, properties)


def of_rule(rule: DeviceTaintRule, version: str, now: datetime) -> Iterator[ReportFinding]:
    """Advice on a stored rule, and why pods are not evicted for it. `version`: that of rules, such as `v1`."""
    subject = _rule_subject(rule, version)
    for finding in lint(rule, None, now):
        if finding.code not in _OF_TIME:
            properties = (("field", finding.error.field),)
            weight = ReportOutcome.WARN, ReportSeverity.LOW
            yield ReportFinding(subject, RULES_CHECKED, finding.name, *weight, str(finding), properties)
    condition = condition_of(rule.conditions, EVICTION)
    if condition is not None and condition.reason in _CONDITIONS:
        weight = _CONDITIONS[condition.reason]
        yield ReportFinding(subject, RULES_CHECKED, f"Eviction{condition.reason}", *weight, condition.message)


def of_stale(
    stale: StaleTaints, rules: Iterable[DeviceTaintRule], slices: Iterable[ResourceSlice], version: str
) -> Iterator[ReportFinding]:
    """Rules and taints of slices that look forgotten; `rules` and `slices` are those of the inventory."""
    gone, idle = set(stale.rules_without_devices), set(stale.idle_rules)
    for rule in rules:
        if rule.meta.name in gone:
            yield _forgotten(_rule_subject(rule, version), "RuleWithoutDevices", "selects no device")
        if rule.meta.name in idle:
            yield _forgotten(_rule_subject(rule, version), "IdleRule", "its devices have not been in use for days")
    taints: dict[tuple[str, str, str], list[str]] = {}
    for driver, pool, device, key in stale.old_slice_taints:
        taints.setdefault((driver, pool, device), []).append(key)
    for each in slices if taints else ():
        subject = ReportSubject(f"{GROUP}/{version}", "ResourceSlice", each.meta.name, uid=each.meta.uid)
        for published in each.devices:
            for key in taints.get((each.driver, each.pool, published.name), ()):
                yield _forgotten(subject, "OldSliceTaint", f"device {published.name} has had taint {key} for days")


def of_policy(failure: str, config_map: NamespacedName | None) -> Iterator[ReportFinding]:
    """Why the policy last written is not in use, about its ConfigMap; nothing if it is, or if it is in a file."""
    if failure and config_map is not None:
        subject = ReportSubject("v1", "ConfigMap", config_map.name, config_map.namespace)
        yield ReportFinding(subject, POLICY, "PolicyNotLoaded", ReportOutcome.ERROR, ReportSeverity.HIGH, failure)


def _rule_subject(rule: DeviceTaintRule, version: str) -> ReportSubject:
    return ReportSubject(f"{GROUP}/{version}", "DeviceTaintRule", rule.meta.name, uid=rule.meta.uid)


def _forgotten(subject: ReportSubject, rule: str, message: str) -> ReportFinding:
    return ReportFinding(subject, TAINTS_CHECKED, rule, ReportOutcome.WARN, ReportSeverity.LOW, message)
