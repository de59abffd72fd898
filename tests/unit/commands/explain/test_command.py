"""`explain`, and the same words in `check -v`: which field kept a rule from matching (B3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.builders import make_claim, make_device, make_meta, make_rule, make_slice, make_taint, make_toleration
from tests.unit.commands.check_runner import CheckRunner
from tests.unit.commands.runner import Runner
from webhook.commands.explain import command as explain
from webhook.commands.shared.main import main_of
from webhook.commands.test import command as suite

POLICY: Final[dict[str, Any]] = yaml.safe_load("""\
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
default: deny
rules:
- name: ml-hour
  action: allow
  match:
    namespaces: {names: [ml-*]}
    requesters: {groups: [ml-team]}
    tolerations: {keys: [maint.example.com/*], seconds: {atMost: 3600}}
    when: request.count <= 4
taintRules:
- {name: ops, action: allow, match: {requesters: {groups: [ops]}}}
- {name: others, action: deny, match: {taints: {effects: [NoSchedule, NoExecute]}}}
exceptions:
- name: lab
  rules: [default]
  match: {namespaces: {names: [lab]}}
  expiresAt: "2026-12-31T00:00:00Z"
  owner: lab@example.com
  reason: trial
""")
WHO: Final = ("--policy", "policy.yaml", "--user", "mila", "--group", "ml-team", "--time", "2026-06-01T12:00:00Z")
PLACE: Final = "spec.devices.requests[0].exactly.tolerations[0]"


def claim(namespace: str = "web", seconds: int = 7200, **exactly: Any) -> Any:
    toleration = make_toleration("maint.example.com/x", effect="NoExecute", tolerationSeconds=seconds)
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu", "tolerations": [toleration], **exactly}}
    return make_claim(requests=[request], meta=make_meta("model", namespace=namespace))


class Explainer(Runner):
    """Writes files, runs explain over them, and gives exit code and output."""

    sorts = True

    def __call__(self, *words: str, policy: Any = POLICY, **files: Any) -> tuple[int, str]:
        self.write("policy", policy)
        names = [self.write(stem, content) for stem, content in files.items()]
        code, out, err = self.said(main_of(explain, [*words, *names]))
        return code, out + err


@pytest.fixture
def run_explain(alone: Path, capsys: pytest.CaptureFixture[str]) -> Explainer:
    return Explainer(alone, capsys)


def test_each_rule_names_the_fields_that_kept_it_from_matching(run_explain: Explainer) -> None:
    code, output = run_explain(*WHO, c=claim())
    assert code == 1
    assert output == (
        'c.yaml:1:1: ResourceClaim web/model: "mila" in namespace "web"\n'
        f'  {PLACE}: a toleration of key "maint.example.com/x", NoExecute, for 7200 s\n'
        "    ml-hour (allow): does not match\n"
        '        namespaces.names: "web", wanted "ml-*"\n'
        "        tolerations.seconds: 7200 s, wanted at most 3600 s\n"
        "    default (deny): matches, refuses and decides\n"
        '        exception lab does not apply: namespaces.names: "web", wanted "lab"\n'
        "    => denied: the policy's default\n"
    )


def test_rules_behind_the_one_that_decides_are_not_reached(run_explain: Explainer) -> None:
    code, output = run_explain(*WHO, c=claim("ml-a", 60))
    assert code == 0
    assert "ml-hour (allow): matches, allows and decides\n" in output
    assert "default (deny): not reached, would match\n    => allowed: rule ml-hour\n" in output


def test_expression_that_is_false_and_one_that_cannot_be_evaluated_are_told_apart(run_explain: Explainer) -> None:
    _, false = run_explain(*WHO, c=claim("ml-a", 60, count=8))
    assert "        when: false, wanted request.count <= 4\n" in false
    _, unknown = run_explain(*WHO, c=claim("ml-a", 60, allocationMode="All"))
    assert "        when: cannot be evaluated (" in unknown


def test_exception_that_excuses_is_named_with_its_end(run_explain: Explainer) -> None:
    code, output = run_explain(*WHO, c=claim("lab"))
    assert code == 0
    assert "default (deny): matches, excused by exception lab until 2026-12-31T00:00:00Z\n" in output
    ended = ("--policy", "policy.yaml", "--user", "mila", "--time", "2027-01-01T00:00:00Z")
    code, output = run_explain(*ended, c=claim("lab"))
    assert code == 1
    assert "exception lab does not apply: expiresAt: 2027-01-01T00:00:00Z, wanted before 2026-12-31T00:00:00Z" in output


def test_taint_says_who_may_set_it(run_explain: Explainer) -> None:
    code, output = run_explain(*WHO, r=make_rule(taint=make_taint("a.example.com/b", effect="NoSchedule")))
    assert code == 1
    assert "    ops (allow): does not match\n" in output
    assert '        requesters: user "mila" (groups "ml-team", "system:authenticated"), wanted group "ops"\n' in output
    assert "    => denied: rule others\n" in output


def test_taint_in_a_slice_is_explained_where_rules_are_about_slices(run_explain: Explainer) -> None:
    policy = {**POLICY, "taintRulesOnSlices": True}
    code, output = run_explain(*WHO, policy=policy, s=make_slice([make_device(taints=[make_taint()])]))
    assert code == 1
    assert "    => denied: rule others\n" in output


def test_json_and_yaml_hold_every_rule_with_its_fields(run_explain: Explainer) -> None:
    code, output = run_explain("-o", "json", *WHO, c=claim())
    values = json.loads(output)
    assert (code, values) == (1, yaml.safe_load(run_explain("-o", "yaml", *WHO, c=claim())[1]))
    (walk,) = values["objects"][0]["walks"]
    assert [(rule["rule"], rule["result"]) for rule in walk["rules"]] == [
        ("ml-hour", "noMatch"),
        ("default", "refuses"),
    ]
    assert walk["rules"][0]["unmet"][0]["text"] == 'namespaces.names: "web", wanted "ml-*"'


def test_mode_that_asks_no_rule_is_said(run_explain: Explainer) -> None:
    code, output = run_explain(*WHO, policy={**POLICY, "mode": "off"}, c=claim())
    assert code == 0
    assert "  (the policy's mode is off: no rule is asked)\n" in output


def test_claim_without_tolerations_says_that_no_rule_is_asked(run_explain: Explainer) -> None:
    bare = make_claim(requests=[{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}])
    code, output = run_explain(*WHO, c=bare)
    assert (code, output.splitlines()[1:]) == (
        0,
        ["  (no tolerations, and no rule with subject request: no rule is asked)"],
    )


def test_slice_without_taints_says_that_no_rule_is_asked(run_explain: Explainer) -> None:
    code, output = run_explain(*WHO, s=make_slice([make_device()]))
    assert (code, output.splitlines()[1:]) == (0, ["  (no taint is set that a rule could be about: no rule is asked)"])


def test_object_with_errors_says_that_no_rule_was_asked(run_explain: Explainer) -> None:
    code, output = run_explain(*WHO, r=make_rule(taint=make_taint(effect="x")))
    assert code == 1
    assert output.startswith('r.yaml:11:13: error: spec.taint.effect: Unsupported value: "x"')
    assert "(has errors of its own, so no rule was evaluated)" in output


def test_nothing_to_explain_and_a_policy_that_is_not_usable_give_two_and_one(run_explain: Explainer) -> None:
    code, output = run_explain(*WHO, p={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}})
    assert code == 2
    assert "contains no claim, template, rule, patch or slice to explain" in output
    code, output = run_explain(*WHO, policy={**POLICY, "default": "maybe"}, c=claim())
    assert code == 1
    assert output.startswith("policy.yaml:")
    assert "not match" not in output


def test_namespace_of_the_file_and_of_the_flag_are_one(run_explain: Explainer) -> None:
    code, output = run_explain(*WHO, "-n", "web", c=claim("ml-a"))
    text = 'metadata.namespace: Invalid value: "ml-a": does not match -n web; pass -n ml-a, or leave -n out'
    assert (code, text in output, "=>" in output) == (1, True, False)
    assert run_explain(*WHO, "-n", "ml-a", c=claim("ml-a")) == run_explain(*WHO, c=claim("ml-a"))


def test_who_is_not_given_is_named_by_the_flag(run_explain: Explainer) -> None:
    _, output = run_explain("--policy", "policy.yaml", c=claim("ml-a"))
    assert 'ResourceClaim ml-a/model: a requester without a name (--user is not given) in namespace "ml-a"' in output


def test_case_of_a_suite_that_fails_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = {"name": "waits", "object": claim("ml-a"), "requester": {"username": "mila", "groups": ["ml-team"]}}
    tests = {"apiVersion": "policy.devicetaint.io/v1alpha1", "kind": "DeviceTaintPolicyTest", "policy": POLICY}
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump({**tests, "cases": [{**case, "expect": {"decision": "allowed"}}]}))
    assert main_of(suite, [str(path)]) == 1
    assert (
        f'          {PLACE}: a toleration of key "maint.example.com/x", NoExecute, for 7200 s\n'
        "            ml-hour (allow): does not match\n"
        "                tolerations.seconds: 7200 s, wanted at most 3600 s\n"
    ) in capsys.readouterr().out
    path.write_text(yaml.safe_dump({**tests, "cases": [{**case, "expect": {"decision": "denied"}}]}))
    assert main_of(suite, [str(path)]) == 0
    assert "does not match" not in capsys.readouterr().out


def test_code_is_explained_in_any_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_of(explain, ["dt001"]) == 0
    assert capsys.readouterr().out.startswith("DT001: toleration without effect\n\nAllocation takes an empty effect")
    assert main_of(explain, ["-o", "json", "DT001", "DT113"]) == 0
    assert [each["code"] for each in json.loads(capsys.readouterr().out)["codes"]] == ["DT001", "DT113"]


def test_check_with_verbose_tells_the_same_of_each_rule(run: CheckRunner) -> None:
    code, output = run("-v", *WHO, policy=POLICY, c=claim())
    assert code == 1
    place = f"info: {PLACE}: "
    assert (
        f'{place}does not match: namespaces.names: "web", wanted "ml-*"; tolerations.seconds: 7200 s, wanted at most '
        "3600 s (rule ml-hour)\n"
    ) in output
    assert f"{place}matches, refuses and decides: exception lab does not apply: " in output
    assert "does not match" not in run(*WHO, policy=POLICY, c=claim())[1]
