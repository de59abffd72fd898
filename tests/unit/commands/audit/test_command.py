"""`audit` of dumps: what the policy would refuse, and by whom it is said to be written."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.builders import (
    DRIVER,
    NOW_TEXT,
    make_claim,
    make_meta,
    make_patch,
    make_rule,
    make_scheduler_claim,
    make_taint,
    make_toleration,
)
from tests.tables import table
from tests.unit.commands.audit_runner import (
    AUTHOR_PLACE,
    BROKEN,
    CLAIM_PLACE,
    DANA,
    HEADER,
    NO_BROKEN,
    OPS,
    OPS_MAY,
    PLAIN,
    POLICY,
    TEMPLATE_PLACE,
    AuditRunner,
    claim,
    generated,
    template,
)
from webhook.admission.claim_view import REQUESTED_BY, annotation_of
from webhook.admission.confirmation import ImpactToConfirm, Numbers, digest_of, text_of
from webhook.api.claims import EXTENDED_RESOURCE
from webhook.api.decode import Reader
from webhook.api.names import OWN_NAMESPACE, POLICY_NAME
from webhook.api.patches import decode_patch
from webhook.api.rules import CONFIRM_IMPACT, decode_rule
from webhook.policy.model import CLAIM_CONTROLLER

# --- what is told -------------------------------------------------------------------------------

REFUSED_CLAIM = ("error", "refused", CLAIM_PLACE)
REFUSED_TEMPLATE = ("error", "refused", TEMPLATE_PLACE)
UNKNOWN = ("warning", "unknownAuthor", AUTHOR_PLACE)


def marked(manifest: Any) -> Any:
    manifest["metadata"]["annotations"] = {EXTENDED_RESOURCE: "true"}
    return manifest


@table(
    "manifest, told",
    {
        "a claim that no rule refuses": (claim(PLAIN), []),
        "a claim of an unknown author": (claim(BROKEN), [REFUSED_CLAIM]),
        "a template of an author who may not": (template(BROKEN, author=DANA), [REFUSED_TEMPLATE]),
        "a template of somebody who may": (template(BROKEN, author=OPS), []),
        "a template of nobody knows whom": (template(BROKEN), [UNKNOWN, REFUSED_TEMPLATE]),
        "a template whose claims will be told to have no author": (template(PLAIN), [UNKNOWN]),
        "a template without tolerations needs no author": (template(), []),
        "a claim from such a template": (generated(BROKEN, author=DANA), [("warning", "warned", CLAIM_PLACE)]),
        "a claim from a template of somebody who may": (generated(BROKEN, author=OPS), []),
        "a claim from a template of nobody knows whom": (
            generated(PLAIN),
            [("warning", "unknownAuthor", f"metadata.annotations[{REQUESTED_BY}]")],
        ),
        "an annotation on a claim made by hand proves nothing": (
            claim(BROKEN, annotations={REQUESTED_BY: annotation_of(OPS)}),
            [REFUSED_CLAIM],
        ),
        "a claim that says of itself that it is for an extended resource": (
            claim(BROKEN, annotations={EXTENDED_RESOURCE: "true"}),
            [REFUSED_CLAIM],
        ),
        "a template that says so": (marked(template(BROKEN, author=DANA)), [REFUSED_TEMPLATE]),
        "a claim that is being deleted": (claim(BROKEN, deletionTimestamp=NOW_TEXT), []),
        "a documented rule": (
            claim(make_toleration(None, operator="Equal", value="x", effect="NoSchedule")),
            [("error", "refused", f"{CLAIM_PLACE}.operator"), REFUSED_CLAIM],
        ),
        "what no server has": (
            make_claim(meta=make_meta("c", namespace="ml", labels=3), requests=[3]),
            [("error", "malformed", "spec.devices.requests[0]")],
        ),
        "another kind": (make_rule(), []),
        "a version": ({"apiVersion": "resource.k8s.io/v9", "kind": "ResourceClaim", "metadata": {}}, []),
    },
)
def test_objects_are_judged_as_if_they_were_created(manifest: Any, told: Any, run_audit: AuditRunner) -> None:
    assert run_audit.told(manifest) == told


@pytest.mark.parametrize(
    ("request_name", "reasons"),
    [("container-0-request-{}", []), ("gpu", ["refused"])],
    ids=["made by the scheduler", "in its clothes"],
)
def test_claims_that_the_scheduler_made_are_left_out(
    request_name: str, reasons: list[str], run_audit: AuditRunner
) -> None:
    none_at_all = {"name": "none", "action": "deny", "subject": "request", "match": {"deviceClasses": ["*"]}}
    manifest = make_scheduler_claim("train", "node-0/gpu-0", request=request_name)
    told = run_audit.told(manifest, policy={**HEADER, "rules": [none_at_all]})
    assert [reason for _, reason, _ in told] == reasons


def test_authors_in_a_dump_are_believed_and_said_to_be_unverified(run_audit: AuditRunner) -> None:
    _, output = run_audit(dump=[template(BROKEN, author=DANA)], policy=POLICY)
    assert "(author as claimed, unverified) (rule no-broken)" in output


def test_who_is_unknown_is_said_where_rules_ask_who(run_audit: AuditRunner) -> None:
    text = "(requester unknown: rules on requesters count as matching if they refuse) (rule no-broken)"
    assert text in run_audit(dump=[claim(BROKEN)], policy=POLICY)[1]
    assert "(requester unknown" not in run_audit(dump=[claim(BROKEN)], policy={**HEADER, "rules": [NO_BROKEN]})[1]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({"unknownAuthor": "allow"}, [], id="allow"),
        pytest.param({"unknownAuthor": "deny"}, ["unknownAuthor", "refused"], id="deny"),
        pytest.param({"mode": "off"}, [], id="off"),
        pytest.param({"mode": "warn"}, ["unknownAuthor", "warned"], id="mode warn"),
    ],
)
def test_the_policy_says_how_bad_that_is(fields: Any, told: list[str], run_audit: AuditRunner) -> None:
    policy = {**POLICY, "generatedClaims": "enforce", **fields}
    assert [reason for _, reason, _ in run_audit.told(generated(BROKEN), policy=policy)] == told


def test_another_controller_may_make_the_claims(run_audit: AuditRunner) -> None:
    policy = {**POLICY, "trustedControllers": ["system:kube-controller-manager", CLAIM_CONTROLLER]}
    assert run_audit.told(generated(BROKEN, author=OPS), policy=policy) == []
    assert run_audit.told(generated(BROKEN, author=DANA), policy=policy) == [("warning", "warned", CLAIM_PLACE)]


def test_an_exception_is_known_to_end_before_it_does(run_audit: AuditRunner) -> None:
    exception = {"name": "once", "rules": ["no-broken"], "expiresAt": "2026-07-01T00:00:00Z"}
    policy = {**HEADER, "rules": [NO_BROKEN], "exceptions": [exception]}

    def at(time: str) -> tuple[int, str]:
        code, output = run_audit("--time", time, dump=[claim(BROKEN)], policy=policy)
        lines = [line for line in output.splitlines() if not line.startswith("note: ")]
        return code, lines[-2] if len(lines) > 1 else ""

    assert at("2026-06-01T00:00:00Z") == (0, "")
    code, line = at("2026-06-29T00:00:00Z")
    assert (code, "until 2026-07-01T00:00:00Z only; rule no-broken will refuse it then (rule once)" in line) == (
        0,
        True,
    )
    code, line = at("2026-07-01T00:00:00Z")
    assert (code, line.endswith("(rule no-broken)")) == (1, True)


def test_names_of_the_dump_are_facts(run_audit: AuditRunner) -> None:
    match = {"namespaces": {"labels": {"tier": "x"}}, "drivers": ["d"], "tolerations": {"keys": ["a.example.com/*"]}}
    policy = {**HEADER, "rules": [{"name": "a", "action": "deny", "match": match}]}
    namespace: Any = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml", "labels": {"tier": "x"}}}
    selectors = [{"cel": {"expression": 'device.driver == "d"'}}]
    class_: Any = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": selectors},
    }
    other = {**class_, "spec": {"selectors": [{"cel": {"expression": 'device.driver == "e"'}}]}}
    assert run_audit.told(claim(PLAIN), namespace, class_, policy=policy) == [REFUSED_CLAIM]
    assert run_audit.told(claim(PLAIN), policy=policy) == [REFUSED_CLAIM], "what is not known matches what refuses"
    assert run_audit.told(claim(PLAIN), namespace, other, policy=policy) == []
    assert run_audit.told(claim(PLAIN), {**namespace, "metadata": {"name": "ml"}}, class_, policy=policy) == []


# --- confirmations --------------------------------------------------------------------------------

CONFIRMATION_PLACE = f"metadata.annotations[{CONFIRM_IMPACT}]"
FIGURES = ImpactToConfirm(Numbers(devices=1, claims=1, pods=1, namespaces=1))
LIMITED = {**HEADER, "impact": {"limits": [{"pods": 8, "confirmable": False}]}}
WEEK, MONTH = "2026-05-01T00:00:00Z", "2026-04-01T00:00:00Z"


def confirmed(manifest: Any, text: str | None = None, **fields: Any) -> Any:
    """A stored rule or patch with a text; without one, with that which confirms it."""
    reader = Reader.of(manifest, [])
    judged = decode_rule(reader) if manifest["kind"] == "DeviceTaintRule" else decode_patch(reader)
    text = text_of(FIGURES, digest_of(judged, judged.meta.name, None)) if text is None else text
    manifest["metadata"] |= {"annotations": {CONFIRM_IMPACT: text}, **fields}
    return manifest


def in_config_map(policy: Any, changed: str = WEEK) -> Any:
    managed = {"manager": "kubectl", "time": changed, "fieldsV1": {"f:data": {".": {}, "f:policy.yaml": {}}}}
    about = make_meta(POLICY_NAME, namespace=OWN_NAMESPACE, creationTimestamp=MONTH, managedFields=[managed])
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"policy.yaml": yaml.safe_dump(policy)}}


def written(when: str) -> Any:
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{CONFIRM_IMPACT}": {}}}}
    return {"creationTimestamp": MONTH, "managedFields": [{"manager": "m", "time": when, "fieldsV1": fields}]}


PATCH = {"taints": [make_taint(effect="NoExecute")]}
REFUSED_TEXT = ("error", "refused", CONFIRMATION_PLACE)
OLD_TEXT = ("warning", "warned", CONFIRMATION_PLACE)


@pytest.mark.parametrize(
    ("manifest", "told"),
    [
        pytest.param(make_rule(), [], id="no text"),
        pytest.param(confirmed(make_rule()), [], id="of the rule"),
        pytest.param(confirmed(make_rule(taint=make_taint(effect="None"))), [], id="of a rule that does nothing yet"),
        pytest.param(confirmed(make_patch(**PATCH)), [], id="of the patch"),
        pytest.param(confirmed(make_rule(), "v1.1790000000.abc"), [REFUSED_TEXT], id="a code of an earlier build"),
        pytest.param(confirmed(make_patch(**PATCH), "yes"), [REFUSED_TEXT], id="no text of ours in a patch"),
        pytest.param(confirmed(make_rule(), text_of(FIGURES, "a" * 16)), [REFUSED_TEXT], id="a text of another object"),
    ],
)
def test_texts_that_confirm_nothing_are_told(manifest: Any, told: Any, run_audit: AuditRunner) -> None:
    assert run_audit.told(manifest) == told


@pytest.mark.parametrize(
    ("policy", "fields", "told"),
    [
        pytest.param(LIMITED, {"creationTimestamp": MONTH}, [OLD_TEXT], id="a rule older than the policy"),
        pytest.param(LIMITED, {"creationTimestamp": NOW_TEXT}, [], id="a rule newer than the policy"),
        pytest.param(LIMITED, written(NOW_TEXT), [], id="a text newer than the policy"),
        pytest.param(LIMITED, written(MONTH), [OLD_TEXT], id="a text older than the policy"),
        pytest.param(LIMITED, {"managedFields": 7}, [], id="nobody knows when"),
        pytest.param(POLICY, written(MONTH), [], id="the policy asks nobody who they are"),
        pytest.param(POLICY, written("2026-03-01T00:00:00Z"), [OLD_TEXT], id="a text older than our installation"),
    ],
)
def test_texts_that_were_stored_before_the_policy_that_judges_them_are_told(
    policy: Any, fields: Any, told: Any, run_audit: AuditRunner
) -> None:
    dump = [confirmed(make_rule(), **fields), in_config_map(policy)]
    _, output = run_audit("-o", "json", "--allow-empty", "--time", NOW_TEXT, dump=dump)
    findings = json.loads(output)["findings"]
    assert [(each["severity"], each["reason"], each["field"]) for each in findings] == told


def test_confirmations_belong_to_no_namespace(run_audit: AuditRunner) -> None:
    dump = [confirmed(make_rule(), "yes"), claim(PLAIN)]
    code, output = run_audit("-n", "ml", "-o", "json", dump=dump, policy=POLICY)
    assert (code, json.loads(output)["findings"]) == (0, [])
    _, output = run_audit("-o", "openreports", dump=dump, policy=POLICY)
    assert CONFIRM_IMPACT not in output


# --- candidates ---------------------------------------------------------------------------------


def test_what_only_the_candidate_would_refuse_is_a_warning(run_audit: AuditRunner) -> None:
    candidate = {**HEADER, "default": "deny", "rules": [NO_BROKEN]}
    told = run_audit.told(claim(PLAIN, BROKEN), candidate=candidate, policy=POLICY)
    assert told == [("error", "refused", CLAIM_PLACE[:-2] + "1]"), ("warning", "refusedByCandidate", CLAIM_PLACE)]
    assert run_audit.told(claim(PLAIN), candidate={**candidate, "mode": "off"}) == []
    assert run_audit.told(template(PLAIN, author=OPS), candidate={**candidate, "rules": [OPS_MAY]}) == []


@pytest.mark.parametrize(("unknown_author", "refused"), [("allow", False), ("warn", True), ("deny", True)])
def test_candidate_asks_rules_of_an_unknown_author_unless_it_allows_them(
    unknown_author: str, refused: Any, run_audit: AuditRunner
) -> None:
    candidate = {**HEADER, "default": "deny", "rules": [], "unknownAuthor": unknown_author}
    told = run_audit.told(generated(PLAIN), candidate=candidate, policy=HEADER)
    assert (("warning", "refusedByCandidate", CLAIM_PLACE) in told) is refused


def test_policy_and_candidate_may_stand_in_the_dump(run_audit: AuditRunner) -> None:
    data = {"policy.yaml": json.dumps(POLICY), "candidate.yaml": json.dumps({**HEADER, "default": "deny"})}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p", "namespace": "x"}, "data": data}
    code, output = run_audit("-o", "json", dump=[claim(PLAIN), template(BROKEN, author=DANA), config_map])
    assert code == 1
    assert [each["reason"] for each in json.loads(output)["findings"]] == ["refusedByCandidate", "refused"]
    code, output = run_audit("-o", "json", dump=[claim(PLAIN), config_map], policy=HEADER)
    assert (code, json.loads(output)["findings"]) == (0, []), "what is named on the command line holds"


# --- output -------------------------------------------------------------------------------------


def test_without_a_policy_that_is_said(run_audit: AuditRunner) -> None:
    code, output = run_audit(dump=[claim(BROKEN)])
    assert (code, "no policy: only documented rules are checked" in output) == (0, True)


@table(
    "files, told, code",
    {
        "policy": (
            {"dump": [claim()], "policy": {**HEADER, "rules": 3}},
            "policy.yaml:3:8: error: DeviceTaintPolicy: rules",
            1,
        ),
        "two policies": ({"dump": [POLICY, POLICY]}, "dump.yaml: error: contains 2 policies; choose one", 2),
    },
)
def test_policies_that_cannot_be_used_are_told(files: Any, told: str, code: int, run_audit: AuditRunner) -> None:
    given, output = run_audit(**files)
    assert (given, any(line.startswith(told) for line in output.splitlines())) == (code, True), output


@pytest.mark.parametrize(
    "policy", [None, {**POLICY, "rules": [{"name": "x", "action": "dney"}]}], ids=["none", "broken"]
)
def test_without_a_policy_there_are_no_reports(policy: Any, run_audit: AuditRunner) -> None:
    """Applied, they would take back all that the last audit found."""
    files = {"dump": [claim(BROKEN)], **({} if policy is None else {"policy": policy})}
    assert run_audit("-o", "openreports", **files) == (2, "")


def test_reports_of_one_namespace_are_there_without_findings(run_audit: AuditRunner) -> None:
    code, output = run_audit("-o", "openreports", "-n", "web", "--allow-empty", dump=[claim(BROKEN)], policy=POLICY)
    assert (code, [each["metadata"]["namespace"] for each in json.loads(output)["items"]]) == (0, ["web"])


def test_what_cannot_be_read_gives_two(run_audit: AuditRunner) -> None:
    assert run_audit("--dump", "gone.yaml", policy=POLICY)[0] == 2
    assert run_audit("--policy", "gone.yaml", dump=[claim()])[0] == 2
    assert run_audit("--kubeconfig", "gone")[0] == 2


# --- counts by rule and namespace, and lists of no more than people read (C2) --------------------

FROWNED_AT = {"name": "frowned-at", "action": "warn", "match": {"namespaces": {"names": ["web"]}}}
GROUPED = {**HEADER, "rules": [NO_BROKEN, FROWNED_AT]}


def claims(**numbers: int) -> list[Any]:
    """This number of claims in each namespace, all of them refused."""
    return [
        make_claim([BROKEN], meta=make_meta(f"c{at}", namespace=namespace))
        for namespace, number in numbers.items()
        for at in range(number)
    ]


def test_table_counts_each_rule_in_each_namespace(run_audit: AuditRunner) -> None:
    odd = make_claim([make_toleration("odd.example.com/x")], meta=make_meta("odd", namespace="web"))
    code, output = run_audit(dump=[*claims(ml=2, web=1), odd], policy=GROUPED)
    assert code == 1
    lines = [line for line in output.splitlines() if not line.startswith("note: ")]
    *_, blank, headers, first, second, third, end, summary = lines
    assert (blank, end) == ("", "")
    assert headers.split() == ["RULE", "NAMESPACE", "ERRORS", "WARNINGS", "OBJECTS"]
    assert [row.split() for row in (first, second, third)] == [
        ["no-broken", "ml", "2", "0", "2"],
        ["no-broken", "web", "1", "0", "1"],
        ["frowned-at", "web", "0", "1", "1"],
    ]
    assert summary.endswith("3 errors, 1 warning")


def test_limit_cuts_the_list_and_says_how_many_are_left_out(run_audit: AuditRunner) -> None:
    dump = claims(ml=5)
    _, output = run_audit("--limit", "2", dump=dump, policy=GROUPED)
    lines = output.splitlines()
    assert sum(": error: " in line for line in lines) == 2
    assert lines[2] == "and 3 more findings; --limit 0 lists all"
    assert lines[-1].endswith("5 errors, 0 warnings"), "the sums are of all"
    _, output = run_audit("--limit", "4", dump=dump, policy=GROUPED)
    assert "and 1 more finding; --limit 0" in output
    for limit in ("0", "5"):
        _, output = run_audit("--limit", limit, dump=dump, policy=GROUPED)
        assert sum(": error: " in line for line in output.splitlines()) == 5
        assert "more finding" not in output


def test_notes_stand_below_the_table_and_count_for_no_limit(run_audit: AuditRunner) -> None:
    _, output = run_audit("--limit", "1", dump=claims(ml=1, web=1), policy=GROUPED)
    *_, last, end, template, namespaces, classes, _ = output.splitlines()
    assert (last, end) == ("and 1 more of these", "")
    assert [line[:6] for line in (template, namespaces, classes)] == ["note: "] * 3
    assert "and 1 more finding; --limit 0 lists all\n" in output


def test_limit_holds_for_the_table_too(run_audit: AuditRunner) -> None:
    _, output = run_audit("--limit", "1", dump=claims(a=1, b=1, c=1), policy=GROUPED)
    assert "and 2 more of these" in output


def test_programs_get_all_findings_and_the_groups(run_audit: AuditRunner) -> None:
    _, output = run_audit("-o", "json", "--limit", "1", dump=claims(ml=3), policy=GROUPED)
    values = json.loads(output)
    assert len(values["findings"]) == 3
    assert values["groups"] == [
        {"rule": "no-broken", "namespace": "ml", "errors": 3, "warnings": 0, "objects": 3},
    ]
    assert yaml.safe_load(run_audit("-o", "yaml", dump=claims(ml=3), policy=GROUPED)[1])["groups"] == values["groups"]


def test_one_object_needs_no_table(run_audit: AuditRunner) -> None:
    _, output = run_audit(dump=claims(ml=1), policy=GROUPED)
    assert "NAMESPACE" not in output
