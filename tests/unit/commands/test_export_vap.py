"""`export-vap`: what it prints, where, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.unit.policy.documents import make_document, make_entry
from webhook.commands import export_vap
from webhook.commands.shared.main import main_of

POLICIES: Final = "ValidatingAdmissionPolicy"
SAID: Final = "device-taint-webhook export-vap: "
KEYS: Final = {"tolerations": {"keys": ["a.example.com/*"]}}
WHOLE: Final = make_document(rules=[make_entry("no", match=KEYS, message='say: "no"')])
VAGUE: Final = make_document(rules=[make_entry("vague", match={"drivers": ["gpu.example.com"]})])


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return tmp_path / "policy.yaml"


def run(policy: Path, document: Any, *arguments: str) -> int:
    policy.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return main_of(export_vap, [str(policy), *arguments])


def test_yaml_is_a_stream_and_json_a_list_of_the_same(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(policy, WHOLE) == 0
    text = capsys.readouterr().out
    assert run(policy, WHOLE, "-o", "json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert list(yaml.safe_load_all(text)) == listed["items"]
    assert "  - expression: |-\n      !variables.asked.exists(" in text, "expressions stand as they are read"


def test_what_is_missing_is_told_and_strict_minds(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(policy, VAGUE) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0] == f"{SAID}vague: exported: none: only the webhook can judge its drivers"
    assert told[-2] == f"{SAID}rules: 0 exported: full, 0 exported: partial, 1 exported: none"
    assert [run(policy, document, "--strict=rules") for document in (VAGUE, WHOLE)] == [1, 0]


def test_strict_counts_every_line(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B4: what is no rule is counted as well, and minded unless only rules are asked for."""
    assert run(policy, WHOLE, "--strict") == 1
    *lines, rules, rest = capsys.readouterr().err.splitlines()
    assert {line.split(": ")[1] for line in lines} == {"documentedRules", "impact"}
    assert rules == f"{SAID}rules: 1 exported: full, 0 exported: partial, 0 exported: none"
    assert rest == f"{SAID}everything else: 0 exported: full, 2 exported: partial, 0 exported: none"
    assert run(policy, make_document(mode="off"), "--strict") == 0


def test_policy_that_is_not_there_is_named_with_the_reason(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of(export_vap, ["--policy", str(policy)]) == 2
    assert capsys.readouterr().err == (
        f"{policy}: error: cannot be read: No such file or directory\n"
        f"{SAID}nothing was exported: the policy in {policy} cannot be read\n"
    )


def test_nothing_refused_is_nothing_to_export(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(policy, make_document(mode="off")) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("so there is nothing to export\n")


def test_labels_are_protected_when_asked_for(policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = make_document(trustedNamespaceLabels=["example.com/tier"])
    run(policy, document)
    assert "namespaces/finalize" not in capsys.readouterr().out
    run(policy, document, "--protect-labels")
    assert "namespaces/finalize" in capsys.readouterr().out


@pytest.mark.parametrize("document", [make_document(rules=[{"name": "x"}]), "kind: [", "{}"])
def test_a_policy_that_cannot_be_read_is_two(document: Any, policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(policy, document) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert str(policy) in said.err


def test_claims_of_our_own_namespace_are_left_out_wherever_that_is(
    policy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """H2."""

    def left_out(*arguments: str) -> list[str]:
        run(policy, WHOLE, "-o", "json", *arguments)
        specs = [each["spec"] for each in json.loads(capsys.readouterr().out)["items"] if each["kind"] == POLICIES]
        (constraints,) = [each["matchConstraints"] for each in specs if "toleration" in str(each["validations"])][:1]
        (expression,) = constraints["namespaceSelector"]["matchExpressions"]
        return list(expression["values"])

    assert left_out("-n", "platform") == ["platform", "kube-system"]
    monkeypatch.setenv("DEVICE_TAINT_WEBHOOK_NAMESPACE", "from-environment")
    assert left_out() == ["from-environment", "kube-system"]


def test_file_for_the_disk_is_written_beside_nothing_else(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "files"
    assert run(policy, WHOLE, "--static", str(folder)) == 0
    said = capsys.readouterr()
    assert said.out == ""
    (file,) = [path for path in folder.rglob("*") if path.is_file()]
    assert str(file.relative_to(folder)) == "validating/device-taint-webhook.yaml"
    assert [line for line in said.err.splitlines() if "written" in line] == [f"{SAID}written: {file}"]
    for each in yaml.safe_load_all(file.read_text()):
        assert each["metadata"]["name"].endswith(".static.k8s.io")


def test_file_of_what_is_no_longer_exported_goes(policy: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    assert run(policy, WHOLE, "--static", str(folder)) == 0
    assert run(policy, make_document(mode="off"), "--static", str(folder)) == 0
    assert [path.name for path in (folder / "validating").iterdir()] == []


def test_folder_that_cannot_be_written_is_an_error(
    policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run(policy, WHOLE, "--static", str(tmp_path / "file")) == 2
    assert f"{SAID}{tmp_path / 'file'} cannot be written: " in capsys.readouterr().err
