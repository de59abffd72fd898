"""The objects that hold findings."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from tests.unit.reports.finding import make_finding
from webhook.reports.findings import ReportFinding, ReportOutcome, ReportSeverity
from webhook.reports.objects import ReportId, ReportObject, report_objects

MEBIBYTE: Final = 1024 * 1024
NAME: Final = "device-taint-webhook"


def stored_bytes(obj: ReportObject) -> int:
    """The size of the object in etcd: Go's JSON escapes some characters more than it must."""
    manifest = obj.manifest(dict.fromkeys(obj.findings, 1_800_000_000))
    text = json.dumps(manifest, ensure_ascii=False, separators=(",", ":"))
    return len(re.sub("[<>&]", r"\\u003c", text).encode())


def of(*findings: ReportFinding) -> dict[ReportId, ReportObject]:
    return {each.identity: each for each in report_objects(findings)}


def manifest_of(*findings: ReportFinding, at: int = 1_800_000_000) -> dict[str, Any]:
    [obj] = report_objects(findings)
    return obj.manifest(dict.fromkeys(obj.findings, at))


def test_ten_thousand_findings_are_in_objects_below_a_mebibyte() -> None:
    message = 'spec.devices.requests[0].exactly.tolerations[0]: Forbidden: <"&> ' + "x" * 400
    findings = [make_finding(f"claim-{number}", message=message) for number in range(10_000)]
    objects = list(report_objects(findings))
    assert sum(len(each.findings) for each in objects) == 10_000
    assert all(stored_bytes(each) < MEBIBYTE for each in objects)
    assert len(objects) <= 40
    assert len({each.identity for each in objects}) == len(objects)
    assert all(re.fullmatch(rf"{NAME}-[01]+", each.identity.name) for each in objects)


def test_a_change_of_one_finding_among_ten_thousand_changes_one_object() -> None:
    def digests(changed: str) -> dict[ReportId, str]:
        findings = [make_finding(f"claim-{number}", message="x" * 600) for number in range(10_000)]
        findings[77] = make_finding("claim-77", message=changed)
        return {each.identity: each.digest for each in report_objects(findings)}

    before, after = digests("one"), digests("two")
    assert before.keys() == after.keys()
    assert len([identity for identity, digest in after.items() if before[identity] != digest]) == 1


def test_messages_and_findings_without_end_are_cut() -> None:
    worst = "<" * 100_000
    findings = [make_finding(f"c{n % 40}", rule=f"r{n:05}", message=worst) for n in range(8_000)]
    objects = list(report_objects(findings))
    assert all(stored_bytes(each) < MEBIBYTE for each in objects)
    shown = [each for obj in objects for each in obj.findings if each.subject.name == "c0"]
    assert len(shown) == 65
    assert [each.message for each in shown if each.rule == "more"] == ["136 more findings"]


def test_each_namespace_has_its_report_and_the_cluster_has_one() -> None:
    found = of(make_finding(namespace="a"), make_finding(namespace="b"), make_finding(namespace=""))
    assert {(each.kind, each.namespace, each.name) for each in found} == {
        ("Report", "a", NAME),
        ("Report", "b", NAME),
        ("ClusterReport", "", NAME),
    }
    assert (
        "namespace"
        not in found[ReportId("", NAME)].manifest(dict.fromkeys([make_finding(namespace="")], 1))["metadata"]
    )


def test_a_report_says_what_policy_reporter_shows() -> None:
    manifest = manifest_of(make_finding(properties=(("field", "spec"),)))
    assert manifest["apiVersion"] == "openreports.io/v1alpha1"
    assert manifest["metadata"]["labels"]["app.kubernetes.io/managed-by"] == NAME
    assert "scope" not in manifest
    assert manifest["results"] == [
        {
            "source": NAME,
            "policy": "DeviceTaintPolicy",
            "rule": "no-broken",
            "category": "Device Taints",
            "severity": "high",
            "result": "fail",
            "scored": True,
            "resources": [
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaim",
                    "name": "c",
                    "namespace": "train",
                    "uid": "uid-c",
                }
            ],
            "message": "must not be",
            "properties": {"field": "spec"},
            "timestamp": {"seconds": 1_800_000_000, "nanos": 0},
        }
    ]


def test_the_summary_counts_results_by_outcome() -> None:
    manifest = manifest_of(
        make_finding(rule="a"),
        make_finding(rule="b", outcome=ReportOutcome.WARN, severity=ReportSeverity.LOW),
        make_finding(rule="c", outcome=ReportOutcome.WARN, severity=ReportSeverity.LOW),
        make_finding(rule="d", outcome=ReportOutcome.ERROR),
    )
    assert manifest["summary"] == {"pass": 0, "fail": 1, "warn": 2, "error": 1, "skip": 0}


def test_the_digest_changes_with_the_content_and_not_with_times() -> None:
    [one], [same] = report_objects([make_finding()]), report_objects([make_finding()])
    [other] = report_objects([make_finding(message="something else")])
    assert one.digest == same.digest != other.digest
    assert len(one.digest) == 32
    annotations = [manifest_of(make_finding(), at=at)["metadata"]["annotations"] for at in (1, 2)]
    assert annotations[0] == annotations[1] == {"devicetaint.io/report-digest": one.digest}


def test_a_finding_that_comes_twice_counts_once() -> None:
    [obj] = report_objects([make_finding(), make_finding()])
    assert len(obj.findings) == 1


@pytest.mark.parametrize(
    ("length", "expected"),
    [(1023, "x" * 1023), (1024, "x" * 1024), (1025, f"{'x' * 1021}..."), (2000, "x" * 1021 + "...")],
)
def test_message_of_more_than_1024_characters_is_cut(length: int, expected: str) -> None:
    [obj] = report_objects([make_finding(message="x" * length)])
    assert [each.message for each in obj.findings] == [expected]


@pytest.mark.parametrize(("number", "more"), [(63, []), (64, []), (65, ["1 more finding"]), (66, ["2 more findings"])])
def test_subject_has_at_most_64_findings(number: int, more: list[str]) -> None:
    [obj] = report_objects([make_finding(rule=f"r{each:02}") for each in range(number)])
    rules = [each.rule for each in obj.findings if each.rule != "more"]
    assert rules == [f"r{each:02}" for each in range(min(number, 64))]
    assert [each.message for each in obj.findings if each.rule == "more"] == more


def test_what_is_not_refused_is_not_scored_and_what_is_unknown_left_out() -> None:
    finding = make_finding("r", "", outcome=ReportOutcome.WARN)
    finding = finding._replace(subject=finding.subject._replace(uid=""))
    [result] = manifest_of(finding)["results"]
    assert (result["scored"], "properties" in result) == (False, False)
    assert result["resources"] == [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "name": "r"}]
