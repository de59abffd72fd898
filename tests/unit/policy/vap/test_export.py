"""Policies as ValidatingAdmissionPolicies: what is exported, what is not, and that conditions mean the same in CEL.

Whole policies are compared on a real API server (tests/apiserver/test_vap.py); here single conditions are, by celpy.
"""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from tests.tables import table
from tests.unit.policy.cel import evaluated
from tests.unit.policy.documents import make_entry, make_exception, policy_of
from webhook.policy.model import Policy
from webhook.policy.vap.cel import all_of, any_of, not_, time_condition, toleration_condition
from webhook.policy.vap.export import Coverage, Export, export

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
