"""Who asks, where and for what, in the words of CEL, evaluated by celpy."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

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
from tests.properties.strategies import FLAGS
from tests.tables import table
from tests.unit.policy.cel import evaluated
from tests.unit.policy.documents import make_entry
from tests.unit.policy.vap.test_export import KEYS, exported, policies
from webhook.api.meta import LabelRequirement
from webhook.api.taints import DeviceTaint
from webhook.policy.match import Matcher, NamespaceFacts, NamespaceMatcher, Placement, Target, TolerationMatcher
from webhook.policy.model import Match, NamespaceMatch, RequesterMatch, TaintMatch, TolerationMatch
from webhook.policy.vap.cel import taint_condition, texts, toleration_condition

if TYPE_CHECKING:
    from webhook.api.taints import DeviceToleration


def labelled(operator: str, *values: str) -> NamespaceMatch:
    return NamespaceMatch(expressions=(LabelRequirement("tier", operator, values),))


@table(
    "match",
    {
        "names": NamespaceMatch(names=("ml-*", "web")),
        "names but for one": NamespaceMatch(("ml-*",), ("ml-prod",)),
        "all but one": NamespaceMatch(except_names=("ml-prod",)),
        "a label": NamespaceMatch(labels=(("tier", "a*"),)),
        "a label of any value": NamespaceMatch(labels=(("tier", "*"),)),
        "two labels": NamespaceMatch(labels=(("tier", "a"), ("b", "2"))),
        "In": labelled("In", "a", "b"),
        "NotIn": labelled("NotIn", "a"),
        "Exists": labelled("Exists"),
        "DoesNotExist": labelled("DoesNotExist"),
        "all of it": NamespaceMatch(("web",), (), (("b", "2"),), (LabelRequirement("tier", "Exists"),)),
    },
)
def test_namespace_is_matched_in_cel_as_by_the_webhook(match: NamespaceMatch) -> None:
    whole = toleration_condition(Match(namespaces=match), allowing=False, with_generated=False).whole
    of_labels: list[dict[str, str]] = [{}, {"tier": ""}, {"tier": "a"}, {"tier": "ab"}, {"tier": "c"}, {"b": "2"}]
    for name, labels in product(("ml-a", "ml-prod", "web", "xml-a"), [*of_labels, {"tier": "a", "b": "2"}]):
        expected = NamespaceMatcher(match).matches(name, NamespaceFacts(name, labels), allowing=False)
        assert evaluated(whole, request={"namespace": name}, variables={"labels": labels}) is expected, (name, labels)


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
    "match",
    {
        "a class": Match(device_classes=("gpu-*",)),
        "admin access": Match(admin_access=True),
        "no admin access": Match(admin_access=False),
        "both": Match(device_classes=("gpu-*",), admin_access=True),
    },
)
def test_request_is_matched_in_cel_as_by_the_webhook(match: Match) -> None:
    whole = toleration_condition(match, allowing=False, with_generated=False).whole
    for name, admin in product(("gpu-a", "nic"), (None, False, True)):
        asked = {"deviceClassName": name} | ({} if admin is None else {"adminAccess": admin})
        expected = Matcher(match, allowing=False).covers(Target(name, None, admin_access=bool(admin)), None)
        assert evaluated(whole, asked=asked) is expected, asked


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
    "match",
    {
        "anything": Match(),
        "a key": Match(taints=TaintMatch(("a/*",))),
        "a value": Match(taints=TaintMatch((), ("v*",))),
        "a value or none": Match(taints=TaintMatch((), ("v*", ""))),
        "no value": Match(taints=TaintMatch((), ("",))),
        "a key and a value": Match(taints=TaintMatch(("a/*",), ("v*",))),
        "rules that evict": Match(evict=True),
        "rules that do not": Match(evict=False),
        "a driver": Match(drivers=("gpu.*",)),
        "a pool": Match(pools=("p",)),
        "patterns of everything": Match(drivers=("*",), pools=("*",)),
    },
)
def test_taint_is_matched_in_cel_as_by_the_webhook(match: Match, *, allowing: bool) -> None:
    """Effects: tests/properties/test_taint_rules.py."""
    whole, matcher = taint_condition(match, allowing=allowing).whole, Matcher(match, allowing=allowing)
    for key, value, driver, pool, evict in product("ab", ("", "v1", "w"), (None, "gpu.x", "nic"), (None, "p"), FLAGS):
        taint = {"key": f"{key}/x"} | ({"value": value} if value else {})
        selector = {name: text for name, text in (("driver", driver), ("pool", pool)) if text}
        expected = matcher.covers_taint(Placement(driver, pool, evict=evict), DeviceTaint(f"{key}/x", value))
        variables = {"selector": selector, "evict": evict}
        found = evaluated(whole, variables=variables, object={"spec": {"taint": taint}})
        assert found is expected, (taint, variables)


def test_value_of_a_taint_is_not_looked_at_where_any_will_do() -> None:
    assert taint_condition(Match(taints=TaintMatch(("a",))), allowing=False).whole == 'object.spec.taint.key == "a"'
