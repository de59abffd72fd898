"""Reports for programs and for CI: GitHub's workflow commands, SARIF, and GitLab's Code Quality."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
import yaml
from jsonschema import Draft4Validator

from tests.unit.files.test_report import FULL, make_entry, make_report, make_row
from webhook.api.names import TREE
from webhook.commands.shared.codes import codes
from webhook.commands.shared.output import render
from webhook.files.ci_formats import ANNOTATIONS, open_reports
from webhook.files.report import FORMATS, Entry, Level, Report, Result, Row, as_values

ROOT: Final = Path(__file__).parents[3]
SCHEMA: Final = Path(__file__).with_name("sarif-schema-2.1.0.json")
"""As OASIS publishes it, in errata 01 of the standard: https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01."""


def rendered(output: str, report: Report) -> str:
    return render("check", output, report)


def sarif_run(report: Report) -> dict[str, Any]:
    """The run in the SARIF of a report, which is valid by the schema."""
    log = json.loads(rendered("sarif", report))
    assert [f"{'/'.join(map(str, error.path))}: {error.message}" for error in _schema().iter_errors(log)] == []
    assert log["$schema"] == _schema().schema["id"]
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


@cache
def _schema() -> Any:
    schema = json.loads(SCHEMA.read_text())
    Draft4Validator.check_schema(schema)
    return Draft4Validator(schema)


def test_json_and_yaml_parse_back_to_the_same() -> None:
    assert json.loads(rendered("json", FULL)) == as_values(FULL)
    assert yaml.safe_load(rendered("yaml", FULL)) == as_values(FULL)


@pytest.mark.parametrize("output", FORMATS)
def test_what_utf_8_cannot_hold_is_escaped(output: str) -> None:
    report = make_report(make_row(make_entry(message="\udcff\x00"), file="\udcff.yaml", name="\ud800"))
    assert rendered(output, report).encode()


# --- GitHub -------------------------------------------------------------------------------------


def test_a6_github_has_a_command_for_each_entry_where_it_stands() -> None:
    assert rendered("github", FULL) == (
        "::error file=a.yaml,line=2,col=5,title=FieldValueRequired DeviceTaintRule gpu-7::"
        "a.yaml:2:5: spec.taint.effect: Required value\n"
        "::warning file=a.yaml,line=3,col=5,title=DT001 DeviceTaintRule gpu-7::"
        "a.yaml:3:5: spec.taint.effect: is empty\n"
        "::notice file=b.yaml,line=3,col=5,title=DeviceTaintRule gpu-7::b.yaml:3:5: would set x\n"
        "::error file=c.yaml,title=Unreadable::c.yaml: cannot be read: no\n"
        "3 files, 3 objects: 1 error, 1 warning, 1 unreadable; skipped: 1 of other kinds\n"
    )


def test_a6_no_text_of_a_manifest_ends_a_command_of_github_or_begins_another() -> None:
    row = make_row(make_entry(message="50%\n::error::x", field=""), file="a,line=9::b\n.yaml", name="n,col=1::")
    first, second = rendered("github", make_report(row)).splitlines()
    assert first == (
        "::error file=a%2Cline=9%3A%3Ab%0A.yaml,line=3,col=5,"
        "title=FieldValueRequired DeviceTaintRule n%2Ccol=1%3A%3A::a,line=9::b\\n.yaml:3:5: 50%25\\n::error::x"
    )
    assert second.startswith("1 file")


def test_github_gets_no_more_annotations_than_it_shows_and_the_others_as_text() -> None:
    errors = [make_entry(line=number) for number in range(1, ANNOTATIONS + 4)]
    warnings = [make_entry(Level.WARNING, line=100 + number) for number in range(ANNOTATIONS)]
    lines = rendered("github", make_report(make_row(*errors, *warnings))).splitlines()
    assert [sum(line.startswith(f"::{name} ") for line in lines) for name in ("error", "warning")] == [ANNOTATIONS] * 2
    start = lines.index("::group::3 more findings: GitHub shows 10 annotations of each level")
    assert [line.partition(": error: ")[0] for line in lines[start + 1 : start + 4]] == [
        f"a.yaml:{number}:5" for number in range(ANNOTATIONS + 1, ANNOTATIONS + 4)
    ]
    assert lines[start + 4] == "::endgroup::"


def test_text_after_the_annotations_is_no_command_either() -> None:
    """The runner finds `##[name]` anywhere in a line, and `::name::` at its start."""
    many = [make_entry(message="##[add-mask]x", line=number) for number in range(1, ANNOTATIONS + 2)]
    *_, line, _, _ = rendered("github", make_report(make_row(*many, file=" ::debug::y"))).splitlines()
    assert line.startswith("./ ::debug::y:11:5: error: ")
    assert "##[" not in line


def test_a6_what_comes_by_standard_input_has_no_place_in_a_repository() -> None:
    report = make_report(make_row(make_entry(), file="<stdin>"))
    assert rendered("github", report).startswith(
        "::error title=FieldValueRequired DeviceTaintRule gpu-7::<stdin>:3:5: "
    )
    (result,) = sarif_run(report)["results"]
    assert result["locations"] == [
        {"logicalLocations": [{"fullyQualifiedName": "DeviceTaintRule gpu-7: spec.taint.effect"}]}
    ]


# --- SARIF --------------------------------------------------------------------------------------


def test_a6_sarif_has_results_by_rule_and_tells_apart_what_could_not_be_read() -> None:
    FULL.notes.append("the dump has no Pods")
    try:
        run = sarif_run(FULL)
    finally:
        FULL.notes.clear()
    assert run["tool"]["driver"]["name"] == "device-taint-webhook"
    assert run["tool"]["driver"]["informationUri"] == f"{TREE}docs/ci.md"
    ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert ids == ["DT001", "FieldValueRequired", "Finding"]
    assert [(ids[each["ruleIndex"]], each["level"]) for each in run["results"]] == [
        ("DT001", "warning"),
        ("FieldValueRequired", "error"),
        ("Finding", "note"),
    ]
    assert [each["ruleId"] for each in run["results"]] == ids
    assert run["results"][1]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "a.yaml", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 2, "startColumn": 5},
    }
    assert list(run["originalUriBaseIds"]) == ["%SRCROOT%"]
    (invocation,) = run["invocations"]
    assert (invocation["executionSuccessful"], invocation["exitCode"]) == (False, 2)
    assert [each["message"]["text"] for each in invocation["toolExecutionNotifications"]] == [
        "cannot be read: no",
        "the dump has no Pods",
    ]


@pytest.mark.parametrize("code", list(codes()))
def test_sarif_says_of_each_warning_code_what_it_means_and_what_to_do(code: str) -> None:
    (rule,) = sarif_run(make_report(make_row(make_entry(Level.WARNING, code=code))))["tool"]["driver"]["rules"]
    _, title, text = codes()[code]
    assert (rule["id"], rule["shortDescription"]["text"], rule["help"]["markdown"]) == (code, title, text)
    assert re.fullmatch(r"[A-Z]\w+", rule["name"])
    assert "Do: " in rule["help"]["text"]
    assert "`" not in rule["help"]["text"]
    assert rule["defaultConfiguration"]["level"] == "warning"
    assert rule["properties"]["problem.severity"] == "warning"
    page, _, anchor = rule["helpUri"].removeprefix(TREE).partition("#")
    headings = re.findall(r"^### (.+)$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert anchor in {re.sub(r"[^a-z0-9_ -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_sarif_describes_findings_without_a_code_too() -> None:
    """GitHub asks for these four of every rule."""
    rows = [make_row(make_entry(rule="No-GPUs")), make_row(make_entry(reason="FieldValueTooMany", message="Too many"))]
    rules = sarif_run(make_report(*rows))["tool"]["driver"]["rules"]
    assert [(each["id"], each["shortDescription"]["text"]) for each in rules] == [
        ("No-GPUs", "rule No-GPUs of the policy"),
        ("FieldValueTooMany", "a list has too many entries"),
    ]
    assert [each["helpUri"] for each in rules] == [f"{TREE}docs/policy.md", f"{TREE}docs/admission.md"]
    for rule in rules:
        assert rule["fullDescription"]["text"]
        assert rule["help"]["text"]
        assert rule["defaultConfiguration"]["level"] == "error"


@pytest.mark.parametrize(
    ("file", "artifact", "path"),
    [
        ("a b/ä#1.yaml", {"uri": "a%20b/%C3%A4%231.yaml", "uriBaseId": "%SRCROOT%"}, "a b/ä#1.yaml"),
        ("./manifests//x.yaml", {"uri": "manifests/x.yaml", "uriBaseId": "%SRCROOT%"}, "manifests/x.yaml"),
        ("{here}/x.yaml", {"uri": "x.yaml", "uriBaseId": "%SRCROOT%"}, "x.yaml"),
        ("../x.yaml", {"uri": "file://{above}/x.yaml"}, "{above}/x.yaml"),
        ("{above}/a b.yaml", {"uri": "file://{above}/a%20b.yaml"}, "{above}/a b.yaml"),
    ],
)
def test_a6_files_are_named_as_the_repository_has_them(
    file: str, artifact: dict[str, str], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "repository"
    here.mkdir()
    monkeypatch.chdir(here)
    report = make_report(make_row(make_entry(), file=file.format(here=here, above=tmp_path)))
    (result,) = sarif_run(report)["results"]
    expected = {key: value.format(above=tmp_path) for key, value in artifact.items()}
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == expected
    assert f"file={path.format(above=tmp_path)}," in rendered("github", report)
    assert json.loads(rendered("gitlab", report))[0]["location"]["path"] == path.format(above=tmp_path)


@pytest.mark.parametrize("row", [make_row(make_entry(), file="https://10.0.0.1:6443"), Row("audit", local=False)])
def test_what_is_no_file_has_no_place_in_a_repository(row: Row) -> None:
    row = replace(row, entries=(Entry(Level.WARNING, "no policy"),))
    (result,) = sarif_run(make_report(row))["results"]
    assert "physicalLocation" not in result.get("locations", [{}])[0]
    assert "file=" not in rendered("github", make_report(row))


def test_junit_has_a_suite_a_file_and_a_case_an_object() -> None:
    root = ET.fromstring(rendered("junit", FULL).encode())
    assert root.attrib == {
        "name": "device-taint-webhook check",
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    assert [(suite.get("name"), suite.get("tests")) for suite in root] == [
        ("a.yaml", "3"),
        ("b.yaml", "1"),
        ("c.yaml", "1"),
    ]
    denied, allowed, skipped = root[0]
    assert denied.attrib == {"name": "DeviceTaintRule gpu-7", "classname": "a.yaml", "file": "a.yaml", "line": "1"}
    failure, output = denied
    assert failure.attrib == {"message": "spec.taint.effect: Required value", "type": "FieldValueRequired"}
    assert failure.text == "a.yaml:2:5: error: spec.taint.effect: Required value"
    assert output.text == "a.yaml:3:5: warning: spec.taint.effect: is empty [DT001]"
    assert (allowed.get("name"), len(allowed)) == ("ResourceClaim ml/c (document 2)", 0)
    assert skipped[0].attrib == {"message": "of other kinds"}
    assert root[1][0][0].text == "b.yaml:3:5: info: would set x"
    unreadable = root[2][0]
    assert (unreadable.get("name"), unreadable[0].tag) == ("read", "error")


def test_junit_counts_further_errors_in_the_message() -> None:
    root = ET.fromstring(
        rendered("junit", make_report(make_row(make_entry(), make_entry(line=9), make_entry()))).encode()
    )
    assert root[0][0][0].get("message") == "spec.taint.effect: Required value (and 2 more)"
    assert str(root[0][0][0].text).count("\n") == 2


def test_junit_is_xml_whatever_is_told() -> None:
    report = make_report(make_row(make_entry(message='<&>"\x00\x1b\ud800\ufffe é'), file="a&b\x01.yaml"))
    root = ET.fromstring(rendered("junit", report).encode())
    assert root[0].get("name") == "a&b\ufffd.yaml"
    assert "<&>" in str(root[0][0][0].get("message"))


def prints(report: Report) -> list[str]:
    return [each["partialFingerprints"]["deviceTaint/v1"] for each in sarif_run(report)["results"]]


def test_fingerprints_outlive_lines_that_move_and_tell_findings_apart() -> None:
    first, second = make_entry(line=3), make_entry(line=9)
    before = prints(make_report(make_row(first, second)))
    moved = prints(make_report(make_row(replace(first, message="other words"), make_entry(line=40))))
    assert before == moved
    others = [
        make_row(first, file="b.yaml"),
        make_row(first, name="gpu-8"),
        make_row(replace(first, field="spec.taint.key")),
        make_row(replace(first, code="DT001")),
        make_row(first, name="", kind="", document=2),
    ]
    apart = [*before, *(prints(make_report(row))[0] for row in others)]
    assert len(set(apart)) == len(apart)
    assert prints(make_report(make_row(first, file="./a.yaml")))[0] == before[0]


# --- GitLab -------------------------------------------------------------------------------------


def test_gitlab_has_an_issue_for_each_entry() -> None:
    issues = json.loads(rendered("gitlab", FULL))
    assert [(each["check_name"], each["severity"], each["location"]) for each in issues] == [
        ("DT001", "minor", {"path": "a.yaml", "lines": {"begin": 3}}),
        ("FieldValueRequired", "critical", {"path": "a.yaml", "lines": {"begin": 2}}),
        ("Finding", "info", {"path": "b.yaml", "lines": {"begin": 3}}),
        ("Unreadable", "major", {"path": "c.yaml", "lines": {"begin": 1}}),
    ]
    assert issues[1]["description"] == "DeviceTaintRule gpu-7: spec.taint.effect: Required value"
    assert len({each["fingerprint"] for each in issues}) == 4
    assert all(set(each) == {"description", "check_name", "fingerprint", "severity", "location"} for each in issues)


def test_gitlab_and_sarif_agree_on_fingerprints() -> None:
    report = make_report(make_row(make_entry(), make_entry(line=5)))
    assert [each["fingerprint"] for each in json.loads(rendered("gitlab", report))] == prints(report)


def test_empty_report_is_valid_in_every_format() -> None:
    assert json.loads(rendered("gitlab", Report())) == []
    assert sarif_run(make_report(Row("a.yaml", result=Result.ALLOWED)))["results"] == []


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
