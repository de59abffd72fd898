from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.builders import (
    make_claim,
    make_flat_request,
    make_meta,
    make_request,
    make_review,
    make_rule,
    make_taint,
    make_template,
    make_toleration,
)
from tests.unit.commands.check_runner import RULE, CheckRunner, findings
from webhook.commands import audit, check
from webhook.commands.preview import command as preview
from webhook.validation.releases import RELEASES

NO_OBJECT = "must be an object with apiVersion and kind; --skip-others skips files of other kinds"


# --- what is judged -----------------------------------------------------------------------------


def test_other_kinds_are_skipped_and_counted(run: CheckRunner) -> None:
    others = [
        {"apiVersion": "apps/v1", "kind": "Deployment"},
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"},
    ]
    code, output = run(mixed=[make_rule(), *others])
    assert (code, output) == (0, "1 file, 1 object: 0 errors, 0 warnings; skipped: 2 of other kinds\n")
    assert "mixed.yaml:15:1: info: Deployment: skipped, of other kinds" in run("-v", mixed=[make_rule(), *others])[1]


@pytest.mark.parametrize(
    "manifest",
    [
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"policy.yaml": "kind: Other\n"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"other.yaml": "kind: DeviceTaintPolicy\n"}},
        {"apiVersion": "v1", "kind": "Secret", "data": {"policy.yaml": "kind: DeviceTaintPolicy\n"}},
        {"apiVersion": "example.com/v1", "kind": "DeviceTaintPolicy"},
    ],
)
def test_what_is_no_policy_is_of_another_kind(manifest: Any, run: CheckRunner) -> None:
    assert run(policy=manifest)[1].endswith("skipped: 1 of other kinds\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apiVersion: resource.k8s.io/v1\n", "1:1: error: kind: Required value"),
        (
            "kind: DeviceTaintRule\napiVersion: 1\n",
            (
                "2:13: error: apiVersion: Invalid value: 1: must be a string; "
                'YAML reads an unquoted 1 as a number: write "1" in quotes'
            ),
        ),
        ("metadata: {}\nspec: {}\n", "1:1: error: apiVersion: Required value"),
        (
            "- {apiVersion: v1, kind: Pod}\n",
            f'1:1: error: Invalid value: "a list": {NO_OBJECT}',
        ),
        (
            "<html>",
            f'1:1: error: Invalid value: "<html>": {NO_OBJECT}',
        ),
        (
            "apiVersion: resource.k8s.io/v1beta1\nkind: DeviceTaintRule\n",
            (
                '1:13: error: apiVersion: Unsupported value: "resource.k8s.io/v1beta1": supported values: '
                '"resource.k8s.io/v1", "resource.k8s.io/v1alpha3", "resource.k8s.io/v1beta2"'
            ),
        ),
        (
            "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRules\n",
            '2:7: error: kind: Unsupported value: "DeviceTaintRules": supported values: "DeviceTaintRule"',
        ),
    ],
)
def test_what_is_almost_an_object_is_refused(text: str, message: str, run: CheckRunner) -> None:
    code, output = run(almost=text)
    assert code == 1
    assert output.startswith(f"almost.yaml:{message}\n")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("apiVersion: v2\nname: chart\nversion: 1.0.0\n", id="Helm's Chart.yaml"),
        pytest.param("repos:\n- repo: local\n", id="pre-commit"),
        pytest.param("image: {repository: x}\nmetadata: {}\n", id="values"),
        pytest.param("- hosts: all\n", id="playbook"),
        pytest.param("kind: Deployment\n", id="another kind"),
        pytest.param("apiVersion: apps/v1\n", id="another group"),
    ],
)
@pytest.mark.parametrize("named", [True, False], ids=["named", "in a folder"])
def test_b1_yaml_that_is_none_of_ours_is_skipped_with_a_remark(text: str, run: CheckRunner, *, named: bool) -> None:
    """A6: pre-commit hands over every YAML file by name."""
    (run.folder / "folder").mkdir()
    (run.folder / "folder" / "other.yaml").write_text(text)
    (run.folder / "folder" / "rule.yaml").write_text(RULE)
    code, output = run(*(["folder/other.yaml", "folder/rule.yaml"] if named else ["folder"]))
    assert code == 0
    assert output.endswith("2 files, 1 object: 0 errors, 0 warnings; skipped: 1 without apiVersion and kind\n")
    assert ("folder/other.yaml:1:1: info: " in output) is named


@pytest.mark.parametrize(
    ("version", "kind", "message"),
    [
        (
            "policy.devicetaint.io/v1alpha1",
            "DeviceTaintPolcy",
            'kind: Unsupported value: "DeviceTaintPolcy": supported values: "DeviceTaintPolicy"',
        ),
        ("policy.devicetaint.io/v1alpha1", "DeviceTaintPolicies", 'supported values: "DeviceTaintPolicy"'),
        ("policy.devicetaint.io/v1alpha1", "DeviceTaintPolicyTests", 'supported values: "DeviceTaintPolicyTest"'),
        ("policy.devicetaint.io/v1alpha1", "Frob", 'supported values: "DeviceTaintPolicy", "DeviceTaintPolicyTest"'),
        (
            "devicetaint.io/v1alpha1",
            "ResourceSlicePach",
            'kind: Unsupported value: "ResourceSlicePach": supported values: "ResourceSlicePatch"',
        ),
        ("devicetaint.io/v1alpha1", "Frob", 'supported values: "ResourceSlicePatch"'),
        (
            "devicetaint.io/v1alpha1",
            "DeviceTaintPolicy",
            'Unsupported value: "devicetaint.io/v1alpha1": supported values: "policy.devicetaint.io/v1alpha1"',
        ),
        (
            "policy.devicetaint.io/v1alpha1",
            "DeviceTaintRule",
            'apiVersion: Unsupported value: "policy.devicetaint.io/v1alpha1"',
        ),
    ],
)
def test_b1_an_unknown_kind_of_our_own_groups_is_an_error_with_a_suggestion(
    version: str, kind: str, message: str, run: CheckRunner
) -> None:
    code, output = run(one={"apiVersion": version, "kind": kind})
    assert (code, message in output.splitlines()[0]) == (1, True), output


def test_b1_a_suite_is_a_kind_of_our_own_that_another_verb_reads(run: CheckRunner) -> None:
    suite = {"apiVersion": "policy.devicetaint.io/v1alpha1", "kind": "DeviceTaintPolicyTest"}
    assert run(suite=suite, rule=RULE)[1].endswith("1 object: 0 errors, 0 warnings; skipped: 1 of other kinds\n")


def test_files_of_a_folder_may_be_of_no_concern(run: CheckRunner, tmp_path: Path) -> None:
    (tmp_path / "chart").mkdir()
    (tmp_path / "chart/values.yaml").write_text("replicas: 3\n")
    (tmp_path / "chart/list.json").write_text("[1]")
    (tmp_path / "chart/rule.yaml").write_text("kind: DeviceTaintRule\n")
    code, output = run("chart")
    assert code == 1
    assert output == (
        "chart/rule.yaml:1:1: error: apiVersion: Required value\n"
        "3 files, 1 object: 1 error, 0 warnings; skipped: 2 without apiVersion and kind\n"
    )


def test_items_of_lists_are_judged_one_by_one(run: CheckRunner) -> None:
    items = [make_rule(), make_rule(taint=make_taint(effect="x"))]
    for item in items:
        del item["apiVersion"], item["kind"]
    lists = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRuleList", "items": items}
    code, output = run(rules=lists)
    first, summary = output.splitlines()
    assert code == 1
    assert first.startswith(
        'rules.yaml:22:15: error: DeviceTaintRule unhealthy-gpu: spec.taint.effect: Unsupported value: "x"'
    )
    assert summary == "1 file, 2 objects: 1 error, 0 warnings"


def test_the_release_decides(run: CheckRunner) -> None:
    rule = make_rule(selector={"deviceClassName": "gpu"}, taint=make_taint(effect="None"), version="v1alpha3")
    _, newest = run("-o", "json", rule=rule)
    assert findings(newest) == [("error", "spec.deviceSelector.deviceClassName", "DT016")]
    _, old = run("-o", "json", "--kubernetes-version", "1.34", rule=rule)
    assert findings(old) == [("error", "spec.taint.effect", None)]


@pytest.mark.parametrize(
    ("text", "minor"), [("1.34", 34), ("v1.35.2", 35), ("1.36.0-rc.1", 36), ("1.99", 38), ("v1.37+", 37)]
)
def test_versions_name_their_release(text: str, minor: int) -> None:
    options = check.command_line().parse_args(["x", "--kubernetes-version", text])
    assert options.kubernetes_version.release == RELEASES[minor]
    assert check.command_line().parse_args(["x"]).kubernetes_version is None


@pytest.mark.parametrize(("word", "noted"), [("1.38", False), ("v1.38.2", False), ("1.39", True), ("v1.40.1", True)])
@pytest.mark.parametrize("verb", [check, preview, audit])
def test_release_newer_than_the_known_ones_is_noted(
    verb: Any, word: str, capsys: pytest.CaptureFixture[str], *, noted: bool
) -> None:
    verb.command_line().parse_args(["--kubernetes-version", word, *["x"] * (verb is not audit)])
    said = f"note: {word} is newer than all known releases: what is known of 1.38 is used\n"
    assert capsys.readouterr().err == (said if noted else "")


def test_advice_on_fields_is_not_given_twice(run: CheckRunner) -> None:
    rule = make_rule(selector={"deviceClassName": "a", "node": "b"}, taint=make_taint(data={"a": 1}))
    _, output = run("-o", "json", rule=rule)
    assert findings(output) == [
        ("error", "spec.deviceSelector.deviceClassName", "DT016"),
        ("error", "spec.deviceSelector.node", None),
        ("warning", "spec.taint.data", "DT017"),
    ]


def test_the_requester_is_told_to_the_rules(run: CheckRunner) -> None:
    """What the resource claim controller brings is not judged by documented rules: its template was."""
    claim = make_claim([make_toleration(key=None, operator="Equal", value="x")])
    assert run(claim=claim)[0] == 1
    assert run("--user", "system:serviceaccount:kube-system:resource-claim-controller", claim=claim)[0] == 0


# --- updates ------------------------------------------------------------------------------------


def test_an_object_that_is_there_already_is_updated(run: CheckRunner) -> None:
    new = make_rule(taint=make_taint(effect="Unheard"))
    code, output = run("-o", "json", new=new, old=new)
    report = json.loads(output)
    assert code == 0, "the effect is as it was, so it is not judged again (T-12)"
    assert report["objects"][0]["operation"] == "UPDATE"
    assert report["summary"]["files"] == 1


@pytest.mark.parametrize("version", ["7", None])
def test_an_update_is_sent_as_kubectl_apply_sends_it(version: str | None, run: CheckRunner) -> None:
    """Without a resourceVersion v1 refuses updates (R-15); nobody writes one into a manifest."""
    code, output = run(new=make_rule(), old=make_rule(resource_version=version))
    assert (code, output) == (0, "1 file, 1 object: 0 errors, 0 warnings\n")


def test_an_update_that_says_no_time_keeps_the_old_one(run: CheckRunner) -> None:
    """A manifest has no timeAdded; applying it does not touch the one that the cluster has."""
    new = make_rule(taint=make_taint(time_added=None))
    _, output = run("-o", "json", new=new, old=make_rule(taint=make_taint(time_added="2026-01-31T12:00:00Z")))
    assert json.loads(output)["objects"][0]["patch"] == [
        {"op": "add", "path": "/spec/taint/timeAdded", "value": "2026-01-31T12:00:00Z"}
    ]


def test_what_cannot_change_is_compared(run: CheckRunner) -> None:
    code, output = run("-o", "json", new=make_claim([make_toleration()]), old=make_claim([]))
    assert (code, findings(output)) == (1, [("error", "spec", None)])


@pytest.mark.parametrize(
    "old",
    [
        pytest.param(make_claim([], meta=make_meta("other", namespace="ml")), id="another name"),
        pytest.param(make_claim([], meta=make_meta("training", namespace="x")), id="another namespace"),
        pytest.param(make_template([]), id="another kind"),
        pytest.param(make_claim([], meta={"generateName": "training"}), id="no name"),
        pytest.param([3], id="no object"),
    ],
)
def test_other_objects_are_not_its_old_form(old: Any, run: CheckRunner) -> None:
    _, output = run("-o", "json", new=make_claim([make_toleration()]), old=old)
    assert json.loads(output)["objects"][0]["operation"] == "CREATE"
    assert findings(output) == [("warning", "", None)], "it holds none of the objects"


def test_no_namespace_means_the_default_one(run: CheckRunner) -> None:
    new, old = (make_claim([], meta=make_meta("c", **meta)) for meta in ({}, {"namespace": "default"}))
    assert json.loads(run("-o", "json", new=new, old=old)[1])["objects"][0]["operation"] == "UPDATE"


def test_versions_of_one_shape_compare(run: CheckRunner) -> None:
    code, output = run("-o", "json", new=make_claim([], version="v1beta2"), old=make_claim([]))
    assert (code, json.loads(output)["objects"][0]["operation"]) == (0, "UPDATE")


def test_versions_of_another_shape_are_told_not_to_compare(run: CheckRunner) -> None:
    new = make_claim(requests=[make_flat_request()], version="v1beta1")
    code, output = run(new=new, old=make_claim(requests=[make_request()]))
    assert code == 0
    assert output.splitlines()[0] == (
        "new.yaml:1:1: warning: the old object is in v1, which cannot be compared with v1beta1: checked as new"
    )


def test_old_files_must_be_readable_and_are_not_judged(run: CheckRunner, tmp_path: Path) -> None:
    (tmp_path / "was.yaml").write_text("]\n")
    code, output = run("--old", "was.yaml", "--old", "gone.yaml", new=make_rule())
    assert code == 2
    assert output.splitlines()[1] == "gone.yaml: error: cannot be read: No such file or directory"
    assert run(new=make_rule(meta=make_meta("a")), old=make_rule(taint=None))[0] == 0


# --- reviews ------------------------------------------------------------------------------------


def test_a_review_is_judged_as_such(run: CheckRunner) -> None:
    review = make_review(make_rule(taint=make_taint(effect="x", vaule="y")), operation="CREATE")
    code, output = run(review=review)
    errors = output.splitlines()
    assert code == 1
    assert errors[0].startswith('review.yaml:21:17: error: spec.taint.effect: Unsupported value: "x"')
    assert errors[1].startswith("review.yaml:24:9: error: spec.taint.vaule: Forbidden: unknown field")


def test_a_review_has_its_own_old_object_and_user(run: CheckRunner) -> None:
    claim = make_claim([make_toleration(key=None, operator="Equal", value="x")])
    controller = "system:serviceaccount:kube-system:resource-claim-controller"
    assert run(review=make_review(claim))[0] == 1
    assert run(review=make_review(claim, user=controller))[0] == 0
    code, output = run("-o", "json", review=make_review(make_claim([]), claim))
    assert (code, findings(output)) == (1, [("error", "spec", None)])
    (judged,) = json.loads(output)["objects"]
    assert [judged[each] for each in ("kind", "name", "operation", "result")] == [
        *("AdmissionReview", "ml/training", "UPDATE", "denied")
    ]


@pytest.mark.parametrize(
    ("review", "message"),
    [
        ({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}, "request: Required value"),
        (make_review(make_rule(), kind=3), "request.kind: Invalid value: must be an object"),
        (make_review(None, make_rule(), operation="UPDATE"), "request.object: Required value"),
    ],
)
def test_reviews_without_sense_are_refused(review: Any, message: str, run: CheckRunner) -> None:
    code, output = run(review=review)
    assert code == 1
    assert output.startswith(f"review.yaml:1:1: error: {message}")


def test_reviews_of_other_resources_are_skipped(run: CheckRunner) -> None:
    review = make_review(make_rule(), resource={"group": "apps", "version": "v1", "resource": "deployments"})
    assert run("--allow-empty", review=review) == (
        0,
        "1 file, 0 objects: 0 errors, 0 warnings; skipped: 1 review of another resource\n",
    )


def test_status_updates_are_judged_for_their_status(run: CheckRunner) -> None:
    rule = make_rule(conditions=[{"type": "x"}], resource_version="7")
    _, output = run("-o", "json", review=make_review(rule, rule, sub_resource="status"))
    assert ("error", "status.conditions[0].status", None) in findings(output)


# --- what mutate would do -----------------------------------------------------------------------


def test_what_mutate_would_set_is_told_when_asked(run: CheckRunner) -> None:
    rule = make_rule(taint=make_taint(time_added=None))
    assert "timeAdded" not in run(rule=rule)[1]
    code, output = run("-v", rule=rule)
    assert code == 0
    assert output.startswith('rule.yaml:11:5: info: would set spec.taint.timeAdded to "20')


def test_parents_that_mutate_makes_are_not_worth_a_line(run: CheckRunner) -> None:
    _, output = run("-v", rule=make_rule(taint=None))
    assert [line.partition(" info: ")[2].split(" to ")[0] for line in output.splitlines() if " info: " in line] == [
        "would set spec.taint.timeAdded"
    ]
