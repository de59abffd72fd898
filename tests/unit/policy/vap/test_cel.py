"""Who asks, where and for what, in the words of CEL, evaluated by celpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.policies import (
    allowed_taints,
    described,
    key_patterns,
    manifest_of,
    refused_taints,
    tolerations,
    value_patterns,
)
from tests.tables import table
from tests.unit.policy.cel import evaluated
from tests.unit.policy.documents import make_entry
from tests.unit.policy.vap.test_export import KEYS, exported, policies
from webhook.api.meta import LabelRequirement
from webhook.policy.match import TolerationMatcher
from webhook.policy.model import Match, NamespaceMatch, RequesterMatch, TaintMatch, TolerationMatch
from webhook.policy.vap.cel import taint_condition, texts, toleration_condition

if TYPE_CHECKING:
    from webhook.api.taints import DeviceToleration


def in_namespace(match: NamespaceMatch, name: str, labels: dict[str, str]) -> bool:
    whole = toleration_condition(Match(namespaces=match), allowing=False, with_generated=False).whole
    return evaluated(whole, request={"namespace": name}, variables={"labels": labels})


def expressions(operator: str, *values: str) -> NamespaceMatch:
    return NamespaceMatch(expressions=(LabelRequirement("tier", operator, values),))


@table(
    "match, name, labels, holds",
    {
        "a name": (NamespaceMatch(names=("ml-*", "web")), "ml-a", {}, True),
        "the other name": (NamespaceMatch(names=("ml-*", "web")), "web", {}, True),
        "no name": (NamespaceMatch(names=("ml-*", "web")), "xml-a", {}, False),
        "a name but not the exception": (NamespaceMatch(("ml-*",), ("ml-prod",)), "ml-a", {}, True),
        "the exception": (NamespaceMatch(("ml-*",), ("ml-prod",)), "ml-prod", {}, False),
        "all but the exception": (NamespaceMatch(except_names=("ml-prod",)), "web", {}, True),
        "a label": (NamespaceMatch(labels=(("tier", "a*"),)), "web", {"tier": "ab"}, True),
        "another value": (NamespaceMatch(labels=(("tier", "a*"),)), "web", {"tier": "b"}, False),
        "the label is not there": (NamespaceMatch(labels=(("tier", "*"),)), "web", {}, False),
        "one label of two": (NamespaceMatch(labels=(("a", "1"), ("b", "2"))), "web", {"a": "1"}, False),
        "In": (expressions("In", "a", "b"), "web", {"tier": "b"}, True),
        "In, another": (expressions("In", "a", "b"), "web", {"tier": "c"}, False),
        "In, none": (expressions("In", "a", "b"), "web", {}, False),
        "NotIn": (expressions("NotIn", "a"), "web", {"tier": "a"}, False),
        "NotIn, another": (expressions("NotIn", "a"), "web", {"tier": "b"}, True),
        "NotIn, none": (expressions("NotIn", "a"), "web", {}, True),
        "Exists": (expressions("Exists"), "web", {"tier": ""}, True),
        "Exists, none": (expressions("Exists"), "web", {}, False),
        "DoesNotExist": (expressions("DoesNotExist"), "web", {"tier": ""}, False),
        "DoesNotExist, none": (expressions("DoesNotExist"), "web", {}, True),
        "a name and a label but not the expression": (
            NamespaceMatch(("web",), labels=(("a", "1"),), expressions=(LabelRequirement("b", "Exists"),)),
            "web",
            {"a": "1"},
            False,
        ),
    },
)
def test_namespace_is_matched_in_cel_as_the_policy_says(
    match: NamespaceMatch, name: str, labels: dict[str, str], *, holds: bool
) -> None:
    assert in_namespace(match, name, labels) is holds


REQUESTERS = RequesterMatch(users=("jane", "ops-*"), groups=("ml-*",), service_accounts=("ci/*",))


@table(
    "user, groups, account, holds",
    {
        "a user": ("jane", [], "", True),
        "a user by pattern": ("ops-1", [], "", True),
        "a group": ("joe", ["x", "ml-a"], "", True),
        "a service account": ("system:serviceaccount:ci:runner", [], "ci/runner", True),
        "none of them": ("joe", ["x"], "", False),
        "another service account": ("system:serviceaccount:cd:runner", [], "cd/runner", False),
    },
)
@pytest.mark.parametrize("generated", [False, True])
def test_requester_is_matched_in_cel_by_any_of_the_lists(
    user: str, groups: list[str], account: str, *, holds: bool, generated: bool
) -> None:
    """Of a claim made from a template the author is unknown: what allows allows it, and what refuses does not."""
    variables = {"account": account, "generated": generated}
    request = {"userInfo": {"username": user, "groups": groups}}

    def holds_if(*, allowing: bool, with_generated: bool) -> bool:
        condition = toleration_condition(Match(requesters=REQUESTERS), allowing=allowing, with_generated=with_generated)
        assert condition.of_requester
        return evaluated(condition.whole, request=request, variables=variables)

    assert holds_if(allowing=False, with_generated=False) is holds_if(allowing=True, with_generated=False) is holds
    assert holds_if(allowing=True, with_generated=True) is (generated or holds)
    assert holds_if(allowing=False, with_generated=True) is (holds and not generated)


@table(
    "match, asked, holds",
    {
        "the class": (Match(device_classes=("gpu-*",)), {"deviceClassName": "gpu-a"}, True),
        "another class": (Match(device_classes=("gpu-*",)), {"deviceClassName": "nic"}, False),
        "admin access": (Match(admin_access=True), {"adminAccess": True}, True),
        "no admin access, where it should": (Match(admin_access=True), {"adminAccess": False}, False),
        "none given, where it should": (Match(admin_access=True), {}, False),
        "admin access, where it should not": (Match(admin_access=False), {"adminAccess": True}, False),
        "none given, where it should not": (Match(admin_access=False), {}, True),
        "one of the two": (Match(device_classes=("gpu",), admin_access=True), {"deviceClassName": "gpu"}, False),
    },
)
def test_request_is_matched_in_cel_as_the_policy_says(match: Match, asked: Any, *, holds: bool) -> None:
    whole = toleration_condition(match, allowing=False, with_generated=False).whole
    assert evaluated(whole, asked=asked) is holds


@pytest.mark.parametrize(
    ("patterns", "expression"),
    [
        ((), "true"),
        (("a", "**"), "true"),
        (("a",), 't == "a"'),
        (("a", "b"), 't in ["a", "b"]'),
        (("a*",), 't.startsWith("a")'),
        (("*a",), 't.endsWith("a")'),
        (("*a*",), 't.contains("a")'),
        (("aa*ab",), 't.startsWith("aa") && t.endsWith("ab") && size(t) >= 4'),
        (("a*", "b"), 't == "b" || t.startsWith("a")'),
        (("a?",), 't.matches("(?s)^a.$")'),
        (("a.*b*c",), 't.matches("(?s)^a\\\\..*b.*c$")'),
        (("a*b*",), 't.matches("(?s)^a.*b.*$")'),
        (("*a*b",), 't.matches("(?s)^.*a.*b$")'),
        (("*a*b*",), 't.matches("(?s)^.*a.*b.*$")'),
        (('"',), 't == "\\""'),
        (("ä😀",), 't == "ä😀"'),
    ],
)
def test_patterns_become_the_plainest_words(patterns: tuple[str, ...], expression: str) -> None:
    assert texts("t", patterns) == expression


@settings(max_examples=150, deadline=None)
@given(st.one_of(key_patterns, value_patterns), st.text("avxwz/.", max_size=6))
def test_a_pattern_describes_the_same_texts_in_cel(patterns: tuple[str, ...], text: str) -> None:
    expected = not patterns or any(described(pattern, text) for pattern in patterns)
    assert evaluated(texts("t", patterns), t=text) is expected


# What CEL, regular expressions or JSON escape, and what an expression is searched for.
_ODD = st.text(
    st.sampled_from("a\\\"'*?.$(){}[]|^-+&#~ \t\n\r\b\x01\x7f\u0130\u2028\ufeff\u0417\U0001d4b3"), max_size=5
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_ODD, min_size=1, max_size=3), _ODD)
def test_a_pattern_may_have_any_character_in_cel(patterns: list[str], text: str) -> None:
    for asked in (text, *patterns):
        expected = any(described(pattern, asked) for pattern in patterns)
        assert evaluated(texts("t", patterns), t=asked) is expected


@pytest.mark.parametrize(
    "name", [r"CORP\mila", "variables.nothing", 'a" && variables.rank == 2 && "b', "variables.rank"]
)
def test_name_is_text_in_an_export_whatever_it_looks_like(name: str) -> None:
    entry = make_entry(match={**KEYS, "requesters": {"users": [name], "groups": [f"{name}*"]}})
    made = policies(exported(entry))["tolerations"]["variables"]
    assert "rank" not in {each["name"] for each in made}


@settings(max_examples=300, deadline=None)
@given(st.booleans(), refused_taints, allowed_taints, tolerations)
def test_a_toleration_is_met_or_held_by_the_same_matches_in_cel(
    allowing: bool,  # noqa: FBT001 -- drawn
    refused: TolerationMatch,
    allowed: TolerationMatch,
    toleration: DeviceToleration,
) -> None:
    match = allowed if allowing else refused
    compiled = TolerationMatcher(match)
    expected = compiled.contains(toleration) if allowing else compiled.intersects(toleration)
    condition = toleration_condition(Match(tolerations=match), allowing=allowing, with_generated=False)
    assert evaluated(condition.whole, t=manifest_of(toleration)) is expected


def test_single_condition_on_tolerations_needs_no_brackets() -> None:
    (alone,) = policies(exported(make_entry(match=KEYS)))["tolerations"]["validations"]
    assert 'asked.tolerations.exists(t,\n      !has(t.key) || t.key == "" || t.key.startsWith(' in alone["expression"]
    beside = exported(
        make_entry("ok", "allow", match={"tolerations": {"keys": ["a.example.com/x"], "effects": ["NoExecute"]}}),
        make_entry(match=KEYS),
    )
    (excepted,) = policies(beside)["tolerations"]["validations"]
    assert (
        'asked.tolerations.exists(t,\n      (!has(t.key) || t.key == "" || t.key.startsWith(' in excepted["expression"]
    )


@pytest.mark.parametrize("allowing", [False, True])
@table(
    "match, taint, holds",
    {
        "the key": (TaintMatch(("a/*",)), {"key": "a/x"}, True),
        "another key": (TaintMatch(("a/*",)), {"key": "b/x", "value": "v"}, False),
        "the value": (TaintMatch((), ("v*",)), {"key": "a/x", "value": "v1"}, True),
        "another value": (TaintMatch((), ("v*",)), {"key": "a/x", "value": "w"}, False),
        "no value, where it needs one": (TaintMatch((), ("v*",)), {"key": "a/x"}, False),
        "no value, which is an empty one": (TaintMatch((), ("v*", "")), {"key": "a/x"}, True),
        "a value, where it has none": (TaintMatch((), ("",)), {"key": "a/x", "value": "v"}, False),
        "one of the two": (TaintMatch(("a/*",), ("v",)), {"key": "a/x", "value": "w"}, False),
    },
)
def test_taint_is_matched_in_cel_by_key_and_value(
    match: TaintMatch, taint: Any, *, holds: bool, allowing: bool
) -> None:
    whole = taint_condition(Match(taints=match), allowing=allowing).whole
    assert evaluated(whole, variables={"selector": {}, "evict": False}, object={"spec": {"taint": taint}}) is holds


def test_value_of_a_taint_is_not_looked_at_where_any_will_do() -> None:
    assert taint_condition(Match(taints=TaintMatch(("a",))), allowing=False).whole == 'object.spec.taint.key == "a"'
