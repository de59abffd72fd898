"""`check --policy`: the webhook's verdicts, and where its flags get the facts that rules ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.builders import (
    DRIVER,
    NOW_TEXT,
    make_admission_request,
    make_claim,
    make_context,
    make_flat_request,
    make_meta,
    make_review,
    make_rule,
    make_slice,
    make_taint,
    make_template,
    make_toleration,
)
from tests.unit.commands.audit_runner import BROKEN as AT_BROKEN
from tests.unit.commands.audit_runner import DANA, OPS, generated
from tests.unit.commands.audit_runner import POLICY as OPS_ONLY
from tests.unit.commands.check_runner import CheckRunner
from webhook.admission.chain import mutate, validate
from webhook.admission.decision import apply_patch
from webhook.api.field import Path, Severity
from webhook.policy.decide import Judge
from webhook.policy.document import load
from webhook.policy.match import KnownNames
from webhook.policy.model import CLAIM_CONTROLLER

MAINT = "maint.example.com/planned"
BROKEN = "health.example.com/broken"
POLICY: dict[str, Any] = yaml.safe_load(f"""\
apiVersion: policy.devicetaint.io/v1alpha1
kind: DeviceTaintPolicy
default: deny
trustedNamespaceLabels: [tier]
rules:
- {{name: no-admin, action: deny, subject: request, match: {{adminAccess: true}}}}
- name: ops-may
  action: allow
  match: {{requesters: {{groups: [ops], serviceAccounts: [ci/runner]}}}}
- {{name: no-broken, action: deny, match: {{tolerations: {{keys: [health.example.com/*]}}}}}}
- name: batch-waits
  action: allow
  match:
    namespaces: {{labels: {{tier: batch}}}}
    drivers: [{DRIVER}]
    tolerations: {{keys: [{MAINT}], effects: [NoExecute], seconds: {{atMost: 3600}}}}
- {{name: watched, action: audit, match: {{tolerations: {{keys: [odd.example.com/*]}}}}}}
- {{name: frowned-at, action: warn, match: {{tolerations: {{keys: [odd.example.com/*]}}}}}}
- {{name: odd-is-fine, action: allow, match: {{tolerations: {{keys: [odd.example.com/*]}}}}}}
taintRules:
- {{name: ops-taint, action: allow, match: {{requesters: {{groups: [ops, "system:masters"]}}}}}}
- {{name: no-other, action: deny, match: {{taints: {{effects: [NoSchedule, NoExecute]}}}}}}
exceptions:
- {{name: lab, rules: [no-broken, default], match: {{namespaces: {{names: [lab]}}}}, expiresAt: "2026-09-01T00:00:00Z"}}
defaultTolerations:
- name: five-minutes
  match: {{namespaces: {{labels: {{tier: batch}}}}}}
  tolerations: [{{key: {MAINT}, operator: Exists, effect: NoExecute, tolerationSeconds: 300}}]
""")
RULES = POLICY["rules"]
HEADER = {name: POLICY[name] for name in ("apiVersion", "kind")}


def claim(*tolerations: Any, namespace: str = "train", **fields: Any) -> Any:
    return make_claim(tolerations, meta=make_meta("c", namespace=namespace), **fields)


WAITS = make_toleration(MAINT, effect="NoExecute", seconds=600)
CASES = {
    "waits within reason": claim(WAITS),
    "waits for ever": claim(make_toleration(MAINT, effect="NoExecute")),
    "a template": make_template([WAITS], meta=make_meta("t", namespace="train")),
    "broken": claim(make_toleration(BROKEN)),
    "broken, with an exception": claim(make_toleration(BROKEN), namespace="lab"),
    "everything": claim(make_toleration(None)),
    "odd": claim(make_toleration("odd.example.com/x")),
    "several at once": claim(make_toleration(BROKEN), make_toleration("odd.example.com/x"), make_toleration("x/y")),
    "nothing": claim(),
    "admin access": claim(requests=[{"name": "gpu", "exactly": {"deviceClassName": DRIVER, "adminAccess": True}}]),
    "a class that is not known": claim(
        requests=[{"name": "gpu", "exactly": {"deviceClassName": "other", "tolerations": [WAITS]}}]
    ),
    "flat": claim(requests=[make_flat_request(tolerations=[make_toleration(BROKEN)])], version="v1beta1"),
    "malformed": claim(make_toleration("a b")),
    "a taint": make_rule(),
    "a slice": make_slice(),
}
REQUESTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "dana": ("dana", ("system:authenticated",)),
    "ops": ("olga", ("ops", "system:authenticated")),
    "runner": (
        "system:serviceaccount:ci:runner",
        ("system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"),
    ),
    "controller": ("system:serviceaccount:kube-system:resource-claim-controller", ("system:authenticated",)),
}
NAMES = KnownNames(
    {"train": {"tier": "batch", "kubernetes.io/metadata.name": "train"}, "lab": {}}, {DRIVER: frozenset({DRIVER})}
)
FLAGS = ("-o", "json", "--policy", "policy.yaml", "--device-class", f"{DRIVER}={DRIVER}", "--time", NOW_TEXT)
TRAIN = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "train", "labels": {"tier": "batch"}}}


def told(report: str) -> list[tuple[str, str, str | None, str | None]]:
    """Severity, path, code and rule of what a report says about other files than the policy's."""
    return sorted(
        (each["severity"], each["field"], each["code"] or "", each["rule"] or "")
        for each in json.loads(report)["findings"]
        if each["file"] != "policy.yaml"
    )


@pytest.mark.parametrize("requester", REQUESTERS)
@pytest.mark.parametrize("case", CASES)
def test_check_says_what_the_webhook_says(case: str, requester: str, run: CheckRunner) -> None:
    manifest, (user, groups) = CASES[case], REQUESTERS[requester]
    policy = load(POLICY, Path.root()).policy
    assert policy is not None
    context = make_context(judge=Judge(policy), names=NAMES, offline=True)  # files get no author
    request = make_admission_request(manifest, user=user, groups=groups)
    set_ = mutate(request, context)
    request = make_admission_request(apply_patch(manifest, set_.patch), user=user, groups=groups)
    decision = validate(request, context)
    given = ["--user", user, *(word for group in groups if ":" not in group for word in ("--group", group))]
    code, output = run(*FLAGS, *given, policy=[POLICY], cluster=TRAIN, manifest=manifest)
    report = json.loads(output)
    levels = {Severity.DENY: "error", Severity.WARN: "warning"}
    assert told(output) == sorted(
        (levels[each.severity], each.error.field, each.code or "", each.rule or "")
        for each in (*set_.findings, *decision.findings)
        if each.severity in levels
    )
    assert code == (0 if decision.allowed else 1)
    (judged,) = [each for each in report["objects"] if each["file"] == "manifest.yaml"]
    assert judged["result"] == ("allowed" if decision.allowed else "denied")
    assert judged["patch"] == list(set_.patch)


def test_the_table_has_every_verdict_and_rule(run: CheckRunner) -> None:
    """Else the comparison above would compare nothing."""
    results, rules = set(), set()
    for manifest in CASES.values():
        for user, _ in REQUESTERS.values():
            _, output = run(*FLAGS, "--user", user, policy=[POLICY], cluster=TRAIN, manifest=manifest)
            results |= {each["result"] for each in json.loads(output)["objects"] if each["file"] == "manifest.yaml"}
            rules |= {each["rule"] for each in json.loads(output)["findings"]}
    assert results == {"allowed", "denied"}
    assert rules >= {"no-admin", "no-broken", "frowned-at", "default", "no-other", "unknownAuthor"}


def test_a_refusal_in_text(run: CheckRunner) -> None:
    words = ("--policy", "policy.yaml", "--user", "dana", "--time", NOW_TEXT)
    code, output = run(*words, policy=[POLICY], c=claim(make_toleration(BROKEN)))
    assert code == 1
    refusal, summary = output.splitlines()[-2:]
    assert refusal == (
        'c.yaml:12:11: error: spec.devices.requests[0].exactly.tolerations[0]: Forbidden: "dana" in namespace "train" '
        f'may not use a toleration of key "{BROKEN}", NoSchedule; ask for less, or your cluster\'s admins for an '
        "exception (rule no-broken)"
    )
    assert summary == "2 files, 2 objects: 1 error, 0 warnings"


# --- facts --------------------------------------------------------------------------------------


def waits(run: CheckRunner, *flags: str, claim_: Any = None, **files: Any) -> int:
    """The exit code for a claim that only `batch-waits` allows."""
    words = ("--policy", "policy.yaml", "--user", "dana", *flags)
    return run(*words, policy=[POLICY], manifest=claim_ or claim(WAITS), **files)[0]


CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}


def test_facts_come_from_flags(run: CheckRunner) -> None:
    assert waits(run) == 1
    assert waits(run, "--namespace-labels", "tier=batch") == 1
    assert waits(run, "--device-class", f"{DRIVER}={DRIVER}") == 1
    assert waits(run, "--namespace-labels", "tier=batch,a=b", "--device-class", f"{DRIVER}={DRIVER}") == 0
    assert waits(run, "--namespace-labels", "tier=batch", "--device-class", f"{DRIVER}={DRIVER},other") == 1


def test_facts_come_from_files_whatever_their_order(run: CheckRunner) -> None:
    assert waits(run, zzz=[CLASS, TRAIN]) == 0
    assert waits(run, aaa=[CLASS, {**TRAIN, "metadata": {"name": "train"}}]) == 1


def test_a_file_knows_better_than_a_flag(run: CheckRunner) -> None:
    flags = ("--namespace-labels", "tier=batch", "--device-class", f"{DRIVER}={DRIVER}")
    assert waits(run, *flags, cluster={**TRAIN, "metadata": {"name": "train", "labels": {"tier": "x"}}}) == 1
    assert waits(run, *flags, cluster={**CLASS, "spec": {}}) == 1


def test_the_name_of_a_namespace_is_a_label(run: CheckRunner) -> None:
    label = "kubernetes.io/metadata.name"
    policy = {
        **HEADER,
        "default": "deny",
        "rules": [{"name": "here", "action": "allow", "match": {"namespaces": {"labels": {label: "train"}}}}],
    }
    assert run("--policy", "policy.yaml", policy=[policy], c=claim(WAITS))[0] == 1
    assert run("--policy", "policy.yaml", "--namespace-labels", "", policy=[policy], c=claim(WAITS))[0] == 0
    assert run("--policy", "policy.yaml", policy=[policy], c=[claim(WAITS), TRAIN])[0] == 0


def test_a_claim_without_a_namespace_goes_where_kubectl_would_send_it(run: CheckRunner) -> None:
    bare = make_claim([make_toleration(BROKEN)], meta={"name": "c"})
    words = ("--policy", "policy.yaml", "--user", "dana", "--time", NOW_TEXT)
    assert run(*words, policy=[POLICY], c=bare)[0] == 1
    assert run(*words, "-n", "lab", policy=[POLICY], c=bare)[0] == 0


def test_reviews_have_facts_too(run: CheckRunner) -> None:
    review = make_review(claim(WAITS), user="dana")
    assert waits(run, claim_=review) == 1
    assert waits(run, "--namespace-labels", "tier=batch", "--device-class", f"{DRIVER}={DRIVER}", claim_=review) == 0


def test_exceptions_hold_for_their_time(run: CheckRunner) -> None:
    words = ("--policy", "policy.yaml", "--user", "dana")
    broken = CASES["broken, with an exception"]
    assert run(*words, "--time", "2026-08-31T23:59:59Z", policy=[POLICY], c=broken)[0] == 0
    assert run(*words, "--time", "2026-09-01T00:00:00Z", policy=[POLICY], c=broken)[0] == 1
    _, output = run("-o", "json", *words, "--time", "2026-08-30T00:00:00Z", policy=[POLICY], c=broken)
    assert ("warning", "spec.devices.requests[0].exactly.tolerations[0]", "", "lab") in told(output)


def test_who_asks_is_said_to_be_missing_once(run: CheckRunner) -> None:
    text = 'rules of this policy depend on the requester; without --user that is "system:anonymous"'
    files: dict[str, Any] = {"policy": [POLICY], "a": claim(), "b": claim()}
    assert run("--policy", "policy.yaml", **files)[1].count(text) == 1
    assert text not in run("--policy", "policy.yaml", "--user", "dana", **files)[1]
    files["policy"] = [{**HEADER, "rules": [RULES[2]]}]
    assert text not in run("--policy", "policy.yaml", **files)[1]
    files["policy"] = [{**HEADER, "rules": [{**RULES[2], "match": {"when": 'requester.username == "x"'}}]}]
    assert text in run("--policy", "policy.yaml", **files)[1]


def test_refusal_of_a_requester_who_is_not_given_names_the_flag(run: CheckRunner) -> None:
    files: dict[str, Any] = {"policy": [{**HEADER, "default": "deny"}], "a": claim(make_toleration())}
    _, output = run("--policy", "policy.yaml", "-v", **files)
    assert 'no rule allows a requester without a name (--user is not given) in namespace "train" ' in output
    assert '"system:anonymous" in' not in output
    _, output = run("--policy", "policy.yaml", "--user", "system:anonymous", **files)
    assert 'no rule allows "system:anonymous" in namespace' in output


def test_only_the_refusal_says_that_no_user_is_given(run: CheckRunner) -> None:
    message = 'ask "system:anonymous"'
    rule = {"name": "named", "action": "deny", "match": {"requesters": {"users": ["bob"]}}}
    files: dict[str, Any] = {
        "policy": [{**HEADER, "rules": [rule, {"name": "all", "action": "deny", "message": message}]}],
        "a": claim(make_toleration()),
    }
    _, output = run("--policy", "policy.yaml", "-v", **files)
    assert message in output
    assert "user a requester" not in output


def test_claims_of_another_namespace_than_the_flags_are_refused(run: CheckRunner) -> None:
    files: dict[str, Any] = {"a": claim(namespace="research-b")}
    text = 'error: metadata.namespace: Invalid value: "research-b": does not match -n research-a; pass -n research-b'
    code, output = run("-n", "research-a", **files)
    assert (code, output.count(text), output.count("error: ")) == (1, 1, 1)
    assert run("-n", "research-b", **files)[0] == run(**files)[0] == 0
    other = {"apiVersion": "vendor.example.org/v1", "kind": "ResourceClaim", "metadata": {"namespace": "x"}}
    assert run("-n", "research-b", **files, other=other)[0] == 0


# --- the policy itself --------------------------------------------------------------------------


def test_a_policy_alone_is_checked(run: CheckRunner) -> None:
    assert run("--policy", "policy.yaml", policy=[HEADER])[1].startswith("1 file, 1 object")
    (_, output), code = run("--policy", "policy.yaml", "policy.yaml", policy=[HEADER]), 0
    assert code == 0
    assert output.endswith("0 errors, 0 warnings\n")


@pytest.mark.parametrize("wrapped", [False, True], ids=["a document", "a config map"])
def test_policies_among_files_are_judged(run: CheckRunner, *, wrapped: bool) -> None:
    policy: Any = {**HEADER, "rules": [{"name": "a", "action": "deny", "match": {"deviceClass": ["x"]}}]}
    at = ""
    if wrapped:
        policy, at = (
            {"apiVersion": "v1", "kind": "ConfigMap", "data": {"policy.yaml": json.dumps(policy)}},
            "data[policy.yaml].",
        )
    code, output = run("-o", "json", p=policy)
    assert code == 1
    assert told(output) == [("error", f"{at}rules[0].match.deviceClass", "", "")]


def test_advice_on_a_policy_is_no_error(run: CheckRunner) -> None:
    policy = {**HEADER, "rules": [{"name": "a", "action": "deny"}, {"name": "b", "action": "deny"}]}
    code, output = run(p=policy)
    assert code == 0
    assert output.splitlines()[0].endswith(
        'warning: rules[1]: is never reached: rule "a" decides all that it matches [DT101]'
    )


def test_what_an_update_of_a_config_map_left_alone_is_not_judged(run: CheckRunner) -> None:
    broken = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "p", "namespace": "x"},
        "data": {"policy.yaml": "kind: DeviceTaintPolicy"},
    }
    assert run(p=broken)[0] == 1
    assert run(p={**broken, "metadata": {**broken["metadata"], "labels": {"a": "b"}}}, old=broken)[0] == 0  # type: ignore[dict-item]


def test_a_policy_that_cannot_be_used_is_told_and_fields_are_judged_all_the_same(run: CheckRunner) -> None:
    code, output = run("-o", "json", "--policy", "policy.yaml", policy=[{**HEADER, "rules": 3}], c=CASES["malformed"])
    assert code == 1
    assert [each["field"] for each in json.loads(output)["findings"] if each["file"] == "policy.yaml"][:1] == ["rules"]
    assert len(told(output)) == 1


def test_a_policy_that_is_not_there_gives_two(run: CheckRunner) -> None:
    code, output = run("--policy", "gone.yaml", rule=make_rule(taint=make_taint()))
    assert code == 2
    assert output.startswith("gone.yaml: error: cannot be read: ")


# --- candidates ---------------------------------------------------------------------------------


def test_a_candidate_tells_where_its_word_differs(run: CheckRunner) -> None:
    candidate = {**HEADER, "default": "allow", "rules": [{**RULES[2], "match": {"tolerations": {"keys": [MAINT]}}}]}
    words = ("--policy", "policy.yaml", "--candidate", "candidate.yaml", "--user", "dana", "--time", NOW_TEXT)
    files: dict[str, Any] = {
        "policy": [POLICY],
        "c": claim(make_toleration(BROKEN), make_toleration(MAINT, effect=None)),
    }
    (run.folder / "candidate.yaml").write_text(json.dumps(candidate))
    code, output = run(*words, **files)
    assert code == 1
    place = "spec.devices.requests[0].exactly.tolerations[0]"
    (line,) = [each for each in output.splitlines() if ": info: " in each]
    assert line == (
        f'c.yaml:12:11: info: {place}: the candidate policy would no longer refuse a toleration of key "{BROKEN}", '
        "NoSchedule (rule no-broken)"
    )
    _, output = run("-o", "json", *words, **files)
    (judged,) = [each for each in json.loads(output)["objects"] if each["file"] == "c.yaml"]
    assert judged["differences"] == [
        {
            "path": place,
            "what": f'a toleration of key "{BROKEN}", NoSchedule',
            "rule": "no-broken",
            "change": "allowed",
        }
    ]


def test_a_candidate_beside_the_policy_is_tried_as_well(run: CheckRunner) -> None:
    both = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": {
            "policy.yaml": json.dumps(HEADER),
            "candidate.yaml": json.dumps({**HEADER, "rules": [RULES[2]]}),
        },
    }
    code, output = run("--policy", "policy.yaml", policy=[both], c=claim(make_toleration(BROKEN)))
    assert code == 0
    assert f'the candidate policy would refuse a toleration of key "{BROKEN}"' in output


def test_generated_claim_is_judged_by_the_author_of_its_template(run: CheckRunner) -> None:
    (run.folder / "policy.yaml").write_text(yaml.safe_dump({**OPS_ONLY, "generatedClaims": "enforce"}))
    words = ("--policy", "policy.yaml", "--user", CLAIM_CONTROLLER)
    assert run(*words, claim=generated(AT_BROKEN, author=OPS))[0] == 0
    assert run(*words, claim=generated(AT_BROKEN, author=DANA))[0] == 1
    code, output = run(*words, claim=generated(AT_BROKEN))
    assert (code, "an unknown author" in output) == (1, True)
