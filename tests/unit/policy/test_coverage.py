"""Rules that an earlier one covers; the laws are in tests/properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.policy.documents import judge_of, make_entry
from webhook.policy.coverage import EarlierRules, covers

if TYPE_CHECKING:
    from webhook.policy.model import Match


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


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        pytest.param([make_entry("all"), make_entry("last", match={"deviceClasses": ["a"]})], "all", id="everything"),
        pytest.param([make_entry("warned", "warn"), make_entry("last")], None, id="a rule that decides nothing"),
        pytest.param([make_entry("sure", match={"when": "true"}), make_entry("last")], None, id="a condition"),
        pytest.param([make_entry("ok", "allow"), make_entry("last")], "ok", id="an allowance of everything"),
        pytest.param(
            [
                make_entry("ok", "allow", {"tolerations": {"keys": ["k"]}}),
                make_entry("last", match={"tolerations": {"keys": ["k"]}}),
            ],
            None,
            id="an allowance contains less than a refusal meets",
        ),
        pytest.param(
            [
                make_entry("ok", "allow", {"tolerations": {"keys": ["k"]}}),
                make_entry("last", "allow", {"tolerations": {"keys": ["k"]}}),
            ],
            "ok",
            id="an allowance of the same",
        ),
    ],
)
def test_rule_that_decides_everything_before_another_covers_it(entries: Any, found: str | None) -> None:
    assert covering(*entries) == found


def tolerations(**fields: Any) -> dict[str, Any]:
    return {"tolerations": fields}


@pytest.mark.parametrize(
    ("wide", "narrow", "both"),
    [
        pytest.param({}, {"deviceClasses": ["a"]}, (True, False), id="anything and a class"),
        pytest.param({"deviceClasses": ["a", "b"]}, {"deviceClasses": ["a"]}, (True, False), id="more classes"),
        pytest.param({"deviceClasses": ["*"]}, {"deviceClasses": ["a"]}, (True, False), id="every class"),
        pytest.param({"deviceClasses": ["*"]}, {}, (True, True), id="every class and anything"),
        pytest.param({"drivers": ["a"]}, {"drivers": ["b"]}, (False, False), id="other drivers"),
        pytest.param({"drivers": ["a", "b"]}, {"drivers": ["b"]}, (True, False), id="more drivers"),
        pytest.param({}, {"adminAccess": True}, (True, False), id="admin access or not"),
        pytest.param({"adminAccess": True}, {"adminAccess": False}, (False, False), id="with admin access and without"),
        pytest.param({}, {"namespaces": {"names": ["a"]}}, (True, False), id="a namespace"),
        pytest.param(
            {"namespaces": {"names": ["a", "b"]}}, {"namespaces": {"names": ["a"]}}, (True, False), id="more namespaces"
        ),
        pytest.param(
            {"namespaces": {"except": ["a"]}}, {"namespaces": {"except": ["a", "b"]}}, (True, False), id="exceptions"
        ),
        pytest.param(
            {"namespaces": {"labels": {"a": "1"}}},
            {"namespaces": {"labels": {"a": "1", "b": "1"}}},
            (True, False),
            id="fewer labels",
        ),
        pytest.param(
            {"namespaces": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
            {"namespaces": {"matchExpressions": [{"key": "b", "operator": "Exists"}]}},
            (False, False),
            id="other expressions",
        ),
        pytest.param({}, {"requesters": {"users": ["a"]}}, (True, False), id="a requester"),
        pytest.param(
            {"requesters": {"users": ["a", "b"]}}, {"requesters": {"users": ["b"]}}, (True, False), id="more users"
        ),
        pytest.param(
            {"requesters": {"users": ["a"], "groups": ["g"]}}, {"requesters": {"groups": ["g"]}}, (True, False), id="or"
        ),
        pytest.param(
            {"requesters": {"users": ["a"]}}, {"requesters": {"groups": ["a"]}}, (False, False), id="a group is no user"
        ),
        pytest.param(
            {"requesters": {"serviceAccounts": ["a/b", "c/d"]}},
            {"requesters": {"serviceAccounts": ["a/b"]}},
            (True, False),
            id="more accounts",
        ),
        pytest.param({}, tolerations(keys=["a"]), (True, False), id="a key"),
        pytest.param(tolerations(keys=["a", "b"]), tolerations(keys=["a"]), (True, False), id="more keys"),
        pytest.param(tolerations(values=["a", "b"]), tolerations(values=["a"]), (True, False), id="more values"),
        pytest.param(
            tolerations(effects=["None", "NoExecute"]), tolerations(effects=["None"]), (True, False), id="effects"
        ),
        pytest.param(
            tolerations(effects=["None", "NoExecute", "NoSchedule"]),
            tolerations(keys=["*"]),
            (True, True),
            id="all effects",
        ),
        pytest.param(
            tolerations(seconds={"above": 5}), tolerations(seconds={"above": 6}), (True, False), id="above less"
        ),
        pytest.param(
            tolerations(seconds={"above": 5}), tolerations(seconds={"above": 5}), (True, True), id="above as much"
        ),
        pytest.param(tolerations(seconds={"above": 5}), tolerations(keys=["*"]), (False, True), id="above or not"),
    ],
)
def test_match_covers_another_where_each_field_does(wide: Any, narrow: Any, both: tuple[bool, bool]) -> None:
    one, other = matched(wide), matched(narrow)
    assert (covers(one, other), covers(other, one)) == both


@pytest.mark.parametrize(
    ("wide", "narrow", "both"),
    [
        pytest.param({"pools": ["a", "b"]}, {"pools": ["a"]}, (True, False), id="more pools"),
        pytest.param({}, {"evict": False}, (True, False), id="eviction or not"),
        pytest.param({"evict": True}, {"evict": False}, (False, False), id="with eviction and without"),
        pytest.param({"taints": {"keys": ["a", "b"]}}, {"taints": {"keys": ["a"]}}, (True, False), id="more keys"),
        pytest.param({"taints": {"effects": ["None"]}}, {}, (False, True), id="an effect"),
    ],
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
