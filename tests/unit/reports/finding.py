"""Findings for the tests of reports."""

from __future__ import annotations

from typing import Any

from webhook.reports.findings import ReportFinding, ReportOutcome, ReportSeverity, ReportSubject


def make_subject(name: str = "c", namespace: str = "train", **fields: Any) -> ReportSubject:
    given = {"api_version": "resource.k8s.io/v1", "kind": "ResourceClaim", "uid": f"uid-{name}", **fields}
    return ReportSubject(name=name, namespace=namespace, **given)


def make_finding(
    name: str = "c", namespace: str = "train", rule: str = "no-broken", message: str = "must not be", **fields: Any
) -> ReportFinding:
    given = {"outcome": ReportOutcome.FAIL, "severity": ReportSeverity.HIGH, "policy": "DeviceTaintPolicy", **fields}
    return ReportFinding(subject=make_subject(name, namespace), rule=rule, message=message, **given)
