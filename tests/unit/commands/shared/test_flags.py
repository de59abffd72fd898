"""Command lines: what is refused rather than passed over, hints, colors and the schema (B6)."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from tests.builders import make_meta, make_rule, make_taint
from tests.unit.commands.check_runner import CheckRunner
from webhook.commands import schema
from webhook.commands.shared.flags import use_color
from webhook.commands.shared.main import main_of


def test_namespace_of_63_letters_is_one(run: CheckRunner) -> None:
    assert run("-n", "a" * 63, rule=make_rule(taint=make_taint()))[0] == 0


def test_words_behind_two_dashes_are_files(run: CheckRunner) -> None:
    code, output = run("--", "--polcy.yaml")
    assert code == 2
    assert "--polcy.yaml: error: cannot be read" in output


def test_old_file_without_any_of_the_objects_is_warned_of(run: CheckRunner) -> None:
    """B6: what is judged as new was meant as an update."""
    rule = make_rule(taint=make_taint())
    code, output = run(rule=rule, old=make_rule(meta=make_meta("another"), taint=make_taint()))
    assert code == 0
    assert "old.yaml: warning: contains none of the objects, so each is checked as if it were new\n" in output
    assert "holds none of the objects" not in run(rule=rule, old=rule)[1]


# --- colors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "terminal", "environment", "expected"),
    [
        ("auto", True, {}, True),
        ("auto", False, {}, False),
        ("auto", True, {"NO_COLOR": "1"}, False),
        ("auto", True, {"NO_COLOR": ""}, True),
        ("auto", False, {"FORCE_COLOR": "1"}, True),
        ("auto", False, {"FORCE_COLOR": ""}, False),
        ("auto", False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colors_are_those_that_are_asked_for(
    choice: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, terminal: bool, expected: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    assert use_color(choice) is expected


def test_color_flag_reaches_the_text_and_never_the_json(run: CheckRunner) -> None:
    wrong = make_rule(taint=make_taint(effect="x"))
    assert "\x1b[1;31merror:\x1b[0m" in run("--color", "always", rule=wrong)[1]
    assert "\x1b" not in run("--color", "always", "-o", "json", rule=wrong)[1]


# --- schema -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "kind", "identity"),
    [
        ([], "DeviceTaintPolicy", "https://devicetaint.io/schemas/policy.v1alpha1.json"),
        (["suite"], "DeviceTaintPolicyTest", "https://devicetaint.io/schemas/suite.v1alpha1.json"),
    ],
)
def test_schema_is_printed_with_an_identity(
    words: list[str], kind: str, identity: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main_of(schema, words) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["$id"], printed["title"]) == (identity, kind)
    Draft202012Validator.check_schema(printed)
    version = {"apiVersion": "policy.devicetaint.io/v1alpha1", "kind": kind}
    valid = Draft202012Validator(printed)
    assert list(valid.iter_errors({**version, "mode": "maybe"}))
    minimal = (
        version
        if not words
        else {
            **version,
            "policy": "p.yaml",
            "cases": [{"name": "c", "file": "c.yaml", "expect": {"decision": "allowed"}}],
        }
    )
    assert [error.message for error in valid.iter_errors(minimal)] == []


# --- one form of names --------------------------------------------------------------------------


def test_warning_neither_begins_with_forbidden_nor_names_its_rule_otherwise_than_a_cluster_does(
    run: CheckRunner,
) -> None:
    """C7."""
    policy = {
        "apiVersion": "policy.devicetaint.io/v1alpha1",
        "kind": "DeviceTaintPolicy",
        "taintRules": [{"name": "odd", "action": "warn"}],
    }
    _, output = run("--policy", "p.yaml", "--user", "mila", p=policy, rule=make_rule(taint=make_taint()))
    assert 'warning: spec.taint: "mila" asks for taint gpu.example.com/unhealthy:NoSchedule (rule odd)\n' in output
