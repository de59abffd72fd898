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
from tests.unit.policy.cel import evaluated
from tests.unit.policy.documents import make_entry
from tests.unit.policy.vap.test_export import KEYS, exported, policies
from webhook.api.meta import LabelRequirement
from webhook.policy.match import TolerationMatcher
from webhook.policy.model import Match, NamespaceMatch, RequesterMatch, TaintMatch, TolerationMatch
from webhook.policy.vap.cel import (
    taint_condition,
    texts,
    toleration_condition,
)

if TYPE_CHECKING:
    from webhook.api.taints import DeviceToleration


def in_namespace(match: NamespaceMatch, name: str, labels: dict[str, str]) -> bool:
    whole = toleration_condition(Match(namespaces=match), allowing=False, with_generated=False).whole
    return evaluated(whole, request={"namespace": name}, variables={"labels": labels})


def expressions(operator: str, *values: str) -> NamespaceMatch:
    return NamespaceMatch(expressions=(LabelRequirement("tier", operator, values),))


@pytest.mark.parametrize(
    ("match", "name", "labels", "holds"),
    [
        pytest.param(NamespaceMatch(names=("ml-*", "web")), "ml-a", {}, True, id="a name"),
        pytest.param(NamespaceMatch(names=("ml-*", "web")), "web", {}, True, id="the other name"),
        pytest.param(NamespaceMatch(names=("ml-*", "web")), "xml-a", {}, False, id="no name"),
        pytest.param(NamespaceMatch(("ml-*",), ("ml-prod",)), "ml-a", {}, True, id="a name but not the exception"),
        pytest.param(NamespaceMatch(("ml-*",), ("ml-prod",)), "ml-prod", {}, False, id="the exception"),
        pytest.param(NamespaceMatch(except_names=("ml-prod",)), "web", {}, True, id="all but the exception"),
        pytest.param(NamespaceMatch(labels=(("tier", "a*"),)), "web", {"tier": "ab"}, True, id="a label"),
        pytest.param(NamespaceMatch(labels=(("tier", "a*"),)), "web", {"tier": "b"}, False, id="another value"),
        pytest.param(NamespaceMatch(labels=(("tier", "*"),)), "web", {}, False, id="the label is not there"),
        pytest.param(NamespaceMatch(labels=(("a", "1"), ("b", "2"))), "web", {"a": "1"}, False, id="one label of two"),
        pytest.param(expressions("In", "a", "b"), "web", {"tier": "b"}, True, id="In"),
        pytest.param(expressions("In", "a", "b"), "web", {"tier": "c"}, False, id="In, another"),
        pytest.param(expressions("In", "a", "b"), "web", {}, False, id="In, none"),
        pytest.param(expressions("NotIn", "a"), "web", {"tier": "a"}, False, id="NotIn"),
        pytest.param(expressions("NotIn", "a"), "web", {"tier": "b"}, True, id="NotIn, another"),
        pytest.param(expressions("NotIn", "a"), "web", {}, True, id="NotIn, none"),
        pytest.param(expressions("Exists"), "web", {"tier": ""}, True, id="Exists"),
        pytest.param(expressions("Exists"), "web", {}, False, id="Exists, none"),
        pytest.param(expressions("DoesNotExist"), "web", {"tier": ""}, False, id="DoesNotExist"),
        pytest.param(expressions("DoesNotExist"), "web", {}, True, id="DoesNotExist, none"),
        pytest.param(
            NamespaceMatch(("web",), labels=(("a", "1"),), expressions=(LabelRequirement("b", "Exists"),)),
            "web",
            {"a": "1"},
            False,
            id="a name and a label but not the expression",
        ),
    ],
)
def test_namespace_is_matched_in_cel_as_the_policy_says(
    match: NamespaceMatch,
    name: str,
    labels: dict[str, str],
    holds: bool,  # noqa: FBT001 -- a table's
) -> None:
    assert in_namespace(match, name, labels) is holds


REQUESTERS = RequesterMatch(users=("jane", "ops-*"), groups=("ml-*",), service_accounts=("ci/*",))


@pytest.mark.parametrize(
    ("user", "groups", "account", "holds"),
    [
        pytest.param("jane", [], "", True, id="a user"),
        pytest.param("ops-1", [], "", True, id="a user by pattern"),
        pytest.param("joe", ["x", "ml-a"], "", True, id="a group"),
        pytest.param("system:serviceaccount:ci:runner", [], "ci/runner", True, id="a service account"),
        pytest.param("joe", ["x"], "", False, id="none of them"),
        pytest.param("system:serviceaccount:cd:runner", [], "cd/runner", False, id="another service account"),
    ],
)
@pytest.mark.parametrize("generated", [False, True])
def test_requester_is_matched_in_cel_by_any_of_the_lists(
    user: str,
    groups: list[str],
    account: str,
    holds: bool,  # noqa: FBT001 -- a table's
    generated: bool,  # noqa: FBT001 -- a parameter
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


@pytest.mark.parametrize(
    ("match", "asked", "holds"),
    [
        pytest.param(Match(device_classes=("gpu-*",)), {"deviceClassName": "gpu-a"}, True, id="the class"),
        pytest.param(Match(device_classes=("gpu-*",)), {"deviceClassName": "nic"}, False, id="another class"),
        pytest.param(Match(admin_access=True), {"adminAccess": True}, True, id="admin access"),
        pytest.param(Match(admin_access=True), {"adminAccess": False}, False, id="no admin access, where it should"),
        pytest.param(Match(admin_access=True), {}, False, id="none given, where it should"),
        pytest.param(Match(admin_access=False), {"adminAccess": True}, False, id="admin access, where it should not"),
        pytest.param(Match(admin_access=False), {}, True, id="none given, where it should not"),
        pytest.param(
            Match(device_classes=("gpu",), admin_access=True), {"deviceClassName": "gpu"}, False, id="one of the two"
        ),
    ],
)
def test_request_is_matched_in_cel_as_the_policy_says(match: Match, asked: Any, holds: bool) -> None:  # noqa: FBT001 -- a table's
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
@pytest.mark.parametrize(
    ("match", "taint", "holds"),
    [
        pytest.param(TaintMatch(("a/*",)), {"key": "a/x"}, True, id="the key"),
        pytest.param(TaintMatch(("a/*",)), {"key": "b/x", "value": "v"}, False, id="another key"),
        pytest.param(TaintMatch((), ("v*",)), {"key": "a/x", "value": "v1"}, True, id="the value"),
        pytest.param(TaintMatch((), ("v*",)), {"key": "a/x", "value": "w"}, False, id="another value"),
        pytest.param(TaintMatch((), ("v*",)), {"key": "a/x"}, False, id="no value, where it needs one"),
        pytest.param(TaintMatch((), ("v*", "")), {"key": "a/x"}, True, id="no value, which is an empty one"),
        pytest.param(TaintMatch((), ("",)), {"key": "a/x", "value": "v"}, False, id="a value, where it has none"),
        pytest.param(TaintMatch(("a/*",), ("v",)), {"key": "a/x", "value": "w"}, False, id="one of the two"),
    ],
)
def test_taint_is_matched_in_cel_by_key_and_value(
    match: TaintMatch,
    taint: Any,
    holds: bool,  # noqa: FBT001 -- a table's
    allowing: bool,  # noqa: FBT001 -- a parameter
) -> None:
    whole = taint_condition(Match(taints=match), allowing=allowing).whole
    assert evaluated(whole, variables={"selector": {}, "evict": False}, object={"spec": {"taint": taint}}) is holds


def test_value_of_a_taint_is_not_looked_at_where_any_will_do() -> None:
    assert taint_condition(Match(taints=TaintMatch(("a",))), allowing=False).whole == 'object.spec.taint.key == "a"'
