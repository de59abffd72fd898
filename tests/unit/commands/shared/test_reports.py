"""One run writes several reports: `-o FORMAT=FILE`; and `--select` and `--ignore` choose which warnings are in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.builders import make_claim, make_toleration
from tests.unit.commands.audit_runner import HEADER, POLICY, claim
from tests.unit.commands.check_runner import RULE, CheckRunner
from tests.unit.commands.runner import Ran
from webhook.commands.shared.codes import as_code_prefixes, codes, left_out

SUITE: dict[str, Any] = {
    "apiVersion": "policy.devicetaint.io/v1alpha1",
    "kind": "DeviceTaintPolicyTest",
    "policy": POLICY,
    "cases": [
        {
            "name": "a wrong guess",
            "requester": {"username": "dana"},
            "object": claim(make_toleration("health.example.com/x")),
            "expect": {"decision": "allowed"},
        }
    ],
}
RUNS = {
    "check": ["check", "bad.yaml"],
    "audit": ["audit", "--dump", "claim.yaml", "--policy", "policy.yaml"],
    "test": ["test", "suite.yaml"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files are that the runs name; each run has one error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.yaml").write_text(RULE.replace("NoSchedule", "Never"))
    (tmp_path / "rule.yaml").write_text(RULE)
    (tmp_path / "claim.yaml").write_text(json.dumps(claim(make_toleration("health.example.com/x"))))
    (tmp_path / "policy.yaml").write_text(json.dumps(POLICY))
    (tmp_path / "suite.yaml").write_text(json.dumps(SUITE))
    (tmp_path / "dump.yaml").write_text("")
    return tmp_path


@pytest.mark.parametrize("verb", RUNS)
def test_one_run_writes_a_report_for_each_tool_and_text_for_people(verb: str, folder: Path, ran: Ran) -> None:
    words = RUNS[verb]
    code, text, _ = ran(*words)
    files = {name: folder / f"report.{name}" for name in ("json", "yaml", "junit", "github", "gitlab", "sarif", "text")}
    assert code == 1
    assert ran(*words, *(f"-o{name}={file}" for name, file in files.items())) == (1, text, "")
    written = {name: file.read_text() for name, file in files.items()}
    assert written["text"] == text
    assert json.loads(written["json"])["version"] == yaml.safe_load(written["yaml"])["version"] == 1
    assert ET.fromstring(written["junit"]).get("failures") == "1"
    assert written["github"].startswith("::error file=")
    assert [each["severity"] for each in json.loads(written["gitlab"])] == ["critical"]
    (run,) = json.loads(written["sarif"])["runs"]
    assert ([each["level"] for each in run["results"]], run["automationDetails"]["id"]) == (
        ["error"],
        f"device-taint-webhook-{verb}/",
    )
    assert (
        run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == words[-1] or verb == "audit"
    )


def test_preview_writes_several_reports(folder: Path, ran: Ran) -> None:
    words = ["preview", "rule.yaml", "--dump", "dump.yaml", "-o", "json=p.json", "-o", "yaml=p.yaml"]
    code, text, _ = ran(*words)
    assert (code, "DeviceTaintRule gpu-7" in text) == (2, True), "the dump has neither slices nor claims"
    assert json.loads((folder / "p.json").read_text())["version"] == 1
    assert yaml.safe_load((folder / "p.yaml").read_text())["version"] == 1


def test_a_format_without_file_replaces_the_text(folder: Path, ran: Ran) -> None:
    for words in (("-o", "json", "-o", "junit=j.xml"), ("-o", "json=-")):
        code, text, _ = ran("check", "bad.yaml", *words)
        assert (code, json.loads(text)["summary"]["errors"]) == (1, 1)
    assert not (folder / "-").exists()


def test_files_have_no_colors(folder: Path, ran: Ran) -> None:
    code, text, _ = ran("check", "bad.yaml", "--color", "always", "-o", "text=t.txt")
    assert (code, "\x1b[" in text, "\x1b" in (folder / "t.txt").read_text()) == (1, True, False)


@pytest.mark.usefixtures("folder")
def test_a_report_that_cannot_be_written_is_two_and_the_others_are_written(ran: Ran) -> None:
    code, text, error = ran("check", "rule.yaml", "-o", "json=nowhere/x.json")
    assert (code, "1 file, 1 object: 0 errors" in text) == (2, True)
    assert error == "device-taint-webhook: nowhere/x.json: cannot be written: No such file or directory\n"


# --- select, ignore -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("select", "ignore", "kept"),
    [
        ([], [], {"DT001", "DT003", "DT101"}),
        (["DT0"], [], {"DT001", "DT003"}),
        ([], ["DT0"], {"DT101"}),
        ([], ["DT"], set()),
        (["DT001"], ["DT0"], {"DT001"}),
        (["DT0"], ["DT001"], {"DT003"}),
        (["DT001"], ["DT001"], set()),
        (["DT001", "DT1"], [], {"DT001", "DT101"}),
    ],
)
def test_the_longer_beginning_of_a_code_wins(select: list[str], ignore: list[str], kept: set[str]) -> None:
    assert {"DT001", "DT003", "DT101"} - left_out(select, ignore) == kept
    assert left_out(select, ignore) <= set(codes())


def test_codes_are_listed_with_commas_in_any_case() -> None:
    assert as_code_prefixes("dt001, DT1") == ["DT001", "DT1"]


def test_warnings_are_reported_by_code_and_count_so(run: CheckRunner) -> None:
    twice = make_toleration(effect=None)
    (run.folder / "mild.yaml").write_text(json.dumps(make_claim([twice, twice])))

    def found(*flags: str) -> set[str]:
        return {each["code"] for each in json.loads(run("mild.yaml", "-o", "json", *flags)[1])["findings"]}

    assert found() == {"DT001", "DT003"}
    assert found("--select", "DT003") == {"DT003"}
    assert found("--ignore", "DT003") == {"DT001"}
    assert found("--ignore", "DT003", "--ignore", "DT001") == set()
    assert run("mild.yaml", "--warnings-as-errors", "--ignore", "DT003")[0] == 1
    assert run("mild.yaml", "--warnings-as-errors", "--ignore", "DT001,DT003")[0] == 0
    assert run("mild.yaml", "--ignore", "DT")[1] == "1 file, 1 object: 0 errors, 0 warnings\n"


@pytest.mark.usefixtures("folder")
def test_errors_are_reported_whatever_is_selected(ran: Ran) -> None:
    assert ran("check", "bad.yaml", "--select", "DT001")[0] == 1
    assert ran(*RUNS["audit"], "--ignore", "DT")[0] == 1


def test_audit_reports_advice_on_its_policy_by_code(folder: Path, ran: Ran) -> None:
    past = {
        "name": "old",
        "rules": ["no-broken"],
        "expiresAt": "2020-01-01T00:00:00Z",
        "match": {"namespaces": {"names": ["ml"]}},
    }
    (folder / "old.yaml").write_text(json.dumps({**HEADER, "rules": POLICY["rules"], "exceptions": [past]}))
    words = ["audit", "--dump", "claim.yaml", "--policy", "old.yaml"]
    assert ["[DT107]" in ran(*words, *flags)[1] for flags in ((), ("--ignore", "DT107"))] == [True, False]
