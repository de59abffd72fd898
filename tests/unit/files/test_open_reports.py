"""A report as OpenReports: a Report for each namespace, and results with one object each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW
from webhook.files.open_reports import open_reports
from webhook.files.report import UNREADABLE, Entry, Level, Report, Row

REFUSED = Entry(Level.ERROR, "Forbidden: no", field="spec.x", reason="FieldValueForbidden", rule="no-broken")


def row(*entries: Entry, namespace: str = "ml", name: str = "train") -> Row:
    return Row("cluster", 1, None, "resource.k8s.io/v1", "ResourceClaim", namespace, name, entries=entries)


def reports(*rows: Row, namespaces: tuple[str, ...] = ()) -> dict[tuple[str, str], Any]:
    """By namespace and name."""
    found = Report()
    for each in rows:
        found.add(each)
    made = open_reports(found, namespaces, NOW)
    return {(each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in made}


def test_finding_is_a_result_about_its_object() -> None:
    found = reports(row(REFUSED))
    assert list(found) == [("", "device-taint-webhook"), ("ml", "device-taint-webhook")]
    report = found["ml", "device-taint-webhook"]
    assert report["summary"] == {"pass": 0, "fail": 1, "warn": 0, "error": 0, "skip": 0}
    assert report["results"] == [
        {
            "source": "device-taint-webhook",
            "policy": "DeviceTaintPolicy",
            "rule": "no-broken",
            "category": "Device Taints",
            "severity": "high",
            "result": "fail",
            "scored": True,
            "resources": [
                {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "name": "train", "namespace": "ml"}
            ],
            "message": "spec.x: Forbidden: no",
            "properties": {"field": "spec.x", "reason": "FieldValueForbidden"},
            "timestamp": {"seconds": int(NOW.timestamp()), "nanos": 0},
        }
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        pytest.param(Entry(Level.WARNING, "odd", code="DT001"), ("warn", "low", "DT001"), id="a warning"),
        pytest.param(Entry(Level.ERROR, "odd", reason=UNREADABLE), ("error", "high", UNREADABLE), id="not readable"),
        pytest.param(Entry(Level.ERROR, "odd", reason="X"), ("fail", "high", "X"), id="by no rule"),
    ],
)
def test_outcome_follows_the_level(entry: Entry, expected: tuple[str, str, str]) -> None:
    (result,) = reports(row(entry))["ml", "device-taint-webhook"]["results"]
    assert (result["result"], result["severity"], result["rule"]) == expected


def test_namespace_without_findings_has_a_report_without_results() -> None:
    found = reports(row(Entry(Level.INFO, "fine"), namespace="web"), namespaces=("ml", "web"))
    assert [namespace for namespace, _ in found] == ["", "ml", "web"]
    assert [each["results"] for each in found.values()] == [[], [], []]
    assert found["", "device-taint-webhook"]["kind"] == "ClusterReport"


def test_of_many_findings_the_most_severe_are_listed_and_all_counted() -> None:
    found = reports(row(*[Entry(Level.WARNING, "odd")] * 300, *[REFUSED] * 300))["ml", "device-taint-webhook"]
    assert [each["result"] for each in found["results"]] == ["fail"] * 300 + ["warn"] * 200
    assert (found["summary"]["fail"], found["summary"]["warn"]) == (300, 300)
    assert found["configuration"]["limits"]["maxResults"] == 500


def test_long_message_is_cut() -> None:
    (result,) = reports(row(Entry(Level.ERROR, "x" * 2000)))["ml", "device-taint-webhook"]["results"]
    assert (len(result["message"]), result["message"][-4:]) == (1024, "x...")
