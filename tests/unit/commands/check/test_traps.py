"""R6: what YAML reads as something else than it looks like, in policies, in suites and in manifests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.builders import make_claim, make_toleration
from tests.tables import table
from tests.unit.commands.check_runner import RULE, CheckRunner
from tests.unit.commands.shared.test_policy_files import AT, POLICY, config_map
from webhook.commands.shared.main import main_of
from webhook.commands.shared.policy_files import policy_file, read_policy
from webhook.commands.test import command as suite
from webhook.policy.model import PolicyMode
from webhook.policy.suites import KIND

HEAD = "apiVersion: policy.devicetaint.io/v1alpha1\nkind: DeviceTaintPolicy\n"
FORMS = [
    pytest.param(lambda text: text, id="a document"),
    pytest.param(lambda text: config_map(policy=text), id="a ConfigMap"),
    pytest.param(lambda text: config_map(policy=POLICY, candidate=text), id="a candidate"),
]

A_RULE = "rules: [{name: a, action: deny, "


def quoted(word: str, value: str) -> str:
    """What is said of a word that should have been text."""
    return f'must be a string; YAML reads an unquoted {word} as {value}: write "{word}" in quotes'


TRAPS = {
    # what stands there: where, and what is said of it at the end
    "mode: on": ("mode", "; YAML reads an unquoted on as true"),
    "mode: 010": ("mode", "; YAML reads an unquoted 010 as 8"),
    "default: no": ("default", "; YAML reads an unquoted no as false"),
    "generatedClaims: off": ("generatedClaims", '"enforce", "warn"; YAML reads an unquoted off as false'),
    "unknownAuthor: ~": ("unknownAuthor", '"allow", "deny", "warn"; YAML reads an unquoted ~ as null'),
    "rules: [{name: y, action: deny}]": ("rules[0].name", quoted("y", "true").removeprefix("must be a string")),
    f"{A_RULE}message: Yes}}]": ("rules[0].message", quoted("Yes", "true")),
    "rules:\n- name: a\n  action: deny\n  message:\n": (
        "rules[0].message",
        'must be a string; YAML reads an empty value as null: leave the field out, or write ""',
    ),
    "trustedControllers: [0o17]": ("trustedControllers[0]", quoted("0o17", "15")),
    "trustedControllers: [1_000]": ("trustedControllers[0]", quoted("1_000", "1000")),
    "trustedControllers: [true]": ("trustedControllers[0]", quoted("true", "a boolean")),
    f"taintRulesOnSlices: &a no\n{A_RULE}message: *a}}]": ("rules[0].message", quoted("no", "false")),
    f"{A_RULE}match: {{namespaces: {{labels: {{tier: 2026}}}}}}}}]": (
        "rules[0].match.namespaces.labels[tier]",
        quoted("2026", "a number"),
    ),
    f"{A_RULE}match: {{tolerations: {{seconds: {{above: 1:30}}}}}}}}]": (
        "rules[0].match.tolerations.seconds.above",
        "must be a whole number; 1:30 is text here, as kubectl reads it: write 90",
    ),
    "eviction: [{rate: on}]": ("eviction[0].rate", "must be a number; YAML reads an unquoted on as true"),
    "exceptions: [{name: a, rules: [default], expiresAt: 2026-01-31}]": (
        "exceptions[0].expiresAt",
        'must be a time like "2026-01-31T12:00:00Z" (RFC 3339)',
    ),
}


@pytest.mark.parametrize(("line", "field", "said"), [(line, *told) for line, told in TRAPS.items()], ids=TRAPS)
def test_text_that_yaml_reads_as_something_else_is_named_with_the_way_out(line: str, field: str, said: str) -> None:
    """As they arrive in a ConfigMap or a file of the server."""
    (error,) = read_policy(f"{HEAD}{line}\n", AT).errors
    assert str(error.path) == f"data[policy.yaml].{field}"
    assert error.detail.endswith(said)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param("eviction: [{rate: 010}]", 'YAML reads 010 as octal: write 8, or "010" if it is text', id="octal"),
        pytest.param(
            "rules: [{name: a, action: deny, match: {namespaces: {labels: {on: x}}}}]",
            'YAML reads the key on as true: write "on" in quotes',
            id="a key",
        ),
    ],
)
def test_reading_that_makes_no_error_is_told_as_a_warning(line: str, said: str) -> None:
    loaded = read_policy(f"{HEAD}{line}\n", AT)
    assert loaded.policy is not None
    assert [finding.error.detail for finding in loaded.warnings if finding.code == "DT113"] == [said]


@pytest.mark.parametrize(
    "line",
    ["eviction: [{rate: 0, burst: 10}]", "eviction: [{burst: 1_000, rate: 0o10}]", "eviction: [{rate: 08}]", "rules:"],
)
def test_numbers_that_mean_what_they_look_like_are_not_told(line: str) -> None:
    loaded = read_policy(f"{HEAD}{line}\n", AT)
    assert loaded.warnings == ()
    assert not any("YAML" in error.detail for error in loaded.errors)


@pytest.mark.parametrize("form", FORMS)
def test_unquoted_off_works_in_files(tmp_path: Path, form: Callable[[str], str]) -> None:
    (tmp_path / "p.yaml").write_text(form(f"{POLICY}mode: off\ndocumentedRules: off\n"))
    found = policy_file(str(tmp_path / "p.yaml"))
    used = found.candidate or found.policy
    assert found.usable
    assert used is not None
    assert (used.mode, used.documented_rules) == (PolicyMode.OFF, PolicyMode.OFF)


@pytest.mark.parametrize("form", FORMS)
def test_what_yaml_read_is_told_once_in_files(tmp_path: Path, form: Callable[[str], str]) -> None:
    (tmp_path / "p.yaml").write_text(form(f"{POLICY}  message: no\n"))
    (entry,) = (entry for row in policy_file(str(tmp_path / "p.yaml")).rows for entry in row.entries)
    assert entry.message.count("YAML reads an unquoted no as false") == 1


# --- manifests and suites -----------------------------------------------------------------------


@table(
    "line, said",
    {
        "no": ("effect: no", "Invalid value: false: must be a string; YAML reads an unquoted no as false"),
        "on": ("effect: NoSchedule\n    value: on", f"Invalid value: true: {quoted('on', 'true')}"),
        "a hexadecimal number": ("effect: NoSchedule\n    value: 0x1F", f"Invalid value: 31: {quoted('0x1F', '31')}"),
    },
)
def test_manifest_is_refused_as_an_api_server_does_and_the_cause_is_said(
    line: str, said: str, run: CheckRunner
) -> None:
    code, output = run(rule=RULE.replace("effect: NoSchedule", line))
    assert code == 1
    assert said in output.splitlines()[0]


def test_octal_seconds_of_a_manifest_are_a_warning(run: CheckRunner) -> None:
    claim = yaml.safe_dump(make_claim([make_toleration(effect="NoExecute", tolerationSeconds=3600)]))
    code, output = run(claim=claim.replace("3600", "0600"))
    assert code == 0
    assert "tolerations[0].tolerationSeconds: YAML reads 0600 as octal: write 384, or" in output


def suite_text(**fields: Any) -> str:
    """A suite with one case, whose policy has the default switched off."""
    case = {"name": "a", "object": make_claim(), "requester": {"username": "dana"}, "expect": {"decision": "allowed"}}
    content = {"apiVersion": "policy.devicetaint.io/v1alpha1", "kind": KIND, "cases": [case], **fields}
    return yaml.safe_dump(content)


@table(
    "written, instead, field, said",
    {
        "an expectation": ("decision: allowed", "decision: yes", "cases[0].expect.decision", quoted("yes", "true")),
        "the policy": (
            "default: deny",
            "default: no",
            "policy.default",
            '"allow", "deny"; YAML reads an unquoted no as false',
        ),
    },
)
def test_suite_is_refused_with_the_cause(
    written: str, instead: str, field: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = suite_text(policy={**yaml.safe_load(HEAD), "default": "deny"}).replace(written, instead)
    (tmp_path / "s.yaml").write_text(text)
    assert main_of(suite, [str(tmp_path / "s.yaml")]) == 2
    first = capsys.readouterr().out.splitlines()[0]
    assert f"error: {field}: " in first
    assert first.endswith(said)


def test_unquoted_off_works_in_the_policy_of_a_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = {**yaml.safe_load(HEAD), "mode": "OFF", "rules": [{"name": "r", "action": "deny", "subject": "request"}]}
    (tmp_path / "s.yaml").write_text(suite_text(policy=policy).replace("mode: 'OFF'", "mode: off"))
    assert main_of(suite, ["-o", "json", str(tmp_path / "s.yaml")]) == 0
    assert json.loads(capsys.readouterr().out)["cases"][0]["result"] == "passed"
