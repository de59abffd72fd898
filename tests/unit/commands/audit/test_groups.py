"""`audit` counts by rule and namespace, and lists no more than people read (C2)."""

from __future__ import annotations

import json
from typing import Any, Final

import yaml

from tests.builders import make_claim, make_meta, make_toleration
from tests.unit.commands.audit_runner import HEADER, AuditRunner

BROKEN: Final = "health.example.com/broken"
POLICY: Final = {
    **HEADER,
    "rules": [
        {"name": "no-broken", "action": "deny", "match": {"tolerations": {"keys": [BROKEN]}}},
        {"name": "frowned-at", "action": "warn", "match": {"namespaces": {"names": ["web"]}}},
    ],
}


def claims(**numbers: int) -> list[Any]:
    """This number of claims in each namespace, all of them refused."""
    return [
        make_claim([make_toleration(BROKEN, operator="Exists")], meta=make_meta(f"c{at}", namespace=namespace))
        for namespace, number in numbers.items()
        for at in range(number)
    ]


def test_table_counts_each_rule_in_each_namespace(run_audit: AuditRunner) -> None:
    odd = make_claim([make_toleration("odd.example.com/x")], meta=make_meta("odd", namespace="web"))
    code, output = run_audit(dump=[*claims(ml=2, web=1), odd], policy=POLICY)
    assert code == 1
    lines = [line for line in output.splitlines() if not line.startswith("note: ")]
    *_, blank, headers, first, second, third, end, summary = lines
    assert (blank, end) == ("", "")
    assert headers.split() == ["RULE", "NAMESPACE", "ERRORS", "WARNINGS", "OBJECTS"]
    assert [row.split() for row in (first, second, third)] == [
        ["no-broken", "ml", "2", "0", "2"],
        ["no-broken", "web", "1", "0", "1"],
        ["frowned-at", "web", "0", "1", "1"],
    ]
    assert summary.endswith("3 errors, 1 warning")


def test_limit_cuts_the_list_and_says_how_many_are_left_out(run_audit: AuditRunner) -> None:
    dump = claims(ml=5)
    _, output = run_audit("--limit", "2", dump=dump, policy=POLICY)
    lines = output.splitlines()
    assert sum(": error: " in line for line in lines) == 2
    assert lines[2] == "and 3 more findings; --limit 0 lists all"
    assert lines[-1].endswith("5 errors, 0 warnings"), "the sums are of all"
    _, output = run_audit("--limit", "4", dump=dump, policy=POLICY)
    assert "and 1 more finding; --limit 0" in output
    for limit in ("0", "5"):
        _, output = run_audit("--limit", limit, dump=dump, policy=POLICY)
        assert sum(": error: " in line for line in output.splitlines()) == 5
        assert "more finding" not in output


def test_notes_stand_below_the_table_and_count_for_no_limit(run_audit: AuditRunner) -> None:
    _, output = run_audit("--limit", "1", dump=claims(ml=1, web=1), policy=POLICY)
    *_, last, end, template, namespaces, classes, _ = output.splitlines()
    assert (last, end) == ("and 1 more of these", "")
    assert [line[:6] for line in (template, namespaces, classes)] == ["note: "] * 3
    assert "and 1 more finding; --limit 0 lists all\n" in output


def test_limit_holds_for_the_table_too(run_audit: AuditRunner) -> None:
    _, output = run_audit("--limit", "1", dump=claims(a=1, b=1, c=1), policy=POLICY)
    assert "and 2 more of these" in output


def test_programs_get_all_findings_and_the_groups(run_audit: AuditRunner) -> None:
    _, output = run_audit("-o", "json", "--limit", "1", dump=claims(ml=3), policy=POLICY)
    values = json.loads(output)
    assert len(values["findings"]) == 3
    assert values["groups"] == [
        {"rule": "no-broken", "namespace": "ml", "errors": 3, "warnings": 0, "objects": 3},
    ]
    assert yaml.safe_load(run_audit("-o", "yaml", dump=claims(ml=3), policy=POLICY)[1])["groups"] == values["groups"]


def test_one_object_needs_no_table(run_audit: AuditRunner) -> None:
    _, output = run_audit(dump=claims(ml=1), policy=POLICY)
    assert "NAMESPACE" not in output
