"""Policies as ValidatingAdmissionPolicies: what is exported, what is not, and that conditions mean the same in CEL.

Whole policies are compared on a real API server (tests/apiserver/test_vap.py); here single conditions are, by celpy.
"""

from __future__ import annotations

import copy
import re
from typing import Any, Final

import pytest

from tests.builders import make_rule
from tests.match_conditions import holds
from tests.tables import table
from tests.unit.policy.cel import evaluated
from tests.unit.policy.documents import make_entry, make_exception, policy_of
from webhook.api.rules import CONFIRM_IMPACT
from webhook.policy.model import ImpactSettings, Policy, PolicyMode, UnknownAuthor
from webhook.policy.vap.cel import all_of, any_of, not_, time_condition, toleration_condition
from webhook.policy.vap.drift import AdmissionObjectKey, FallbackState, StoredObject, compare, key_of
from webhook.policy.vap.export import (
    Coverage,
    Export,
    beyond,
    documented_validations,
    export,
    guard_validations,
    labels_validation,
)
from webhook.policy.vap.objects import static_manifests

NAMES: Final = ("device-taint-webhook-documented", "device-taint-webhook-guard")
"""What is exported of every policy that refuses anything."""


def exported(*rules: Any, **fields: Any) -> Export:
    return export(policy_of(rules=list(rules), **fields))


def coverage(made: Export) -> dict[str, str]:
    return {each.name: each.coverage.value for each in made.rules}


def policies(made: Export) -> dict[str, Any]:
    """The policies by their names, without the prefix that all have."""
    return {
        each["metadata"]["name"].removeprefix("device-taint-webhook-"): each["spec"]
        for each in made.objects
        if each["kind"] == "ValidatingAdmissionPolicy"
    }


# --- words of CEL -------------------------------------------------------------------------------


def test_conjunctions_bracket_what_would_fall_apart() -> None:
    assert all_of(["a", "true", "b || c", "(d || e)"]) == "a && (b || c) && (d || e)"
    assert any_of(["a && b", "false", 'x == "&&"']) == '(a && b) || x == "&&"'
    assert (all_of([]), any_of([]), all_of(["a", "false"]), any_of(["a", "true"])) == ("true", "false", "false", "true")
    assert [not_(part) for part in ("a.b", "!c", "d == e", "false")] == ["!a.b", "c", "!(d == e)", "true"]


# --- what is exported ---------------------------------------------------------------------------

ACTING: Final = {"taints": {"effects": ["NoSchedule", "NoExecute"]}}
KEYS: Final = {"tolerations": {"keys": ["a.example.com/*"]}}


def test_a_policy_without_rules_still_has_its_documented_rules_and_guard() -> None:
    made = export(Policy())
    assert [each["metadata"]["name"] for each in made.objects] == [name for name in NAMES for _ in range(2)]
    assert (made.rules, made.complete) == ((), True)


@pytest.mark.parametrize(
    ("fields", "actions"),
    [
        ({}, {"tolerations": "Deny", "documented": "Deny", "guard": "Deny"}),
        (
            {"mode": "warn"},
            dict.fromkeys(("tolerations-unbounded", "documented", "documented-unbounded", "guard"), "Warn"),
        ),
        ({"documentedRules": "off"}, {"tolerations-unbounded": "Deny", "guard": "Deny"}),
        ({"mode": "off"}, {}),
    ],
)
def test_bindings_go_as_far_as_the_policy_does(fields: Any, actions: dict[str, str]) -> None:
    made = exported(make_entry(match=KEYS), **fields)
    bindings = [each for each in made.objects if each["kind"].endswith("Binding")]
    prefix = "device-taint-webhook-"
    assert {
        each["spec"]["policyName"].removeprefix(prefix): each["spec"]["validationActions"][0] for each in bindings
    } == actions
    assert all(each["metadata"]["name"] == each["spec"]["policyName"] for each in bindings)


def test_each_rule_that_refuses_is_a_validation_that_names_it_wherever_it_stands() -> None:
    no, others = (
        make_entry("no", match=KEYS, message="not\n here"),
        [make_entry("hm", "warn"), make_entry("so", "audit")],
    )
    for rules in ([no, *others], [*others, no]):
        made = exported(*rules)
        (validation,) = policies(made)["tolerations"]["validations"]
        assert (validation["message"], validation["reason"]) == ("not here (rule no)", "Forbidden")
        assert coverage(made) == {"no": "full"}


@pytest.mark.parametrize(
    ("match", "found"),
    [
        ({"drivers": ["gpu.example.com"]}, ("none", "only the webhook can judge its drivers")),
        ({"drivers": ["*"]}, ("full", "")),
        ({"when": "request.count > 1"}, ("none", "only the webhook can judge its when")),
        ({"drivers": ["x"], "when": "request.count > 1"}, ("none", "only the webhook can judge its drivers and when")),
    ],
)
def test_a_refusal_that_cel_cannot_say_is_not_exported(match: Any, found: tuple[str, str]) -> None:
    made = exported(make_entry(match=match))
    assert [(each.coverage, "; ".join(each.why)) for each in made.rules] == [found]
    assert ("tolerations" in policies(made)) is (found[0] == "full")
    assert made.complete is (found[0] == "full")


def test_an_allowance_that_cel_cannot_say_in_full_takes_from_refusals_after_it() -> None:
    made = exported(
        make_entry("before", match=KEYS),
        make_entry("vague", "allow", match={**KEYS, "drivers": ["gpu.example.com"]}),
        make_entry("after", match=KEYS),
        make_entry("elsewhere", match={"tolerations": {"keys": ["b.example.com/*"]}}),
    )
    assert coverage(made) == {"before": "full", "vague": "partial", "after": "partial", "elsewhere": "full"}
    before, after, elsewhere = policies(made)["tolerations"]["validations"]
    assert [text["expression"].count("startsWith") for text in (before, after, elsewhere)] == [1, 2, 1]


def test_an_exception_holds_for_its_time() -> None:
    made = exported(
        make_entry("no", match=KEYS), exceptions=[make_exception(rules=["no"], match={"deviceClasses": ["x"]})]
    )
    (validation,) = policies(made)["tolerations"]["validations"]
    time = 'timestamp(object.metadata.creationTimestamp) < timestamp("2026-09-01T00:00:00Z")'
    assert f'!(asked.deviceClassName == "x" && {time})' in validation["expression"]
    assert coverage(made) == {"no": "full"}


@pytest.mark.parametrize(
    ("time", "holds"),
    [
        ("2026-06-30T23:59:59Z", False),
        ("2026-07-01T00:00:00Z", True),
        ("2026-08-31T23:59:59Z", True),
        ("2026-09-01T00:00:00Z", False),
    ],
)
def test_an_exception_with_a_beginning_holds_from_then_until_before_its_end(time: str, *, holds: bool) -> None:
    (exception,) = policy_of(default="deny", exceptions=[make_exception(notBefore="2026-07-01T00:00:00Z")]).exceptions
    assert evaluated(time_condition(exception), object={"metadata": {"creationTimestamp": time}}) is holds


def test_an_exception_excuses_only_the_rules_that_it_names_and_hides_none_that_follows() -> None:
    exceptions = [
        make_exception(name, rules=[rule], match={"deviceClasses": [name]})
        for name, rule in (("x", "other"), ("y", "no"))
    ]
    made = exported(make_entry("no", match=KEYS), make_entry("other", match=KEYS), exceptions=exceptions)
    expressions = [each["expression"] for each in policies(made)["tolerations"]["validations"]]
    found = [[f'deviceClassName == "{name}"' in each for name in ("x", "y")] for each in expressions]
    assert found == [[False, True], [True, False]]


def test_an_exception_excuses_only_what_lies_within_it() -> None:
    match = {"tolerations": {"keys": ["a.example.com/x"]}}
    rules, exceptions = [make_entry("no", match=KEYS)], [make_exception(rules=["no"], match=match)]
    (exception,) = policy_of(rules=rules, exceptions=exceptions).exceptions
    within, meeting = (
        toleration_condition(exception.match, allowing=allowing, with_generated=False).taints
        for allowing in (True, False)
    )
    (validation,) = policies(exported(*rules, exceptions=exceptions))["tolerations"]["validations"]
    assert within in validation["expression"]
    assert meeting not in validation["expression"]


def test_allowance_that_is_apart_from_a_refusal_does_not_hide_one_that_is_not() -> None:
    apart, near = ({"tolerations": {"keys": [f"{name}.example.com/x"]}} for name in ("b", "a"))
    rules = [make_entry("apart", "allow", apart), make_entry("near", "allow", near), make_entry("no", match=KEYS)]
    (validation,) = policies(exported(*rules))["tolerations"]["validations"]
    assert "a.example.com/x" in validation["expression"]
    assert "b.example.com/x" not in validation["expression"]


def test_updates_of_taint_rules_see_no_clock() -> None:
    made = exported(taintRules=[make_entry("no", match=ACTING)], exceptions=[make_exception(rules=["no"])])
    assert coverage(made) == {"no": "partial"}
    (validation,) = policies(made)["taints"]["validations"]
    assert 'request.operation == "UPDATE" || timestamp(' in validation["expression"]


def test_rules_that_allow_for_the_same_requesters_share_a_variable() -> None:
    """Which is asked once; rules for others have one of their own."""
    jane, bob = ({"requesters": {"users": [name]}} for name in ("jane", "bob"))
    made = exported(
        make_entry("one", "allow", {**jane, "tolerations": {"keys": ["a.example.com/*"]}}),
        make_entry("two", "allow", {**bob, "tolerations": {"keys": ["a.example.com/*"]}}),
        make_entry("three", "allow", {**jane, "tolerations": {"keys": ["a.example.com/b"]}}),
        make_entry("no", match=KEYS),
    )
    asked = {each["name"]: each["expression"] for each in policies(made)["tolerations"]["variables"]}
    assert {name: "jane" in text for name, text in asked.items() if name.startswith("for_")} == {
        "for_one": True,
        "for_two": False,
    }
    (validation,) = policies(made)["tolerations"]["validations"]
    assert [validation["expression"].count(f"variables.for_{name}") for name in ("one", "two")] == [2, 1]


def test_scopes_have_variables_of_their_own_whatever_rules_and_exceptions_are_called() -> None:
    jane, bob, joe = ({"requesters": {"users": [name]}} for name in ("jane", "bob", "joe"))
    made = exported(
        make_entry("exception-x-2", "allow", jane),
        make_entry("exception-x", "allow", bob),
        make_entry("no", match=KEYS),
        exceptions=[make_exception("x", rules=["no"], match=joe)],
    )
    spec = policies(made)["tolerations"]
    scopes = {each["name"]: each["expression"] for each in spec["variables"]}
    (validation,) = spec["validations"]
    assert [scopes[name] for name in re.findall(r"variables\.(for_\w+)", validation["expression"])] == [
        f'request.userInfo.username == "{name}"' for name in ("jane", "bob", "joe")
    ]


def test_change_of_a_taint_rule_is_one_of_its_spec_or_of_an_annotation_of_ours() -> None:
    """The words are spelt out, since celpy fails on a condition within `exists`."""
    made = exported(taintRules=[make_entry("no", match=ACTING)])
    variables = {each["name"]: each["expression"] for each in policies(made)["taints"]["variables"]}
    now, before = (
        f"(has({place}) && name in {place} ? [{place}[name]] : [])"
        for place in ("object.metadata.annotations", "oldObject.metadata.annotations")
    )
    assert variables["changed"].startswith("oldObject == null || object.spec != oldObject.spec\n|| [")
    assert variables["changed"].endswith(f"].exists(name,\n  {now}\n  != {before})")


def test_taints_in_slices_are_left_out() -> None:
    assert coverage(exported(taintRules=[make_entry("no", match=ACTING)])) == {"no": "full"}
    assert coverage(exported(taintRules=[make_entry("no", match=ACTING)], taintRulesOnSlices=True)) == {"no": "partial"}


def test_the_default_is_a_rule_if_it_refuses() -> None:
    assert coverage(exported()) == {}
    made = exported(make_entry("some", "allow", match=KEYS), default="deny")
    assert coverage(made) == {"some": "full", "default": "full"}
    assert "(rule default)" in policies(made)["tolerations"]["validations"][0]["message"]


def test_a_rule_that_allows_everything_leaves_nothing_to_refuse() -> None:
    made = exported(make_entry("all", "allow"), make_entry("no", match=KEYS))
    assert "tolerations" not in policies(made)
    assert made.complete


# --- what it costs ------------------------------------------------------------------------------


def allowing(number: int, pattern: str) -> list[Any]:
    return [make_entry(f"a{n}", "allow", match={"tolerations": {"keys": [pattern.format(n)]}}) for n in range(number)]


def test_what_costs_too_much_in_any_case_fails_open_and_is_told() -> None:
    made = exported(*allowing(40, "a{}.example.com/?*x*y"), default="deny")
    assert policies(made)["tolerations-unbounded"]["failurePolicy"] == "Ignore"
    assert coverage(made)["default"] == "partial"


# --- labels -------------------------------------------------------------------------------------


def test_labels_are_protected_when_asked_for() -> None:
    policy = policy_of(trustedNamespaceLabels=["kubernetes.io/metadata.name", "example.com/tier"])
    assert "labels" not in policies(export(policy))
    (validation,) = policies(export(policy, protect_labels=True))["labels"]["validations"]
    assert "example.com/tier" in validation["expression"]
    assert 'metadata.name"' not in validation["expression"], "the API server guards that one"
    assert "labels" not in policies(export(Policy(), protect_labels=True))


def test_empty_lists_are_left_out_as_the_api_server_does() -> None:
    policy = policy_of(trustedNamespaceLabels=["example.com/tier"])
    for spec in policies(export(policy, protect_labels=True)).values():
        assert [name for name, value in spec.items() if not value] == []


def test_coverage_is_a_word_for_reports() -> None:
    assert [str(each) for each in Coverage] == ["full", "partial", "none"]


# --- claims made from templates ------------------------------------------------------------------


@pytest.mark.parametrize(("fields", "left_out"), [({}, True), ({"generatedClaims": "enforce"}, False)])
def test_claims_from_templates_are_judged_only_if_the_policy_says_so(fields: Any, *, left_out: bool) -> None:
    made = exported(make_entry(match=KEYS), **fields)
    names = [each["name"] for each in policies(made)["tolerations"]["matchConditions"]]
    assert ("not-made-from-a-template" in names) is left_out
    assert coverage(made) == {"example": "full"}


@pytest.mark.parametrize("action", ["allow", "deny"])
def test_authors_of_claims_from_templates_are_not_to_be_seen(action: str) -> None:
    who = {"requesters": {"users": ["jane"]}}
    made = exported(make_entry("who", action, match=who), make_entry("no", match=KEYS), generatedClaims="enforce")
    assert (
        coverage(made) == {"allow": {"who": "full", "no": "partial"}, "deny": {"who": "partial", "no": "full"}}[action]
    )
    text = str(policies(made)["tolerations"])
    assert ("variables.generated ||" in text, "!variables.generated &&" in text) == (
        action == "allow",
        action == "deny",
    )


WHO: Final = {"requesters": {"users": ["jane"]}}
EXCEPTION: Final = [make_exception("excused", ["no"], match=WHO)]
ANYONE: Final = [make_exception("excused", ["no"], match={"namespaces": {"names": ["ml"]}})]


@table(
    "generated, before, fields, found",
    {
        "an allowance, and claims from templates are left out": ("warn", WHO, {}, "full"),
        "an allowance for some authors": ("enforce", WHO, {}, "partial"),
        "an allowance for any author": ("enforce", KEYS, {}, "full"),
        "an exception, and they are left out": ("warn", KEYS, {"exceptions": EXCEPTION}, "full"),
        "an exception for some authors": ("enforce", KEYS, {"exceptions": EXCEPTION}, "partial"),
        "an exception for any author": ("enforce", KEYS, {"exceptions": ANYONE}, "full"),
    },
)
def test_refusal_is_exported_in_full_unless_it_depends_on_authors_of_claims_from_templates(
    generated: str, before: Any, fields: Any, found: str
) -> None:
    rules = [make_entry("before", "allow", before), make_entry("no", match={"tolerations": {"effects": ["NoExecute"]}})]
    made = exported(*rules, generatedClaims=generated, **fields)
    assert coverage(made)["no"] == found


def test_taint_rules_do_not_depend_on_authors_of_claims() -> None:
    rules = [make_entry("may", "allow", WHO), make_entry("no", match={**ACTING, **WHO})]
    made = exported(taintRules=[*rules, make_entry("rest", match=ACTING)], generatedClaims="enforce")
    assert coverage(made) == {"may": "full", "no": "full", "rest": "full"}


def test_unknown_authors_that_are_allowed_leave_nothing_to_say_about_claims_from_templates() -> None:
    made = exported(make_entry(match=KEYS), generatedClaims="enforce", unknownAuthor="allow")
    assert coverage(made) == {"example": "partial"}
    names = [each["name"] for each in policies(made)["tolerations"]["matchConditions"]]
    assert "not-made-from-a-template" in names


# --- rules that the patch controller writes -------------------------------------------------------


ACCOUNT: Final = "system:serviceaccount:taints:device-taint-patch"


def owned(kind: str, group: str, *, controls: bool = True) -> dict[str, Any]:
    owner = {"apiVersion": f"{group}/v1", "kind": kind, "name": "firmware", "uid": "u1"}
    return {"ownerReferences": [owner | ({"controller": True} if controls else {})]}


PATCH: Final = owned("ResourceSlicePatch", "devicetaint.io")
RULES: Final = {
    "of a patch": (PATCH, ACCOUNT, False),
    "for the hardware of a rule": (owned("DeviceTaintRule", "resource.k8s.io"), ACCOUNT, False),
    "of a patch, by somebody else": (PATCH, "system:serviceaccount:other:device-taint-patch", True),
    "of a reaction": ({}, ACCOUNT, True),
    "with an owner that does not control it": (
        owned("ResourceSlicePatch", "devicetaint.io", controls=False),
        ACCOUNT,
        True,
    ),
    "of another kind": (owned("ResourceSlice", "resource.k8s.io"), ACCOUNT, True),
    "of a patch of another group": (owned("ResourceSlicePatch", "resource.k8s.io"), ACCOUNT, True),
}


@table("meta, user, judged", RULES)
def test_taints_and_guard_judge_rules_of_the_patch_controller_only_if_nothing_controls_them(
    meta: dict[str, Any], user: str, *, judged: bool
) -> None:
    policy = policy_of(taintRules=[make_entry("no", match={"taints": {"effects": ["NoExecute"]}})])
    made = export(policy, namespace="taints")
    specs = {
        each["metadata"]["name"].rpartition("-")[2]: each["spec"]
        for each in made.objects
        if each["kind"] == "ValidatingAdmissionPolicy"
    }
    rule = make_rule(meta={"name": "firmware-a", **meta})
    for name in ("taints", "guard"):
        conditions = [each["expression"] for each in specs[name]["matchConditions"]]
        assert all(holds(each, rule, None, user) for each in conditions) is judged, name


# --- exported objects beside stored ones, and as files --------------------------------------------


Json = dict[str, Any]
Stored = dict[AdmissionObjectKey, StoredObject]

NO_XID: Final = make_entry("no-xid", "deny", {"tolerations": {"keys": ["xid"]}})
OBJECTS: Final = export(policy_of(rules=[NO_XID])).objects


def stored(*objects: Json, labels: Any = None) -> Stored:
    """As a cluster has them once they were applied."""
    found = [
        StoredObject(key_of(obj), obj["metadata"]["labels"] if labels is None else labels, copy.deepcopy(obj["spec"]))
        for obj in objects
    ]
    return {each.key: each for each in found}


def states(wanted: Any, there: Stored) -> dict[str, str]:
    return {
        each.key.name: each.state.value for each in compare(wanted, there) if each.state is not FallbackState.IN_SYNC
    }


def test_what_is_equal_is_in_sync() -> None:
    assert {each.state for each in compare(OBJECTS, stored(*OBJECTS))} == {FallbackState.IN_SYNC}


def test_each_way_to_differ_has_a_name() -> None:
    first, second, third, *rest = OBJECTS
    changed = stored(first, *rest)
    changed[key_of(first)].spec["failurePolicy"] = "Ignore"  # type: ignore[index]
    foreign = stored(third, labels={"app.kubernetes.io/name": "other"})
    left = stored({**first, "metadata": {**first["metadata"], "name": "left"}})
    unrelated = stored({**first, "metadata": {**first["metadata"], "name": "unrelated"}}, labels={})
    found = compare(OBJECTS, {**changed, **foreign, **left, **unrelated})
    by_key = {(each.key.kind, each.key.name): each for each in found}
    assert by_key[first["kind"], first["metadata"]["name"]].fields == ("failurePolicy",)
    assert str(by_key[first["kind"], first["metadata"]["name"]]).endswith("is changed: spec.failurePolicy")
    assert by_key[second["kind"], second["metadata"]["name"]].state is FallbackState.MISSING
    assert by_key[third["kind"], third["metadata"]["name"]].state is FallbackState.FOREIGN
    assert by_key[first["kind"], "left"].state is FallbackState.LEFT_OVER
    assert (first["kind"], "unrelated") not in by_key


@pytest.mark.parametrize(
    "extra", [{"matchConditions": [{"name": "never", "expression": "false"}]}, {"paramKind": {"kind": "x"}}]
)
def test_what_somebody_has_added_is_a_difference_too(extra: Json) -> None:
    there = stored(*OBJECTS)
    there[key_of(OBJECTS[0])].spec.update(extra)  # type: ignore[attr-defined]
    assert states(OBJECTS, there) == {OBJECTS[0]["metadata"]["name"]: "changed"}


def test_files_have_names_that_the_api_does_not_give() -> None:
    made = static_manifests(OBJECTS)
    assert {each["kind"] for each in made} == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    for each in made:
        assert each["metadata"]["name"].endswith(".static.k8s.io")
        assert each["spec"].get("policyName", each["metadata"]["name"]) == each["metadata"]["name"]
    assert static_manifests([]) == []
    assert not any("static" in obj["metadata"]["name"] for obj in OBJECTS)


# --- what an export has beside rules --------------------------------------------------------------


ONCALL = ImpactSettings(break_glass_groups=("oncall", "sre"))
TWO_STEPS = ImpactSettings(two_step=True)


@pytest.mark.parametrize(
    ("policy", "documented", "names"),
    [
        (Policy(), PolicyMode.ENFORCE, ["documentedRules", "impact"]),
        (Policy(), PolicyMode.WARN, ["documentedRules", "impact"]),
        (Policy(), PolicyMode.OFF, ["impact"]),
        (Policy(mode=PolicyMode.WARN), PolicyMode.ENFORCE, ["documentedRules", "impact"]),
        (Policy(mode=PolicyMode.OFF), PolicyMode.OFF, []),
        (Policy(unknown_author=UnknownAuthor.DENY), PolicyMode.OFF, ["impact", "unknownAuthor"]),
        (Policy(unknown_author=UnknownAuthor.ALLOW), PolicyMode.OFF, ["impact"]),
        (Policy(mode=PolicyMode.OFF, unknown_author=UnknownAuthor.DENY), PolicyMode.OFF, []),
    ],
)
def test_what_is_not_wholly_exported_is_told(policy: Policy, documented: PolicyMode, names: list[str]) -> None:
    told = {each.name: each.coverage for each in beyond(policy, documented)}
    assert sorted(told) == names
    assert told.get("impact", Coverage.PARTIAL) is Coverage.PARTIAL
    assert told.get("unknownAuthor", Coverage.NONE) is Coverage.NONE


def guarded(
    policy: Policy, *, groups: list[str] | None = None, annotations: Any = None, **variables: Any
) -> list[bool]:
    """What the guard's conditions say of a rule that is new and has no selector."""
    found = {"rank": 2, "oldRank": 0, "wide": True, "oldWide": False, **variables}
    request = {"operation": "CREATE", "userInfo": {} if groups is None else {"groups": groups}}
    metadata = {} if annotations is None else {"annotations": annotations}
    return [
        evaluated(each.expression, variables=found, request=request, object={"metadata": metadata})
        for each in guard_validations(policy)
    ]


@pytest.mark.parametrize(
    ("variables", "passes"),
    [
        ({}, False),
        ({"rank": 1}, False),
        ({"rank": 0}, True),
        ({"wide": False}, True),
        ({"oldRank": 2, "oldWide": True}, True),
        ({"oldRank": 1, "oldWide": True}, False),
        ({"oldRank": 2, "oldWide": False}, False),
    ],
)
def test_a_rule_without_selector_is_refused_where_it_begins_to_act(variables: Any, *, passes: bool) -> None:
    assert guarded(Policy(), **variables) == [passes]


@pytest.mark.parametrize(
    ("annotations", "passes"),
    [({}, False), ({"other": "x"}, False), ({CONFIRM_IMPACT: ""}, False), ({CONFIRM_IMPACT: "v1.x"}, True)],
)
def test_a_rule_with_any_code_is_left_to_the_webhook(annotations: Any, *, passes: bool) -> None:
    assert guarded(Policy(), annotations=annotations) == [passes]


@pytest.mark.parametrize(
    ("groups", "passes"), [(None, False), ([], False), (["dev"], False), (["dev", "sre"], True), (["oncall"], True)]
)
def test_who_may_break_the_glass_is_not_refused(groups: list[str] | None, *, passes: bool) -> None:
    assert guarded(Policy(impact=ONCALL), groups=groups) == [passes]
    assert guarded(Policy(), groups=groups) == [False]


@pytest.mark.parametrize(("rank", "passes"), [(0, True), (1, True), (2, False)])
def test_two_steps_refuse_only_what_evicts_from_the_first(rank: int, *, passes: bool) -> None:
    assert guarded(Policy(impact=TWO_STEPS), wide=False, rank=rank) == [True, passes]


def test_one_step_is_enough_unless_the_policy_says_two() -> None:
    assert len(guarded(Policy())) == 1


def test_documented_rules_know_their_numbers() -> None:
    """A list of sixteen passes, one of seventeen does not; the count stands in CEL as the documents have it."""
    many, keyless = documented_validations()
    assert "size(asked.tolerations) > 16" in many.expression
    assert "at most 16 tolerations" in many.message
    assert '"Exists"' in keyless.expression


def test_labels_are_guarded_unless_the_server_does_it() -> None:
    assert labels_validation(Policy()) is None
    made = labels_validation(Policy(trusted_namespace_labels=("kubernetes.io/metadata.name", "tier", "team")))
    assert made is not None
    assert made.expression.startswith('["tier", "team"].all(key,')
    assert made.message.endswith("may change labels tier, team")


def test_trusted_labels_are_compared_with_those_before_unless_the_requester_may_set_them() -> None:
    """The words are spelt out, since celpy has no authorizer and fails on a condition within `all`."""
    made = labels_validation(Policy(trusted_namespace_labels=("tier",)))
    assert made is not None
    assert made.expression == (
        '["tier"].all(key,\n'
        "    (has(object.metadata.labels) && key in object.metadata.labels ? [object.metadata.labels[key]] : [])\n"
        "    == (oldObject != null && has(oldObject.metadata.labels) && key in oldObject.metadata.labels"
        " ? [oldObject.metadata.labels[key]] : []))\n"
        '|| authorizer.group("policy.devicetaint.io").resource("trustednamespacelabels").check("set").allowed()'
    )
