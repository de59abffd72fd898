"""`export-vap`: what it prints, where, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.unit.commands.runner import Ran
from tests.unit.policy.documents import make_document, make_entry

POLICIES: Final = "ValidatingAdmissionPolicy"
SAID: Final = "device-taint-webhook export-vap: "
KEYS: Final = {"tolerations": {"keys": ["a.example.com/*"]}}
WHOLE: Final = make_document(rules=[make_entry("no", match=KEYS, message='say: "no"')])
VAGUE: Final = make_document(rules=[make_entry("vague", match={"drivers": ["gpu.example.com"]})])


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return tmp_path / "policy.yaml"


@pytest.fixture
def run(policy: Path, ran: Ran) -> Ran:
    """Exports a document."""

    def exported(document: Any, *words: str) -> tuple[int, str, str]:
        policy.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return ran("export-vap", str(policy), *words)

    return exported


def test_yaml_is_a_stream_and_json_a_list_of_the_same(run: Ran) -> None:
    code, text, _ = run(WHOLE)
    as_json, listing, _ = run(WHOLE, "-o", "json")
    listed = json.loads(listing)
    assert (code, as_json, listed["apiVersion"], listed["kind"]) == (0, 0, "v1", "List")
    assert list(yaml.safe_load_all(text)) == listed["items"]
    assert "  - expression: |-\n      !variables.asked.exists(" in text, "expressions stand as they are read"


def test_what_is_missing_is_told_and_strict_minds(run: Ran) -> None:
    code, _, error = run(VAGUE)
    told = error.splitlines()
    assert (code, told[0]) == (0, f"{SAID}vague: exported: none: only the webhook can judge its drivers")
    assert told[-2] == f"{SAID}rules: 0 exported: full, 0 exported: partial, 1 exported: none"
    assert [run(document, "--strict=rules")[0] for document in (VAGUE, WHOLE)] == [1, 0]


def test_strict_counts_every_line(run: Ran) -> None:
    """B4: what is no rule is counted as well, and minded unless only rules are asked for."""
    code, _, error = run(WHOLE, "--strict")
    *lines, rules, rest = error.splitlines()
    assert (code, {line.split(": ")[1] for line in lines}) == (1, {"documentedRules", "impact"})
    assert rules == f"{SAID}rules: 1 exported: full, 0 exported: partial, 0 exported: none"
    assert rest == f"{SAID}everything else: 0 exported: full, 2 exported: partial, 0 exported: none"
    assert run(make_document(mode="off"), "--strict")[0] == 0


def test_policy_that_is_not_there_is_named_with_the_reason(policy: Path, ran: Ran) -> None:
    code, _, error = ran("export-vap", "--policy", str(policy))
    assert (code, error.splitlines()) == (
        2,
        [
            f"{policy}: error: cannot be read: No such file or directory",
            f"{SAID}nothing was exported: the policy in {policy} cannot be read",
        ],
    )


def test_nothing_refused_is_nothing_to_export(run: Ran) -> None:
    code, output, error = run(make_document(mode="off"))
    assert (code, output, error.endswith("so there is nothing to export\n")) == (0, "", True)


def test_labels_are_protected_when_asked_for(run: Ran) -> None:
    document = make_document(trustedNamespaceLabels=["example.com/tier"])
    protected = ["namespaces/finalize" in run(document, *words)[1] for words in ((), ("--protect-labels",))]
    assert protected == [False, True]


@pytest.mark.parametrize("document", [make_document(rules=[{"name": "x"}]), "kind: [", "{}"])
def test_a_policy_that_cannot_be_read_is_two(document: Any, policy: Path, run: Ran) -> None:
    code, output, error = run(document)
    assert (code, output, str(policy) in error) == (2, "", True)


def test_claims_of_our_own_namespace_are_left_out_wherever_that_is(run: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """H2."""

    def left_out(*arguments: str) -> list[str]:
        items = json.loads(run(WHOLE, "-o", "json", *arguments)[1])["items"]
        specs = [each["spec"] for each in items if each["kind"] == POLICIES]
        (constraints,) = [each["matchConstraints"] for each in specs if "toleration" in str(each["validations"])][:1]
        (expression,) = constraints["namespaceSelector"]["matchExpressions"]
        return list(expression["values"])

    assert left_out("-n", "platform") == ["platform", "kube-system"]
    monkeypatch.setenv("DEVICE_TAINT_WEBHOOK_NAMESPACE", "from-environment")
    assert left_out() == ["from-environment", "kube-system"]


def test_file_for_the_disk_is_written_beside_nothing_else_and_goes_with_what_it_exports(
    tmp_path: Path, run: Ran
) -> None:
    folder = tmp_path / "files"
    code, output, error = run(WHOLE, "--static", str(folder))
    (file,) = [path for path in folder.rglob("*") if path.is_file()]
    assert (code, output, str(file.relative_to(folder))) == (0, "", "validating/device-taint-webhook.yaml")
    assert [line for line in error.splitlines() if "written" in line] == [f"{SAID}written: {file}"]
    for each in yaml.safe_load_all(file.read_text()):
        assert each["metadata"]["name"].endswith(".static.k8s.io")
    assert run(make_document(mode="off"), "--static", str(folder))[0] == 0
    assert list((folder / "validating").iterdir()) == []


def test_folder_that_cannot_be_written_is_an_error(tmp_path: Path, run: Ran) -> None:
    (tmp_path / "file").write_text("")
    code, _, error = run(WHOLE, "--static", str(tmp_path / "file"))
    assert (code, f"{SAID}{tmp_path / 'file'} cannot be written: " in error) == (2, True)


def test_file_for_the_disk_is_not_written_as_json(tmp_path: Path, run: Ran) -> None:
    code, output, error = run(WHOLE, "--static", str(tmp_path / "files"), "-o", "json")
    assert (code, output, (tmp_path / "files").exists()) == (2, "", False)
    assert error.startswith(f"{SAID}--static writes YAML: it does not go with -o json\n")
