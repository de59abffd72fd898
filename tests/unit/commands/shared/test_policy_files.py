"""Policies in texts and files: what is wrong, and where that stands."""

from __future__ import annotations

import threading
from pathlib import Path as FilePath
from typing import Any

import pytest
import yaml

from tests.builders import NOW
from tests.tables import table
from webhook.admission.context import Budget, OutOfTime
from webhook.api.field import ErrorType, Path
from webhook.commands.shared.policy_files import PolicyFile, policy_file, read_policy
from webhook.files.manifests import MAX_BYTES
from webhook.files.report import line

POLICY = """\
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
default: deny
rules:
- name: wait
  action: allow
  match: {tolerations: {keys: ["maint.example.com/*"]}}
"""
CANDIDATE = POLICY.replace("default: deny", "default: allow")
AT = Path.root().child("data").key("policy.yaml")
NO_NODE = "did not find expected node content"
ON_LINE_3 = "already on line 3; the last one counts"


def config_map(**texts: str) -> str:
    def block(text: str) -> str:
        return "".join(f"    {each}\n" for each in text.splitlines())

    data = "".join(f"  {key}.yaml: |\n{block(text)}" for key, text in texts.items())
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ours}}\ndata:\n{data}"


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(POLICY, id="YAML"),
        pytest.param(f"# ours\n---\n{POLICY}---\n", id="YAML between marks"),
        pytest.param('{"apiVersion": "policy.devicetaint.io/v1alpha1", "kind": "DeviceTaintPolicy"}', id="JSON"),
    ],
)
def test_a_text_without_fault_is_a_policy(text: str) -> None:
    loaded = read_policy(text)
    assert loaded.errors == ()
    assert loaded.policy is not None


@table(
    "text, error",
    {
        "empty": ("", ": Required value: must be a document of kind DeviceTaintPolicy"),
        "#": ("# x\n", ": Required value: must be a document of kind DeviceTaintPolicy"),
        "two documents": (f"{POLICY}---\n{POLICY}", ": Forbidden: must be one document, not several"),
        "not YAML": (
            "kind: DeviceTaintPolicy\nrules: [\n",
            f': Invalid value: "": line 3, column 1: not YAML: while parsing a flow node {NO_NODE}',
        ),
        "a line that is not YAML": (
            "a: 1\n  b: 2\n",
            ': Invalid value: "b: 2": line 2, column 4: not YAML: mapping values are not allowed in this context',
        ),
        "an anchor in itself": (
            "a: &a [*a]\n",
            ': Invalid value: "a: &a [*a]": line 1, column 8: a[0]: anchor &a contains itself',
        ),
        "a key twice": (
            f"{POLICY}default: allow\n",
            f'.default: Duplicate value: "default": line 8, column 1: duplicate key "default", {ON_LINE_3}',
        ),
        "a value that is none": (
            POLICY.replace("action: allow", "action: permit"),
            '.rules[0].action: Unsupported value: "permit": supported values: "allow", "audit", "deny", "warn"',
        ),
        "no object": ("3", ": Invalid value: 3: must be an object"),
    },
)
def test_faults_of_a_text_are_errors_where_it_stands(text: str, error: str) -> None:
    loaded = read_policy(text, AT)
    assert loaded.policy is None
    assert f"data[policy.yaml]{error}" in [str(each) for each in loaded.errors]


def test_a_long_text_is_refused_unread() -> None:
    for text in ("x" * (MAX_BYTES + 1), "ü" * (MAX_BYTES // 2 + 1), "[" * (MAX_BYTES + 1)):
        (error,) = read_policy(text, AT).errors
        assert (error.type, str(error.path)) == (ErrorType.TOO_LONG, "data[policy.yaml]")
    padding = "#" * (MAX_BYTES - len(POLICY) - 1)
    assert read_policy(f"{POLICY}{padding}\n").policy is not None


def test_the_budget_is_asked_between_steps() -> None:
    def check(phase: str) -> None:
        raise OutOfTime(phase)

    with pytest.raises(OutOfTime, match="policy"):
        read_policy(POLICY, AT, check)
    assert read_policy(POLICY, AT, Budget(1, lambda: 0.0).check).policy is not None


def test_threads_do_not_meet() -> None:
    found: dict[int, str] = {}

    def reading(number: int) -> None:
        loaded = read_policy(POLICY.replace("name: wait", f"name: wait-{number}"))
        assert loaded.policy is not None
        found[number] = loaded.policy.rules[0].name

    threads = [threading.Thread(target=reading, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"wait-{number}" for number in range(8)}


# --- files --------------------------------------------------------------------------------------


def lines(found: PolicyFile) -> list[str]:
    return [line(row, entry, color=False) for row in found.rows for entry in row.entries]


@pytest.fixture
def read_file(tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)

    def reading(text: str, **options: Any) -> PolicyFile:
        (tmp_path / "p.yaml").write_text(text)
        return policy_file("p.yaml", **options)

    return reading


def test_a_document_is_a_policy(read_file: Any) -> None:
    found = read_file(POLICY)
    assert found.usable
    assert lines(found) == []
    assert (found.policy.default, found.candidate) == ("deny", None)


def test_a_config_map_holds_policy_and_candidate(read_file: Any) -> None:
    found = read_file(config_map(policy=POLICY, candidate=CANDIDATE))
    assert found.usable
    assert (found.policy.default, found.candidate.default) == ("deny", "allow")


NAMED = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: device-taint-webhook-policy}\n"


@table(
    "text, told",
    {
        "the policy as binary data": (
            f"{NAMED}binaryData: {{policy.yaml: eA==}}\n",
            "p.yaml:4:27: error: binaryData[policy.yaml]: Forbidden: must be in data, as text in UTF-8",
        ),
        "a misspelt key": (
            f"{NAMED}data: {{policy.yml: x}}\n",
            'p.yaml:4:20: error: data[policy.yml]: Forbidden: unknown key, did you mean "policy.yaml"?',
        ),
        "a misspelt key in a ConfigMap of another name": (
            config_map(policy=POLICY).replace("policy.yaml", "policy.yml"),
            'p.yaml:5:15: error: data[policy.yml]: Forbidden: unknown key, did you mean "policy.yaml"?',
        ),
        "no data": (NAMED, "p.yaml:1:1: error: data[policy.yaml]: Required value: must hold the policy"),
    },
)
def test_config_map_of_the_policy_without_one_is_refused(read_file: Any, text: str, told: str) -> None:
    """F11: `check` says what the webhook would."""
    found = read_file(text)
    (line_told,) = lines(found)
    assert line_told.startswith(told)
    assert not found.usable


def test_document_and_config_map_are_the_same_policy(read_file: Any) -> None:
    policies = [read_file(POLICY).policy, read_file(config_map(policy=POLICY)).policy, read_policy(POLICY).policy]
    assert len({policy.hash for policy in policies}) == 1


def test_other_objects_of_the_file_are_left_alone(read_file: Any) -> None:
    found = read_file(f"apiVersion: v1\nkind: Namespace\n---\n{config_map(policy=POLICY)}---\nkind: 3\n")
    assert found.usable
    assert found.policy is not None


@table(
    "text, told",
    {
        "a document": (POLICY.replace("name: wait", "name: Wait"), "p.yaml:5:9: error: rules[0].name: "),
        "a config map": (
            config_map(policy=POLICY.replace("name: wait", "name: Wait")),
            "p.yaml:10:13: error: data[policy.yaml].rules[0].name: ",
        ),
        "a candidate": (
            config_map(policy=POLICY, candidate=POLICY.replace("name: wait", "name: Wait")),
            "p.yaml:18:13: error: data[candidate.yaml].rules[0].name: ",
        ),
        "a text that is not YAML": (
            config_map(policy=POLICY.replace("default: deny", "default: [")),
            'p.yaml:10:5: error: data[policy.yaml]: Invalid value: "- name: wait": line 5, column 1: not YAML',
        ),
        "a text in quotes": (
            'apiVersion: v1\nkind: ConfigMap\ndata:\n  policy.yaml: "kind: DeviceTaintPolicy"\n',
            "p.yaml:4:16: error: data[policy.yaml].apiVersion: Required value",
        ),
        "a key twice": (
            f"{POLICY}kind: DeviceTaintPolicy\n",
            'p.yaml:8:1: error: kind: duplicate key "kind", already on line 2',
        ),
        "no YAML": ("a: [\n", "p.yaml:2:1: error: not YAML: "),
        "no policy": (
            "apiVersion: v1\nkind: ConfigMap\ndata: {policy.yaml: x}\n",
            "p.yaml: error: contains neither a DeviceTaintPolicy nor a ConfigMap with one in policy.yaml",
        ),
        "two policies": (f"{POLICY}---\n{POLICY}", "p.yaml: error: contains 2 policies"),
        "too long": (f"{POLICY}#{'x' * MAX_BYTES}\n", "p.yaml: error: Too long: may not be more than"),
    },
)
def test_faults_stand_where_they_are_in_the_file(text: str, told: str, read_file: Any) -> None:
    found = read_file(text)
    assert not found.usable
    assert any(each.startswith(told) for each in lines(found)), lines(found)
    assert all(yaml.safe_dump(row.findings) for row in found.rows), "reports of it can be YAML"


def test_exceptions_that_end_are_told_to_whoever_knows_the_time(read_file: Any) -> None:
    text = f'{POLICY}exceptions:\n- {{name: once, rules: [default], expiresAt: "2026-06-03T00:00:00Z"}}\n'
    assert lines(read_file(text)) == []
    (told,) = lines(read_file(text, now=NOW))
    assert told == "p.yaml:9:45: warning: exceptions[0].expiresAt: is within a week [DT108]"
    (told,) = lines(read_file(config_map(policy=text), now=NOW))
    assert told.startswith("p.yaml:14:49: warning: data[policy.yaml].exceptions[0].expiresAt: ")


def test_a_file_that_is_not_there_is_told(tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = policy_file("gone.yaml")
    assert (found.policy, lines(found)) == (None, ["gone.yaml: error: cannot be read: No such file or directory"])
