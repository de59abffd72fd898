"""Rules that an earlier one covers, and matches that can have nothing in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings

from tests.properties.policies import allowed_taints, refused_taints
from tests.properties.policies import tolerations as asked_for
from tests.tables import table
from tests.unit.policy.documents import judge_of, make_entry
from webhook.policy.coverage import EarlierRules, apart, covers
from webhook.policy.match import TolerationMatcher
from webhook.policy.model import ANYTHING, Match, NamespaceMatch, RequesterMatch, TaintMatch, TolerationMatch

if TYPE_CHECKING:
    from webhook.api.taints import DeviceToleration


def matched(match: Any) -> Match:
    return judge_of(make_entry(match=match)).policy.rules[0].match


def matched_taint(match: Any) -> Match:
    return judge_of(taintRules=[make_entry(action="warn", match=match)]).policy.taint_rules[0].match


def covering(*entries: Any) -> str | None:
    """The rule that covers the last one."""
    *before, last = judge_of(*entries).policy.rules
    earlier = EarlierRules()
    for rule in before:
        earlier.add(rule)
    found = earlier.covering(last)
    return None if found is None else found.name


def about_key(name: str, *classes: str) -> Any:
    return make_entry(name, match={"tolerations": {"keys": ["k"]}, "deviceClasses": list(classes)})


@pytest.mark.parametrize(("others", "found"), [(15, "covers"), (16, None)])
def test_rule_is_compared_with_the_first_16_that_share_a_pattern(others: int, found: str | None) -> None:
    before = [about_key(f"other-{number}", f"a{number}", f"b{number}") for number in range(others)]
    assert covering(*before, about_key("covers", "x", "y"), about_key("last", "x", "y")) == found


@table(
    "entries, found",
    {
        "everything": ([make_entry("all"), make_entry("last", match={"deviceClasses": ["a"]})], "all"),
        "a rule that decides nothing": ([make_entry("warned", "warn"), make_entry("last")], None),
        "another that decides nothing": ([make_entry("noted", "audit"), make_entry("last")], None),
        "a condition": ([make_entry("sure", match={"when": "true"}), make_entry("last")], None),
        "an allowance of everything": ([make_entry("ok", "allow"), make_entry("last")], "ok"),
        "an allowance contains less than a refusal meets": (
            [
                make_entry("ok", "allow", {"tolerations": {"keys": ["k"]}}),
                make_entry("last", match={"tolerations": {"keys": ["k"]}}),
            ],
            None,
        ),
        "an allowance of the same": (
            [
                make_entry("ok", "allow", {"tolerations": {"keys": ["k"]}}),
                make_entry("last", "allow", {"tolerations": {"keys": ["k"]}}),
            ],
            "ok",
        ),
    },
)
def test_rule_that_decides_everything_before_another_covers_it(entries: Any, found: str | None) -> None:
    assert covering(*entries) == found


def tolerations(**fields: Any) -> dict[str, Any]:
    return {"tolerations": fields}


@table(
    "wide, narrow, both",
    {
        "anything and a class": ({}, {"deviceClasses": ["a"]}, (True, False)),
        "more classes": ({"deviceClasses": ["a", "b"]}, {"deviceClasses": ["a"]}, (True, False)),
        "every class": ({"deviceClasses": ["*"]}, {"deviceClasses": ["a"]}, (True, False)),
        "every class and anything": ({"deviceClasses": ["*"]}, {}, (True, True)),
        "other drivers": ({"drivers": ["a"]}, {"drivers": ["b"]}, (False, False)),
        "more drivers": ({"drivers": ["a", "b"]}, {"drivers": ["b"]}, (True, False)),
        "admin access or not": ({}, {"adminAccess": True}, (True, False)),
        "with admin access and without": ({"adminAccess": True}, {"adminAccess": False}, (False, False)),
        "a namespace": ({}, {"namespaces": {"names": ["a"]}}, (True, False)),
        "more namespaces": ({"namespaces": {"names": ["a", "b"]}}, {"namespaces": {"names": ["a"]}}, (True, False)),
        "exceptions": ({"namespaces": {"except": ["a"]}}, {"namespaces": {"except": ["a", "b"]}}, (True, False)),
        "fewer labels": (
            {"namespaces": {"labels": {"a": "1"}}},
            {"namespaces": {"labels": {"a": "1", "b": "1"}}},
            (True, False),
        ),
        "other expressions": (
            {"namespaces": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
            {"namespaces": {"matchExpressions": [{"key": "b", "operator": "Exists"}]}},
            (False, False),
        ),
        "a requester": ({}, {"requesters": {"users": ["a"]}}, (True, False)),
        "more users": ({"requesters": {"users": ["a", "b"]}}, {"requesters": {"users": ["b"]}}, (True, False)),
        "or": ({"requesters": {"users": ["a"], "groups": ["g"]}}, {"requesters": {"groups": ["g"]}}, (True, False)),
        "a group is no user": ({"requesters": {"users": ["a"]}}, {"requesters": {"groups": ["a"]}}, (False, False)),
        "more accounts": (
            {"requesters": {"serviceAccounts": ["a/b", "c/d"]}},
            {"requesters": {"serviceAccounts": ["a/b"]}},
            (True, False),
        ),
        "a key": ({}, tolerations(keys=["a"]), (True, False)),
        "more keys": (tolerations(keys=["a", "b"]), tolerations(keys=["a"]), (True, False)),
        "more values": (tolerations(values=["a", "b"]), tolerations(values=["a"]), (True, False)),
        "effects": (tolerations(effects=["None", "NoExecute"]), tolerations(effects=["None"]), (True, False)),
        "all effects": (
            tolerations(effects=["None", "NoExecute", "NoSchedule"]),
            tolerations(keys=["*"]),
            (True, True),
        ),
        "above less": (tolerations(seconds={"above": 5}), tolerations(seconds={"above": 6}), (True, False)),
        "above as much": (tolerations(seconds={"above": 5}), tolerations(seconds={"above": 5}), (True, True)),
        "above or not": (tolerations(seconds={"above": 5}), tolerations(keys=["*"]), (False, True)),
    },
)
def test_match_covers_another_where_each_field_does(wide: Any, narrow: Any, both: tuple[bool, bool]) -> None:
    one, other = matched(wide), matched(narrow)
    assert (covers(one, other), covers(other, one)) == both


@table(
    "wide, narrow, both",
    {
        "more pools": ({"pools": ["a", "b"]}, {"pools": ["a"]}, (True, False)),
        "eviction or not": ({}, {"evict": False}, (True, False)),
        "with eviction and without": ({"evict": True}, {"evict": False}, (False, False)),
        "more keys": ({"taints": {"keys": ["a", "b"]}}, {"taints": {"keys": ["a"]}}, (True, False)),
        "an effect": ({"taints": {"effects": ["None"]}}, {}, (False, True)),
    },
)
def test_match_of_a_taint_rule_covers_another_where_each_field_does(
    wide: Any, narrow: Any, both: tuple[bool, bool]
) -> None:
    one, other = matched_taint(wide), matched_taint(narrow)
    assert (covers(one, other), covers(other, one)) == both


def test_allowance_for_less_time_is_covered_by_one_for_more() -> None:
    def allowing(**seconds: int) -> Match:
        entry = make_entry("ok", "allow", tolerations(seconds=seconds) if seconds else tolerations(keys=["*"]))
        return judge_of(entry).policy.rules[0].match

    assert covers(allowing(atMost=6), allowing(atMost=5))
    assert covers(allowing(atMost=5), allowing(atMost=5))
    assert not covers(allowing(atMost=5), allowing(atMost=6))
    assert not covers(allowing(atMost=5), allowing())
    assert covers(allowing(), allowing(atMost=5))


def keys(*patterns: str) -> Match:
    return Match(tolerations=TolerationMatch(keys=patterns))


def effects(*names: str) -> Match:
    return Match(tolerations=TolerationMatch(effects=names))


def taints(*names: str) -> Match:
    return Match(taints=TaintMatch(effects=names))


CASES = {
    "anything and anything": (ANYTHING, ANYTHING, False),
    "drivers": (Match(drivers=("a",)), Match(drivers=("b",)), True),
    "drivers in common": (Match(drivers=("a", "c")), Match(drivers=("b", "c")), False),
    "pools": (Match(pools=("a",)), Match(pools=("b",)), True),
    "classes": (Match(device_classes=("a",)), Match(device_classes=("b",)), True),
    "a driver and a pool": (Match(drivers=("a",)), Match(pools=("b",)), False),
    "namespaces": (Match(namespaces=NamespaceMatch(("a",))), Match(namespaces=NamespaceMatch(("b",))), True),
    "namespaces of one only": (Match(namespaces=NamespaceMatch(("a",))), ANYTHING, False),
    "namespaces of the other only": (ANYTHING, Match(namespaces=NamespaceMatch(("a",))), False),
    "namespaces by labels": (
        Match(namespaces=NamespaceMatch(labels=(("a", "b"),))),
        Match(namespaces=NamespaceMatch(("x",))),
        False,
    ),
    "values": (
        Match(tolerations=TolerationMatch(values=("a",))),
        Match(tolerations=TolerationMatch(values=("b",))),
        True,
    ),
    "values of taints": (Match(taints=TaintMatch(values=("a",))), Match(taints=TaintMatch(values=("b",))), True),
    "keys of taints": (Match(taints=TaintMatch(("a",))), Match(taints=TaintMatch(("b",))), True),
    "a key and a value": (keys("a"), Match(tolerations=TolerationMatch(values=("b",))), False),
    "keys of one only": (keys("a"), ANYTHING, False),
    "keys of the other only": (ANYTHING, keys("a"), False),
    "a pattern and another end": (keys("a*x"), keys("a*y"), True),
    "a pattern and another beginning": (keys("a*x"), keys("b*x"), True),
    "a longer beginning": (keys("ab*"), keys("a*"), False),
    "a shorter beginning": (keys("a*"), keys("ab*"), False),
    "a longer end": (keys("*ab"), keys("*b"), False),
    "a shorter end": (keys("*b"), keys("*ab"), False),
    "an end that is another's beginning": (keys("*a"), keys("a*"), False),
    "an end, and text between stars": (keys("*d"), keys("a*c*"), False),
    "a text that its pattern does not describe": (keys("a*"), keys("b"), True),
    "a pattern that does not describe the text": (keys("b"), keys("a*"), True),
    "a question mark is one letter": (keys("a?"), keys("a"), True),
    "everything among others": (keys("a", "*"), keys("b"), False),
    "everything among the other's": (keys("b"), keys("a", "*"), False),
    "one pair in common is enough": (keys("a", "b"), keys("c", "b"), False),
    "texts between stars": (keys("*x*"), keys("*y*"), False),
    "requesters are never certain": (
        Match(requesters=RequesterMatch(("a",))),
        Match(requesters=RequesterMatch(("b",))),
        False,
    ),
    "effects": (effects("NoSchedule"), effects("NoExecute"), True),
    "effects in common": (effects("NoSchedule", "NoExecute"), effects("NoExecute"), False),
    "effects of one only": (effects("NoSchedule"), effects(), False),
    "effects of the other only": (effects(), effects("NoSchedule"), False),
    "effects of anything": (effects("NoSchedule"), ANYTHING, False),
    "anything's effects": (ANYTHING, effects("NoSchedule"), False),
    "effects of taints": (taints("NoSchedule"), taints("NoExecute"), True),
    "admin access": (Match(admin_access=True), Match(admin_access=False), True),
    "admin access in common": (Match(admin_access=True), Match(admin_access=True), False),
    "admin access of one only": (Match(admin_access=True), ANYTHING, False),
    "admin access of the other only": (ANYTHING, Match(admin_access=False), False),
    "eviction": (Match(evict=True), Match(evict=False), True),
}


@pytest.mark.parametrize(("allowing", "refusing", "expected"), CASES.values(), ids=CASES)
def test_only_what_has_nothing_in_common_is_apart(allowing: Match, refusing: Match, *, expected: bool) -> None:
    assert apart(allowing, refusing) is expected


@settings(max_examples=300, deadline=None)
@given(allowed_taints, refused_taints, asked_for)
def test_nothing_is_allowed_and_refused_by_matches_that_are_apart(
    allowed: TolerationMatch, refused: TolerationMatch, toleration: DeviceToleration
) -> None:
    if apart(Match(tolerations=allowed), Match(tolerations=refused)):
        assert not (
            TolerationMatcher(allowed).contains(toleration) and TolerationMatcher(refused).intersects(toleration)
        )
