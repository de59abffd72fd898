"""Reports for programs say the same as the exit code: of warnings that count, and of runs that tested nothing."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.unit.commands.check_runner import RULE
from tests.unit.commands.runner import Ran
from tests.unit.commands.shared.test_reports import SUITE

WARNED = RULE.replace("gpu.example.com/unhealthy", "kubernetes.io/x")


@pytest.mark.parametrize(("words", "code", "failures"), [([], 0, "0"), (["--warnings-as-errors"], 1, "1")])
def test_warnings_that_count_are_failures_in_junit(
    words: list[str], code: int, failures: str, alone: Path, ran: Ran
) -> None:
    (alone / "rule.yaml").write_text(WARNED)
    found, output, _ = ran("check", "rule.yaml", "-o", "junit", *words)
    root = ET.fromstring(output)
    assert (found, root.get("failures"), root.get("tests")) == (code, failures, "1")
    (case,) = root.iter("testcase")
    assert [part.tag for part in case] == (["failure"] if code else ["system-out"])


@pytest.mark.parametrize(("words", "code"), [((), 2), (("--allow-empty",), 0)])
def test_run_of_no_case_is_a_failure_in_sarif_too(words: tuple[str, ...], code: int, alone: Path, ran: Ran) -> None:
    (alone / "suite.yaml").write_text(json.dumps(SUITE))
    found, output, _ = ran("test", "suite.yaml", "--run", "nosuchcase", "-o", "sarif", *words)
    ((run),) = json.loads(output)["runs"]
    ((invocation),) = run["invocations"]
    assert (found, invocation["exitCode"], invocation["executionSuccessful"]) == (code, code, not code)
    said = [each["message"]["text"] for each in invocation.get("toolExecutionNotifications", ())]
    assert said == (["no case matches --run nosuchcase; pass --allow-empty if that is expected"] if code else [])
