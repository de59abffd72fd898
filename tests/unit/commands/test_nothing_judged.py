"""Runs that looked at nothing are not green, unless that was allowed; and what counts as an object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import make_pod
from tests.unit.commands.audit_runner import HEADER, POLICY, AuditRunner, claim, template
from tests.unit.commands.check_runner import RULE, CheckRunner
from tests.unit.commands.preview_runner import CLAIMS, PODS, SLICES, rule
from tests.unit.commands.runner import Ran

SUITE: dict[str, Any] = {
    "apiVersion": "policy.devicetaint.io/v1alpha1",
    "kind": "DeviceTaintPolicyTest",
    "policy": HEADER,
    "cases": [{"name": "one", "requester": {"username": "dana"}, "object": claim(), "expect": {"decision": "allowed"}}],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files are that the words name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "comment.yaml").write_text("# nothing yet\n---\n")
    (tmp_path / "pod.yaml").write_text(json.dumps(make_pod("one")))
    (tmp_path / "chart.yaml").write_text("apiVersion: v2\nname: x\n")
    (tmp_path / "policy.yaml").write_text(json.dumps(POLICY))
    (tmp_path / "suite.yaml").write_text(json.dumps(SUITE))
    (tmp_path / "rule.yaml").write_text(RULE)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["check", "empty.yaml"],
        ["check", "comment.yaml"],
        ["check", "-"],
        ["check", "pod.yaml"],
        ["check", "chart.yaml"],
        ["check", "--policy", "policy.yaml", "empty.yaml"],
        ["check", "--policy", "policy.yaml", "--candidate", "policy.yaml", "-"],
        ["check", "-o", "json", "empty.yaml"],
        ["audit", "--dump", "empty.yaml", "--policy", "policy.yaml"],
        ["audit", "--dump", "pod.yaml", "--policy", "policy.yaml"],
        ["audit", "--dump", "policy.yaml"],
        ["audit", "--dump", "-", "--policy", "policy.yaml"],
        ["test", "suite.yaml", "--run", "zzz"],
    ],
    ids=" ".join,
)
def test_b1_nothing_judged_is_two_and_zero_if_that_is_allowed(words: list[str], folder: Path, ran: Ran) -> None:
    code, _, error = ran(*words)
    assert (code, error.count("\n")) == (2, 1)
    assert error.startswith(f"device-taint-webhook {words[0]}: no")
    flag = "--skip-others" if " skipped; " in error and words[0] == "check" else "--allow-empty"
    assert error.endswith(f"; pass {flag} if that is expected\n")
    assert ran(*words, flag)[::2] == (0, "")
    assert ran(*words, "--allow-empty")[::2] == (0, "")
    assert folder.is_dir()


@pytest.mark.parametrize(
    "words",
    [
        ["check", "rule.yaml", "empty.yaml", "pod.yaml"],
        ["check", "policy.yaml"],
        ["check", "--policy", "policy.yaml"],
        ["test", "suite.yaml"],
        ["test", "suite.yaml", "--run", "one"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("folder")
def test_b1_one_object_is_enough(words: list[str], ran: Ran) -> None:
    assert ran(*words)[::2] == (0, "")


def test_b1_audit_notes_what_a_dump_lacks(run_audit: AuditRunner) -> None:
    versionless = {"kind": "Namespace", "metadata": {"name": "ml"}}
    _, output = run_audit(dump=[claim(), versionless], policy=POLICY)
    assert [line for line in output.splitlines() if line.startswith("note: ")] == [
        "note: the dump has no ResourceClaimTemplates, so none were checked",
        "note: the dump has no Namespaces, so their labels are unknown",
        "note: the dump has no DeviceClasses, so the drivers behind them are unknown",
    ]
    whole = [
        claim(),
        template(),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}},
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}},
    ]
    assert "note: " not in run_audit(dump=whole, policy=POLICY)[1]
    assert json.loads(run_audit("-o", "json", dump=whole[1:], policy=POLICY)[1])["notes"] == [
        "the dump has no ResourceClaims, so none were checked"
    ]


def test_c5_a_policy_is_no_object_of_the_run_that_it_judges(run: CheckRunner) -> None:
    (run.folder / "policy.yaml").write_text(json.dumps(POLICY))
    flags = ("--policy", "policy.yaml", "--candidate", "policy.yaml", "--user", "dana")
    _, output = run(*flags, claim=claim())
    assert output.splitlines()[-1] == "1 file, 1 object: 0 errors, 0 warnings"
    report = json.loads(run(*flags, "-o", "json", claim=claim())[1])
    assert [each["kind"] for each in report["objects"]] == ["ResourceClaim"]
    assert 'tests="1"' in run(*flags, "-o", "junit", claim=claim())[1]


def test_c5_faults_of_the_policy_are_told_all_the_same(run: CheckRunner) -> None:
    (run.folder / "policy.yaml").write_text(json.dumps({**HEADER, "rules": 3}))
    code, output = run("--policy", "policy.yaml", claim=claim())
    assert (code, output.startswith("policy.yaml:1:")) == (1, True)
    assert output.endswith("1 file, 1 object: 1 error, 0 warnings\n")


@pytest.mark.parametrize(
    "words",
    [
        ["check", "-", "--policy", "policy.yaml"],
        ["check", "rule.yaml", "--policy", "-"],
        ["test", "-"],
        ["audit", "--dump", "-"],
        ["audit", "--dump", "rule.yaml", "--policy", "-"],
        ["export-vap", "--policy", "-"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("folder")
def test_c5_standard_input_has_one_name(words: list[str], ran: Ran) -> None:
    code, output, error = ran(*words, stdin=b"[")
    assert code == 2
    assert "<stdin>:" in output + error
    code, output, error = ran(*words, stdin=RULE.encode())
    assert "-:" not in f"{output} {error}".split()


@pytest.mark.parametrize(("objects", "said"), [(1, "1 object was skipped"), (2, "2 objects were skipped")])
def test_skipped_objects_are_counted_in_words_that_agree(objects: int, said: str, folder: Path, ran: Ran) -> None:
    (folder / "pods.yaml").write_text("\n---\n".join(json.dumps(make_pod(f"pod-{each}")) for each in range(objects)))
    _, _, error = ran("check", "pods.yaml")
    assert error == (
        f"device-taint-webhook check: nothing was checked, and {said}; pass --skip-others if that is expected\n"
    )


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "words", [["check", "pod.yaml"], ["audit", "--dump", "empty.yaml", "--policy", "policy.yaml"]], ids=" ".join
)
def test_sarif_of_a_run_that_checked_nothing_is_not_a_success(words: list[str], ran: Ran) -> None:
    """Code scanning reads the file, and not the exit code."""
    code, output, errors = ran(*words, "-o", "sarif")
    (invocation,) = json.loads(output)["runs"][0]["invocations"]
    assert (code, invocation["exitCode"], invocation["executionSuccessful"]) == (2, 2, False)
    texts = [each["message"]["text"] for each in invocation["toolExecutionNotifications"]]
    assert [text for text in texts if text in errors and "nothing was checked" in text]
    allowed, output, _ = ran(*words, "-o", "sarif", "--allow-empty")
    (invocation,) = json.loads(output)["runs"][0]["invocations"]
    assert (allowed, invocation["exitCode"], invocation["executionSuccessful"]) == (0, 0, True)


@pytest.mark.parametrize(
    ("dump", "devices", "pods"),
    [
        pytest.param([*SLICES, *CLAIMS, *PODS], "8 devices, 9 allocated", False, id="whole"),
        pytest.param([*CLAIMS, *PODS], "? devices, 9 allocated", False, id="no slices"),
        pytest.param([*SLICES, *PODS], "8 devices, ? allocated", True, id="no claims"),
        pytest.param([*SLICES, *CLAIMS], "8 devices, 9 allocated", True, id="no pods"),
        pytest.param([], "? devices, ? allocated", True, id="rule alone"),
    ],
)
def test_figures_that_a_dump_cannot_give_are_unknown(
    dump: list[Any], devices: str, tmp_path: Path, ran: Ran, *, pods: bool
) -> None:
    """M8, in `explain` and `status`."""
    file = tmp_path / "dump.yaml"
    file.write_text(yaml.safe_dump_all([rule(), *dump]))
    words = ["--dump", str(file)]
    code, said, _ = ran("explain", "rule", "unhealthy-gpu", *words)
    assert (code, devices in said, "  ? pods" in said) == (0, True, pods)
    code, said, _ = ran("status", *words)
    row = said.splitlines()[3]
    assert (code, devices.replace(" devices", "") in row, " ? " in row) == (0, True, pods)
    for verb in (["explain", "rule", "unhealthy-gpu"], ["status"]):
        document = json.loads(ran(*verb, *words, "-o", "json")[1])
        computed = (document["taints"][0] if verb == ["status"] else document)["computed"]
        unknown = ("? devices" in devices, "? allocated" in devices)
        assert (computed["devices"] is None, computed["allocated"] is None) == unknown
        assert (computed["pods"] is None, computed["pending"] is None) == (pods, pods)
