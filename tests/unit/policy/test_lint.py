from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.builders import NOW
from tests.tables import table
from tests.unit.policy.documents import (
    AT,
    make_defaults,
    make_document,
    make_entry,
    make_exception,
    policy_of,
    warnings_in,
)
from webhook.api.field import Path, Severity
from webhook.api.meta import format_time
from webhook.commands.shared.codes import codes
from webhook.policy.document import load
from webhook.policy.lint import SOON, expiring

NEVER_REACHED = 'DT101 rules[1]: is never reached: rule "first" decides all that it matches'


def two(first: Any, second: Any, *, action: str = "deny", other: str = "deny") -> list[str]:
    """Codes and places for a rule after another."""
    return warnings_in(rules=[make_entry("first", action, first), make_entry("second", other, second)])


CLASSES = {"deviceClasses": ["a", "b"]}


@table(
    "first, second, told",
    {
        "everything, and something": ({}, {"deviceClasses": ["a"]}, True),
        "with an expression": (CLASSES, {"deviceClasses": ["b"], "when": "request.count > 1"}, True),
        "a longer list": ({"deviceClasses": ["a"]}, CLASSES, False),
        "an expression": ({"deviceClasses": ["a"], "when": "request.count > 1"}, {"deviceClasses": ["a"]}, False),
    },
)
def test_rule_behind_a_wider_one_is_told(first: Any, second: Any, told: object) -> None:
    """Which match is wider than another: test_coverage."""
    assert two(first, second) == ([NEVER_REACHED] if told else [])


def test_rules_of_another_walk_are_no_matter() -> None:
    assert warnings_in(rules=[make_entry("a"), make_entry("b", subject="request")]) == []


@table(
    "match, other, told",
    {
        "classes are known, and one": (CLASSES, "deny", True),
        "likewise": (CLASSES, "allow", True),
        "a toleration may meet a set and not lie in it": ({"tolerations": {"keys": ["k"]}}, "deny", False),
        "what lies in a set lies in a wider one": ({"tolerations": {"keys": ["k"]}}, "allow", True),
        "a class may give devices of several drivers": ({"drivers": ["d"]}, "deny", False),
        "the requester may not be known": ({"requesters": {"users": ["u"]}}, "deny", False),
        "labels may not be known": ({"namespaces": {"labels": {"kubernetes.io/metadata.name": "n"}}}, "deny", False),
        "names are": ({"namespaces": {"names": ["n"]}}, "deny", True),
    },
)
def test_rule_that_allows_covers_what_both_readings_of_a_match_agree_on(match: Any, other: str, told: Any) -> None:
    assert bool(two(match, match, action="allow", other=other)) == told


def test_taint_rules_are_compared_too() -> None:
    rules = [
        make_entry("one", match={"taints": {"keys": ["k"], "effects": ["NoExecute"]}}),
        make_entry("two", "allow", {"taints": {"keys": ["k"], "effects": ["NoExecute"]}, "pools": ["p"]}),
    ]
    assert warnings_in(taintRules=rules) == [
        'DT101 taintRules[1]: is never reached: rule "one" decides all that it matches'
    ]


@table(
    "match, warned",
    {
        "any effect": ({"taints": {"keys": ["k"]}}, True),
        "an effect for which no device is emptied": ({"taints": {"effects": ["None"]}}, True),
        "both effects of a device": ({"taints": {"effects": ["NoSchedule", "NoExecute"]}}, True),
        "the effect of a device that is emptied": ({"taints": {"effects": ["NoExecute"]}}, False),
        "the effect as it is written": ({"taints": {"effects": ["NoSchedule"]}}, False),
        "no device is emptied": ({"taints": {"effects": ["NoExecute"]}, "evict": False}, True),
        "devices are emptied": ({"taints": {"effects": ["NoExecute"]}, "evict": True}, False),
        "no pool is any pool": ({"pools": ["p"], "taints": {"effects": ["NoSchedule", "NoExecute"]}}, False),
        "no driver is any driver": ({"drivers": ["d"], "taints": {"effects": ["NoSchedule", "NoExecute"]}}, False),
    },
)
def test_taint_rule_that_allows_covers_what_both_readings_agree_on(match: Any, warned: Any) -> None:
    """A NoSchedule taint on devices that are emptied counts as NoExecute too for a rule that refuses."""
    rules = [make_entry("first", "allow", match), make_entry("second", "deny", match)]
    assert bool(warnings_in(taintRules=rules)) == warned
    rules[1]["action"] = "allow"
    assert warnings_in(taintRules=rules) != []


@table(
    "where",
    {
        "all are excepted": {"except": ["*"]},
        "each is excepted": {"names": ["a", "b-*"], "except": ["a*", "b-*"]},
        "a label that must and must not be there": {
            "labels": {"l": "*"},
            "matchExpressions": [{"key": "l", "operator": "DoesNotExist"}],
        },
        "likewise, with a value": {
            "matchExpressions": [
                {"key": "l", "operator": "DoesNotExist"},
                {"key": "l", "operator": "In", "values": ["x"]},
            ]
        },
    },
)
def test_rule_that_never_matches_is_told(where: Any) -> None:
    assert warnings_in(rules=[make_entry(match={"namespaces": where})]) == [
        "DT102 rules[0].match.namespaces: no namespace can match this"
    ]


@pytest.mark.parametrize(
    "where",
    [
        {"names": ["a*"], "except": ["ab"]},
        {"except": ["a*"]},
        {"labels": {"l": "x"}, "matchExpressions": [{"key": "l", "operator": "NotIn", "values": ["y"]}]},
    ],
)
def test_rule_that_sometimes_matches_is_not(where: Any) -> None:
    assert warnings_in(rules=[make_entry(match={"namespaces": where})]) == []


def test_allow_of_all_effects_but_none_is_told() -> None:
    match = {"tolerations": {"keys": ["k"], "effects": ["NoExecute", "NoSchedule"]}}
    text = "leaves out None, so a toleration without effect is not allowed; leave effects out if it should be"
    expected = [f"DT103 rules[0].match.tolerations.effects: {text}"]
    assert warnings_in(rules=[make_entry(action="allow", match=match)]) == expected
    assert warnings_in(rules=[make_entry(action="deny", match=match)]) == []
    match["tolerations"]["effects"] = ["NoExecute"]
    assert warnings_in(rules=[make_entry(action="allow", match=match)]) == []


def test_expression_alone_is_told() -> None:
    text = "is evaluated for everything; let another field, such as deviceClasses, match first"
    expected = [f"DT104 rules[0].match.when: {text}"]
    for nothing in ({}, {"deviceClasses": ["*"]}):
        assert warnings_in(rules=[make_entry(match={"when": "request.count > 1", **nothing})]) == expected
    assert warnings_in(rules=[make_entry(match={"when": "request.count > 1", "deviceClasses": ["a"]})]) == []


def test_default_toleration_with_idle_seconds_is_told() -> None:
    text = "only eviction counts seconds, and effect is NoSchedule"
    assert warnings_in(defaultTolerations=[make_defaults(key="k", effect="NoSchedule", tolerationSeconds=5)]) == [
        f"DT106 defaultTolerations[0].tolerations[0].tolerationSeconds: {text}"
    ]
    assert warnings_in(defaultTolerations=[make_defaults(key="k", effect="NoExecute", tolerationSeconds=5)]) == []


def test_exception_that_lifts_nothing_is_told() -> None:
    assert warnings_in(exceptions=[make_exception()]) == [
        "DT110 exceptions[0].rules: the document's default allows already"
    ]
    assert warnings_in(default="deny", exceptions=[make_exception()]) == []


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"pods": None}, True),
        ({"pods": None, "namespaces": 3}, True),
        ({}, False),
        ({"pods": 0}, False),
        ({"pods": None, "claims": 3}, False),
        ({"pods": None, "devices": "5%"}, False),
    ],
    ids=str,
)
def test_limits_that_do_not_bound_pods_are_told(entry: Any, *, told: bool) -> None:
    text = "null lifts the limit: one rule may evict any number of pods; set pods, claims or devices"
    bound = {"requesters": {"users": ["jane"]}}
    assert warnings_in(impact={"limits": [bound, entry]}) == ([f"DT111 impact.limits[1].pods: {text}"] if told else [])


def test_grace_period_of_zero_is_told_of_each_profile() -> None:
    text = "deletes by force: the device is free for others while containers still use it; set 1 or more"
    first = [{"namespaces": {"names": [name]}, "gracePeriodSeconds": seconds} for name, seconds in (("a", 1), ("b", 0))]
    assert warnings_in(eviction=[*first, {"gracePeriodSeconds": None}]) == [
        f"DT114 eviction[1].gracePeriodSeconds: {text}"
    ]
    (finding,) = load(make_document(eviction=[{"gracePeriodSeconds": 0}]), AT).warnings
    assert str(finding.error) == f"eviction[0].gracePeriodSeconds: Invalid value: 0: {text}"


def test_warnings_have_titles_and_weigh_little() -> None:
    policy = policy_of(default="deny", exceptions=[make_exception(expiresAt="2020-01-01T00:00:00Z")])
    (finding,) = expiring(policy, NOW)
    assert finding.code in codes()
    assert finding.severity is Severity.WARN


@table(
    "days, codes",
    {
        "now": (0, ["DT107"]),
        "within a week": (7, ["DT108"]),
        "later": (8, []),
        "in a year": (366, []),
        "later than in a year": (367, ["DT109"]),
    },
)
def test_exceptions_are_told_by_their_end(days: int, codes: list[str]) -> None:
    assert timedelta(days=7) == SOON
    entry = make_exception(expiresAt=format_time(NOW + timedelta(days=days)))
    found = list(expiring(policy_of(default="deny", exceptions=[entry]), NOW, Path.root().child("data")))
    assert [finding.code for finding in found] == codes
    assert all(finding.error.field == "data.exceptions[0].expiresAt" for finding in found)


def test_pattern_is_not_taken_for_a_name_that_an_exception_covers() -> None:
    """`train-?` leaves out one character only, and `train-*` has more."""
    for names, excepted in ((["train-*"], ["train-?"]), (["train-?"], ["train-[a-z]*", "*-x"])):
        match = {"namespaces": {"names": names, "except": excepted}}
        assert warnings_in(rules=[make_entry("no", match=match)]) == []


def test_softening_that_two_steps_prevent_is_told() -> None:
    soft = {"requesters": {"users": ["u"]}, "action": "soften"}
    text = "twoStep refuses rules created with NoExecute, so they are not softened; set twoStep: false"
    for entry in (soft, {**soft, "soften": "always"}):
        found = warnings_in(impact={"limits": [entry, {}], "twoStep": True})
        assert found == [f"DT119 impact.limits[0].action: {text}"]
        assert warnings_in(impact={"limits": [entry, {}]}) == []
    assert warnings_in(impact={"limits": [{"action": "deny"}], "twoStep": True}) == []


DEADLINE = "DT122 eviction[0].deadline: "


@pytest.mark.parametrize(("deadline", "warned"), [("59m", False), ("60m", True), ("61m", True)])
def test_deadline_that_no_window_reaches(deadline: str, *, warned: bool) -> None:
    profile = {"windows": [{"schedule": "0 22 * * *", "duration": "1h"}], "deadline": deadline}
    text = "no window is longer than 60 min, and the deadline passes only while one is open: nothing is deleted"
    found = warnings_in(eviction=[{**profile, "afterDeadline": "delete"}])
    assert found == ([f"{DEADLINE}{text}"] if warned else [])
    assert warnings_in(eviction=[profile]) == []
    assert warnings_in(eviction=[{"deadline": deadline, "afterDeadline": "delete"}]) == []


# --- exceptions that lift a rule ------------------------------------------------------------------


KEYS = {"tolerations": {"keys": ["a.example.com/*"]}}
LATER = make_entry("later", match={"tolerations": {"keys": ["a.example.com/*"], "seconds": {"above": 3600}}})


@table(
    "exceptions, told",
    {
        "none": ([], True),
        "to the earlier rule": ([make_exception("lab", ["no"])], False),
        "to the later one": ([make_exception("lab", ["later"])], True),
    },
)
def test_a_rule_is_reached_where_an_exception_lifts_the_one_before_it(exceptions: Any, *, told: bool) -> None:
    found = warnings_in(rules=[make_entry("no", match=KEYS), LATER], exceptions=exceptions)
    assert [each.partition(" ")[0] for each in found] == (["DT101"] if told else [])


def test_a_taint_rule_is_reached_where_an_exception_lifts_the_one_before_it() -> None:
    match = {"taints": {"effects": ["NoExecute"]}}
    rules = [make_entry("no", match=match), make_entry("later", match=match)]
    assert warnings_in(taintRules=rules) != []
    assert warnings_in(taintRules=rules, exceptions=[make_exception("lab", ["no"])]) == []


# --- dates and windows ----------------------------------------------------------------------------


NIGHT = {"schedule": "0 22 * * *", "duration": "8h"}


@table(
    "windows, told",
    {
        "one a day": ([NIGHT], True),
        "one on some days": ([{"schedule": "30 6 * * 1-5", "duration": "8h"}], True),
        "one after the other": ([NIGHT, {"schedule": "0 6 * * *", "duration": "8h"}], False),
        "every five minutes": ([{"schedule": "*/5 * * * *", "duration": "5m"}], False),
        "several a day": ([{"schedule": "0 0,8,16 * * *", "duration": "8h"}], False),
        "all day": ([{"schedule": "0 0 * * *", "duration": "24h"}], False),
    },
)
def test_a_deadline_is_out_of_reach_where_no_windows_can_meet(windows: Any, *, told: bool) -> None:
    profile = {"windows": windows, "deadline": "24h", "afterDeadline": "delete"}
    found = warnings_in(eviction=[profile])
    assert [each.partition(" ")[0] for each in found] == (["DT122"] if told else [])


@table(
    "begins, ends, expected",
    {
        "long ago, and soon": (-800, 3, ["DT108"]),
        "long ago, and in a month": (-800, 30, []),
        "long ago, and in two years": (-800, 800, ["DT109"]),
        "in a year, and a month later": (400, 430, []),
        "in a year, and two years later": (400, 1200, ["DT109"]),
    },
)
def test_an_exception_is_long_by_what_is_left_of_it(begins: int, ends: int, expected: list[str]) -> None:
    dates = {
        "notBefore": format_time(NOW + timedelta(days=begins)),
        "expiresAt": format_time(NOW + timedelta(days=ends)),
    }
    exception = {**make_exception("e", ["r"]), **dates}
    policy = policy_of(rules=[make_entry("r", match={"tolerations": {"keys": ["a/*"]}})], exceptions=[exception])
    assert [each.code for each in expiring(policy, NOW)] == expected
