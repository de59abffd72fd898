"""A report as OpenReports: a Report for each namespace, and results with one object each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from webhook.files.open_reports import open_reports
from webhook.files.report import Entry, Level, Report, Row

REFUSED = Entry(Level.ERROR, "Forbidden: no", field="spec.x", reason="FieldValueForbidden", rule="no-broken")


def row(*entries: Entry, namespace: str = "ml", name: str = "train") -> Row:
    return Row("cluster", 1, None, "resource.k8s.io/v1", "ResourceClaim", namespace, name, entries=entries)


def reports(*rows: Row, namespaces: tuple[str, ...] = (), terminating: tuple[str, ...] = ()) -> dict[str, Any]:
    """By namespace."""
    found = Report()
    for each in rows:
        found.add(each)
    made = open_reports(found, namespaces, terminating)
    assert {(each["kind"], each["metadata"]["name"]) for each in made} <= {("Report", "device-taint-webhook")}
    return {each["metadata"]["namespace"]: each for each in made}


def test_finding_is_a_result_about_its_object() -> None:
    found = reports(row(REFUSED))
    report = found["ml"]
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
        }
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        pytest.param(Entry(Level.WARNING, "odd", code="DT001"), ("warn", "low", "DT001"), id="a warning"),
        pytest.param(Entry(Level.ERROR, "odd", reason="X"), ("fail", "high", "X"), id="by no rule"),
    ],
)
def test_outcome_follows_the_level(entry: Entry, expected: tuple[str, str, str]) -> None:
    (result,) = reports(row(entry))["ml"]["results"]
    assert (result["result"], result["severity"], result["rule"]) == expected


def test_namespace_without_findings_has_a_report_without_results() -> None:
    found = reports(row(Entry(Level.INFO, "fine"), namespace="web"), namespaces=("ml", "web"))
    assert list(found) == ["ml", "web"]
    assert [each["results"] for each in found.values()] == [[], []]


def test_namespace_that_is_being_deleted_takes_no_report() -> None:
    assert list(reports(row(REFUSED), row(REFUSED, namespace="web"), namespaces=("ml",), terminating=("ml",))) == [
        "web"
    ]


def test_namespace_without_a_name_has_no_report() -> None:
    assert list(reports(namespaces=("", "ml"))) == ["ml"]


def test_claim_of_a_dump_that_names_no_namespace_is_in_the_default_one() -> None:
    assert reports(row(REFUSED, namespace=""))["default"]["results"][0]["resources"][0]["namespace"] == "default"


@pytest.mark.parametrize("letter", ["x", "<", '"', "\u00e9", "\u4e2d", "\U0001f525"])
def test_report_is_never_larger_than_etcd_takes(letter: str) -> None:
    """Go writes `<` as six bytes."""
    name = "n" * 253
    (report,) = reports(
        row(*[Entry(Level.ERROR, letter * 2000, field="f" * 300, rule="r" * 63)] * 500, name=name)
    ).values()
    size = len(json.dumps(report, ensure_ascii=False).replace("<", "\\u003c").encode())
    assert size < 1.5 * 1024 * 1024 * 0.95


def test_of_many_findings_the_most_severe_are_listed_and_all_counted() -> None:
    found = reports(row(*[Entry(Level.WARNING, "odd")] * 300, *[REFUSED] * 150))["ml"]
    assert [each["result"] for each in found["results"]] == ["fail"] * 150 + ["warn"] * 50
    assert (found["summary"]["fail"], found["summary"]["warn"]) == (150, 300)
    assert found["configuration"]["limits"]["maxResults"] == 200


def test_long_message_is_cut() -> None:
    (result,) = reports(row(Entry(Level.ERROR, "x" * 2000)))["ml"]["results"]
    assert (len(result["message"]), result["message"][-4:]) == (1024, "x...")
