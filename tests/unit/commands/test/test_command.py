"""`test`: cases that pass and fail, what is told of them, and the suites of the sample policies."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.builders import (
    DRIVER,
    NOW_TEXT,
    make_claim,
    make_meta,
    make_rule,
    make_slice,
    make_template,
    make_toleration,
)
from tests.tables import table
from tests.unit.commands.impact_suites import DANA, case
from tests.unit.commands.runner import Runner
from webhook.commands.shared.main import main_of
from webhook.commands.test import command as suite
from webhook.files.read import read
from webhook.policy.suites import KIND

SAMPLES = Path(__file__).parents[4] / "manifests" / "policies"
POLICY = """\
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
default: deny
generatedClaims: enforce
rules:
- name: no-broken
  action: deny
  match: {tolerations: {keys: ["health.example.com/*"]}}
  message: broken devices give wrong results
- {name: told, action: warn, match: {tolerations: {keys: ["odd.example.com/*"]}}}
- {name: odd-is-fine, action: allow, match: {tolerations: {keys: ["odd.example.com/*"]}}}
- {name: ops-may, action: allow, match: {requesters: {groups: [ops]}}}
exceptions:
- {name: lab, rules: [no-broken, default], match: {namespaces: {names: [lab]}}, expiresAt: "2026-09-01T00:00:00Z"}
defaultTolerations:
- name: five-minutes
  match: {namespaces: {names: [batch]}}
  tolerations: [{key: odd.example.com/x, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]
"""
BROKEN = make_toleration("health.example.com/x")
ODD = make_toleration("odd.example.com/x")
OPS = {"username": "olga", "groups": ["ops"]}
PLACE = "spec.devices.requests[0].exactly.tolerations[0]"


def claim(*tolerations: Any, namespace: str = "ml") -> Any:
    return make_claim(tolerations, meta=make_meta("c", namespace=namespace))


def make_suite(*cases: Any, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "policy.devicetaint.io/v1alpha1",
        "kind": KIND,
        "metadata": {"name": "ours"},
        "policy": "policy.yaml",
        "namespaces": {"ml": {}, "lab": {}, "batch": {}},
        "deviceClasses": {DRIVER: [DRIVER]},
        "defaults": {"time": NOW_TEXT},
        "cases": list(cases),
        **fields,
    }


class SuiteRunner(Runner):
    """Writes policy and suites, runs `test` over them, gives exit code and output."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(folder, capsys)
        self.write("policy", POLICY)

    def __call__(self, *words: str, **suites: Any) -> tuple[int, str]:
        return self.said(main_of(suite, [*words, *(self.write(stem, content) for stem, content in suites.items())]))[:2]

    def case(self, one: Any, **fields: Any) -> dict[str, Any]:
        """What came of a single case."""
        code, output = self("-o", "json", s=make_suite(one, **fields))
        (told,) = json.loads(output)["cases"]
        assert code == (0 if told["result"] == "passed" else 1)
        result: dict[str, Any] = told
        return result


@pytest.fixture
def run(alone: Path, capsys: pytest.CaptureFixture[str]) -> SuiteRunner:
    return SuiteRunner(alone, capsys)


# --- cases --------------------------------------------------------------------------------------

PASSING = {
    "allowed by a rule": case(claim(ODD), "warned", rules=["told"]),
    "allowed by nothing but silence": case(claim(), "allowed", rules=[]),
    "denied by a rule": case(claim(BROKEN), "denied", rules=["no-broken"], message="wrong results", field=PLACE),
    "denied by default": case(claim(make_toleration("a/b")), "denied", rules=["default"], message="no rule allows"),
    "allowed to a group": case(claim(make_toleration("a/b")), "allowed", OPS, rules=[]),
    "several tolerations": case(claim(ODD, BROKEN), "denied", rules=["no-broken", "told"]),
    "excused": case(claim(BROKEN, namespace="lab"), "allowed", rules=["lab"]),
    "excused no more": case(claim(BROKEN, namespace="lab"), "denied", rules=["no-broken"], time="2026-09-01T00:00:00Z"),
    "told of the end": case(
        claim(BROKEN, namespace="lab"), "warned", rules=["lab"], time="2026-08-30T00:00:00Z", message="until"
    ),
    "defaulted": case(
        claim(namespace="batch"),
        "warned",
        defaulted=[{"key": "odd.example.com/x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
    ),
    "nothing to default": case(claim(), "allowed", defaulted=[]),
    "advice is no warning": case(claim(make_toleration("a/b", effect=None)), "allowed", OPS),
    "a documented rule is": case(
        claim(make_toleration(None, operator="Equal", value="x")), "denied", OPS, rules=["no-broken"]
    ),
    "malformed": case(claim(make_toleration("a b")), "denied", OPS, rules=[], field=f"{PLACE}.key"),
    "a field that is none": case({**claim(), "spek": {}}, "denied", field="spek", message="unknown field"),
    "a template": case(make_template([BROKEN]), "denied", field=PLACE.replace("spec.", "spec.spec.", 1)),
    "a taint rule": case(make_rule(), "allowed", rules=[]),
    "a slice": case(make_slice(), "allowed"),
    "generated for somebody who may": case(claim(make_toleration("a/b")), "allowed", None, author=OPS),
    "generated for somebody who may not": case(
        claim(make_toleration("a/b")), "denied", None, author=DANA, rules=["default"]
    ),
    "generated for nobody knows whom": case(
        claim(BROKEN),
        "denied",
        {"serviceAccount": "kube-system/resource-claim-controller"},
        rules=["no-broken", "unknownAuthor"],
    ),
    "an update changes nothing": case(
        {**claim(BROKEN), "metadata": {"name": "c", "namespace": "ml", "labels": {"a": "b"}, "resourceVersion": "1"}},
        "warned",
        oldObject={**claim(BROKEN), "metadata": {"name": "c", "namespace": "ml", "resourceVersion": "1"}},
    ),
    "annotations that are none": case(make_claim(meta=make_meta("c", annotations=[3])), "denied", OPS),
    "the suite's namespace": case(
        make_claim([make_toleration("a/b")], meta={"name": "c"}), "denied", message='"default"'
    ),
}


@pytest.mark.parametrize("one", PASSING.values(), ids=PASSING)
def test_what_comes_as_expected_passes(one: Any, run: SuiteRunner) -> None:
    assert run.case(one)["mismatches"] == []


@pytest.mark.parametrize(
    ("one", "about", "expected", "got"),
    [
        (case(claim(BROKEN), "allowed"), "decision", "allowed", "denied"),
        (case(claim(BROKEN), "denied", rules=["told"]), "rules", "[told]", "[no-broken]"),
        (case(claim(BROKEN), "denied", rules=[]), "rules", "[]", "[no-broken]"),
        (case(claim(), "allowed", message="x"), "message", 'one with "x"', "[]"),
        (case(claim(BROKEN), "denied", field="spec"), "field", "spec", f"[{PLACE}]"),
        (
            case(claim(namespace="batch"), "warned", defaulted=[]),
            "defaulted",
            "[]",
            "[{key: odd.example.com/x, operator: Exists, effect: NoExecute, tolerationSeconds: 300}]",
        ),
    ],
)
def test_what_comes_otherwise_fails(one: Any, about: str, expected: str, got: str, run: SuiteRunner) -> None:
    assert run.case(one)["mismatches"] == [{"about": about, "expected": expected, "got": got}]


def test_facts_are_those_of_the_suite(run: SuiteRunner) -> None:
    rule = (
        "[{name: a, action: deny, match: {namespaces: {labels: {tier: x}}, drivers: [d], tolerations: {keys: [a/b]}}}]"
    )
    header = POLICY.partition("rules:")[0].replace("default: deny", "default: allow")
    policy = yaml.safe_load(f"{header}rules: {rule}")
    one = case(claim(make_toleration("a/b")), "denied")

    def decision(**facts: Any) -> str:
        return str(run.case(one, policy=policy, **facts)["decision"])

    matching = {"namespaces": {"ml": {"labels": {"tier": "x"}}}, "deviceClasses": {DRIVER: ["d"]}}
    assert decision(**matching) == "denied"
    assert decision(namespaces={}, deviceClasses={}) == "denied", "what is not known matches what refuses"
    assert decision(**{**matching, "namespaces": {"ml": {}}}) == "allowed"
    assert decision(**{**matching, "deviceClasses": {DRIVER: ["other"]}}) == "allowed"
    assert decision(**{**matching, "deviceClasses": {DRIVER: None}}) == "denied"


def test_an_object_may_stand_in_a_file(run: SuiteRunner, tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects/c.yaml").write_text(yaml.safe_dump(claim(BROKEN)))
    (tmp_path / "suites").mkdir()
    one = case(None, "denied", file="../objects/c.yaml")
    (tmp_path / "suites/s.yaml").write_text(yaml.safe_dump(make_suite(one, policy="../policy.yaml")))
    code, output = run("suites")
    assert (code, output.splitlines()[:2]) == (0, ["suites/s.yaml: ours", "  ok    one"])


# --- output -------------------------------------------------------------------------------------

MIXED = make_suite(
    case(claim(BROKEN), "denied", name="broken devices are not for work", rules=["no-broken"]),
    case(claim(ODD), "allowed", OPS, "ops may do odd things", rules=[]),
)


def test_text_tells_what_was_expected_and_what_came(run: SuiteRunner) -> None:
    code, output = run(s=MIXED)
    assert code == 1
    output = re.sub(rf" +{re.escape(PLACE)}: a toleration of .*\n( {{12}}.*\n)+", "", output)  # the walk of rules
    assert output == (
        "s.yaml: ours\n"
        "  ok    broken devices are not for work\n"
        "  FAIL  ops may do odd things (39:3)\n"
        "          decision: expected allowed, got warned\n"
        "          rules: expected [], got [told]\n"
        f'          message: {PLACE}: "olga" in namespace "ml" asks for a toleration of key '
        '"odd.example.com/x", NoSchedule\n'
        "policy.yaml: info: no case hits rule ops-may\n"
        "policy.yaml: info: no case hits exception lab\n"
        "policy.yaml: info: no case hits default toleration five-minutes\n"
        "1 suite, 2 cases: 1 passed, 1 failed\n"
    )


def test_verbose_text_names_the_rules_that_matched(run: SuiteRunner) -> None:
    _, output = run("-v", s=MIXED)
    assert "          warned; matched: odd-is-fine, told\n" in output
    assert "          denied; matched: no-broken\n" in output


def test_color_is_for_terminals(run: SuiteRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in run(s=MIXED)[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "  \x1b[1;31mFAIL\x1b[0m  ops may" in run(s=MIXED)[1]


def test_names_cannot_steer_a_terminal(run: SuiteRunner) -> None:
    _, output = run(s=make_suite(case(claim(), "allowed", name="a\x1b[2J\n"), metadata={"name": "b\x1b[2J"}))
    assert "\x1b" not in output
    assert "  ok    a\\x1b[2J\\n\n" in output


def test_programs_get_what_no_case_hits(run: SuiteRunner) -> None:
    values = json.loads(run("-o", "json", "--fail-uncovered", s=MIXED)[1])
    counts = {"suites": 1, "cases": 2, "passed": 1, "failed": 1, "unusable": 0, "uncovered": 3}
    assert (values["summary"], values["cases"][0]["matched"]) == (counts, ["no-broken"])
    assert values["uncovered"][0] == {"policy": "policy.yaml", "sort": "rule", "name": "ops-may"}
    root = ET.fromstring(run("-o", "junit", "--fail-uncovered", s=MIXED)[1].encode())
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("5", "4", "0")
    assert next(each.get("name") for each in root.iter("testcase")) == "ours/broken devices are not for work"


def test_uncovered_rules_fail_only_when_asked(run: SuiteRunner) -> None:
    one = make_suite(MIXED["cases"][0])
    assert run(s=one)[0] == 0
    code, output = run("--fail-uncovered", s=one)
    assert code == 1
    assert "policy.yaml: error: no case hits rule told\n" in output


def test_coverage_counts_all_suites_of_a_policy(run: SuiteRunner) -> None:
    one, two = make_suite(MIXED["cases"][0]), make_suite(MIXED["cases"][1])
    assert "told" not in run(a=one, b=two)[1].split("no case hits", 1)[1]
    assert "no case hits rule told" in run(a=one)[1]


def test_cases_can_be_chosen(run: SuiteRunner) -> None:
    code, output = run("--run", "ours/broken", "--fail-uncovered", s=MIXED)
    assert (code, output) == (
        0,
        "s.yaml: ours\n  ok    broken devices are not for work\n1 suite, 1 case: 1 passed, 0 failed\n",
    ), "and coverage says nothing then"


# --- what cannot be run -------------------------------------------------------------------------


@table(
    "content, told",
    {
        "a field that is none": (
            make_suite(case(claim(), "allowed", tyme=3)),
            "s.yaml:34:9: error: cases[0].tyme: Forbidden: unknown field",
        ),
        "not YAML": ("a: [\n", "s.yaml:2:1: error: not YAML"),
        "no suite": ("a: b", "s.yaml: error: contains no DeviceTaintPolicyTest"),
        "no policy": (make_suite(case(claim(), "allowed"), policy="gone.yaml"), "gone.yaml: error: cannot be read"),
        "a policy with faults": (
            make_suite(case(claim(), "allowed"), policy={"kind": "DeviceTaintPolicy"}),
            "s.yaml:6:3: error: policy.apiVersion: Required value",
        ),
        "an object of another kind": (
            make_suite(case({"apiVersion": "v1", "kind": "Pod"}, "allowed")),
            "s.yaml:16:3: error: cases[0]: the webhook does not review v1 Pod",
        ),
        "an author of a template": (
            make_suite(case(make_template(), "allowed", author=DANA)),
            "s.yaml:16:3: error: cases[0]: author is for claims that are made from a template",
        ),
        "a file that is not there": (
            make_suite(case(None, "allowed", file="gone.yaml")),
            "s.yaml:16:3: error: cases[0]: gone.yaml: cannot be read",
        ),
        "a file with two objects": (
            make_suite(case(None, "allowed", file="policies.yaml")),
            "s.yaml:16:3: error: cases[0]: policies.yaml: must contain one object, but contains 2",
        ),
    },
)
def test_what_cannot_be_run_gives_two(content: Any, told: str, run: SuiteRunner, tmp_path: Path) -> None:
    (tmp_path / "policies.yaml").write_text(f"{POLICY}---\n{POLICY}")
    code, output = run(s=content)
    assert code == 2
    assert any(line.startswith(told) for line in output.splitlines()), output
    assert "unusable\n" in output


def test_the_rest_is_run_all_the_same(run: SuiteRunner) -> None:
    code, output = run("-o", "junit", a="a: [", b=MIXED)
    assert code == 2
    root = ET.fromstring(output.encode())
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("3", "1", "1")


def test_folders_hold_other_things_too(run: SuiteRunner, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("{{ broken }}: [")
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(make_suite(case(claim(), "allowed"))))
    code, output = run(".")
    assert (code, output.splitlines()[-1]) == (0, "1 suite, 1 case: 1 passed, 0 failed")


def test_a_policy_in_the_suite_is_used(run: SuiteRunner) -> None:
    one = make_suite(case(claim(BROKEN), "denied", rules=["no-broken"]), policy=yaml.safe_load(POLICY))
    code, output = run("--fail-uncovered", s=one)
    assert code == 1
    assert "s.yaml (policy): error: no case hits rule told" in output


# --- the sample policies ------------------------------------------------------------------------


def test_every_sample_policy_has_its_suite() -> None:
    folders = sorted(path.parent for path in SAMPLES.glob("*/policy.yaml"))
    assert len(folders) >= 5
    for folder in folders:
        (file,) = read([str(folder / "policy_test.yaml")])
        (manifest,) = file.manifests
        assert (manifest.value["metadata"]["name"], manifest.value["policy"]) == (folder.name, "policy.yaml")
        assert len(manifest.value["cases"]) >= 8


def test_sample_policies_do_what_their_suites_say(capsys: pytest.CaptureFixture[str]) -> None:
    """Every rule of each is hit by a case."""
    code = main_of(suite, ["--fail-uncovered", str(SAMPLES)])
    output = capsys.readouterr().out
    assert [line for line in output.splitlines() if "FAIL" in line or " error: " in line] == []
    assert code == 0
