"""The words in which a field that does not hold is explained; laws are in tests/properties/test_explain.py."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW
from tests.tables import table
from tests.unit.policy.documents import judge_of, make_entry, make_exception
from webhook.api.taints import EXISTS, DeviceTaint, DeviceToleration
from webhook.policy.explain import ClaimQuestion, Considered, TaintQuestion, considered
from webhook.policy.match import NamespaceFacts, Placement, Requester, Scope, Target

JANE = Requester("jane", ("ml-a", "ml-b"))
SCOPE = Scope(JANE, "train", NamespaceFacts("train", {"team": "ml"}))
TARGET = Target("gpu", frozenset({"b.example.com", "a.example.com"}), admin_access=False)
WANTED = 'user "joe" or group one of "a", "b" or service account "x/y"'
XID = DeviceToleration("xid", "Equal", "v", "NoExecute", 60)


def unmet(
    match: Any,
    *,
    action: str = "deny",
    scope: Scope = SCOPE,
    target: Target = TARGET,
    toleration: DeviceToleration | None = XID,
    variables: Any = None,
) -> list[str]:
    """What keeps a rule with that match from matching."""
    subject = {"subject": "request"} if toleration is None else {}
    judge = judge_of({**make_entry("rule", action, match), **subject})
    found = considered(judge, ClaimQuestion(scope, target, toleration), NOW, lambda: variables or {})
    return [str(each) for each in found[0].unmet]


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ({"namespaces": {"names": ["prod"]}}, ['namespaces.names: "train", wanted "prod"']),
        ({"namespaces": {"names": ["a", "b"]}}, ['namespaces.names: "train", wanted one of "a", "b"']),
        ({"namespaces": {"except": ["train"]}}, ['namespaces.except: "train", wanted not "train"']),
        ({"namespaces": {"labels": {"team": "web"}}}, ['namespaces.labels[team]: "ml", wanted "web"']),
        ({"namespaces": {"labels": {"tier": "1"}}}, ['namespaces.labels[tier]: missing, wanted "1"']),
        (
            {"namespaces": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["web"]}]}},
            ['namespaces.matchExpressions[team]: "ml", wanted "web"'],
        ),
        (
            {"namespaces": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["ml"]}]}},
            ['namespaces.matchExpressions[team]: "ml", wanted not "ml"'],
        ),
        (
            {"namespaces": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}},
            ["namespaces.matchExpressions[tier]: missing, wanted any value"],
        ),
        (
            {"namespaces": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}},
            ['namespaces.matchExpressions[team]: "ml", wanted missing'],
        ),
        (
            {"requesters": {"users": ["joe"], "groups": ["a", "b"], "serviceAccounts": ["x/y"]}},
            [f'requesters: user "jane" (groups "ml-a", "ml-b"), wanted {WANTED}'],
        ),
        ({"deviceClasses": ["nic"]}, ['deviceClasses: "gpu", wanted "nic"']),
        ({"drivers": ["c*"]}, ['drivers: "a.example.com" and "b.example.com", wanted "c*"']),
        ({"adminAccess": True}, ["adminAccess: false, wanted true"]),
        ({"tolerations": {"keys": ["a"]}}, ['tolerations.keys: "xid", wanted "a"']),
        ({"tolerations": {"values": ["a"]}}, ['tolerations.values: "v", wanted "a"']),
        (
            {"tolerations": {"effects": ["NoSchedule", "None"]}},
            ["tolerations.effects: NoExecute, wanted one of NoSchedule, None"],
        ),
        (
            {"tolerations": {"seconds": {"above": 60}}},
            ["tolerations.seconds: 60 s, wanted NoExecute for more than 60 s"],
        ),
        ({"tolerations": {"seconds": {"above": 59}}}, []),
        (
            {"tolerations": {"effects": ["NoSchedule", "NoExecute"], "seconds": {"above": 60}}},
            ["tolerations.seconds: 60 s, wanted NoExecute for more than 60 s"],
        ),
        (
            {"deviceClasses": ["nic"], "tolerations": {"keys": ["a"]}},
            ['deviceClasses: "gpu", wanted "nic"', 'tolerations.keys: "xid", wanted "a"'],
        ),
        ({"deviceClasses": ["gpu"]}, []),
    ],
    ids=str,
)
def test_field_that_does_not_hold_is_named_with_both_values(match: Any, expected: list[str]) -> None:
    assert unmet(match) == expected


@pytest.mark.parametrize(
    ("match", "fields", "expected"),
    [
        (
            {"namespaces": {"labels": {"kubernetes.io/metadata.name": "x"}}},
            {"scope": SCOPE._replace(facts=None)},
            ['namespaces.labels[kubernetes.io/metadata.name]: not known, wanted "x"'],
        ),
        ({"requesters": {"users": ["j*"]}}, {"scope": SCOPE._replace(requester=None)}, ["requesters: not known"]),
        (
            {"requesters": {"groups": ["ml-*"]}},
            {"scope": SCOPE._replace(requester=Requester("joe", ("ml-a",), groups_known=False))},
            ['requesters: user "joe" (groups not known)'],
        ),
        (
            {"requesters": {"groups": ["ml-*"]}},
            {"scope": SCOPE._replace(requester=Requester("joe"))},
            ['requesters: user "joe" (groups none)'],
        ),
        ({"drivers": ["a*"]}, {"target": TARGET._replace(drivers=None)}, ["drivers: not known"]),
        ({"drivers": ["a*"]}, {}, ['drivers: "a.example.com" and "b.example.com"']),
        (
            {"tolerations": {"keys": ["a"]}},
            {"toleration": DeviceToleration("", EXISTS)},
            ["tolerations.keys: every key"],
        ),
        (
            {"tolerations": {"values": ["a"]}},
            {"toleration": DeviceToleration("k", EXISTS)},
            ["tolerations.values: every value"],
        ),
        (
            {"tolerations": {"effects": ["NoSchedule"]}},
            {"toleration": DeviceToleration("k", EXISTS)},
            ["tolerations.effects: every effect"],
        ),
        (
            {"tolerations": {"seconds": {"atMost": 60}}},
            {"toleration": DeviceToleration("k", EXISTS, "", "NoExecute")},
            ["tolerations.seconds: for ever, wanted at most 60 s"],
        ),
        (
            {"tolerations": {"seconds": {"atMost": 60}}},
            {"toleration": DeviceToleration("k", EXISTS, "", "", 61)},
            ["tolerations.seconds: 61 s, wanted at most 60 s"],
        ),
        (
            {"tolerations": {"effects": ["NoExecute"], "seconds": {"atMost": 60}}},
            {"toleration": DeviceToleration("k", EXISTS, "", "", 30)},
            ["tolerations.effects: every effect"],
        ),
        (
            {"adminAccess": False},
            {"target": TARGET._replace(admin_access=True), "toleration": None},
            ["adminAccess: true"],
        ),
    ],
)
def test_allowance_says_what_is_not_known(match: Any, fields: Any, expected: list[str]) -> None:
    found = unmet(match, action="allow", **fields)
    assert len(found) == len(expected)
    assert all(map(str.startswith, found, expected)), found


@pytest.mark.parametrize("action", ["deny", "allow"])
def test_unknown_effect_is_none_of_those_there_are(action: str) -> None:
    unknown = DeviceToleration("k", EXISTS, "", "Evict")
    found = unmet({"tolerations": {"keys": ["k"]}}, action=action, toleration=unknown)
    assert found == ["tolerations.effects: Evict, wanted one of NoExecute, NoSchedule, None"]


def test_refusal_by_seconds_is_not_about_tolerations_of_other_effects() -> None:
    without = DeviceToleration("k", EXISTS, "", "NoSchedule")
    found = unmet({"tolerations": {"seconds": {"above": 5}}}, toleration=without)
    assert found == ["tolerations.seconds: no NoExecute, wanted NoExecute for more than 5 s"]


def test_expression_counts_as_unmet_where_it_is_false_and_for_an_allowance_where_it_has_no_value() -> None:
    count = {"when": "request.count\n > 1"}
    facts = {"request": {"count": 1}}
    assert unmet(count, variables=facts) == ["when: false, wanted request.count > 1"]
    assert unmet(count, variables={"request": {"count": 2}}) == []
    unknown: dict[str, Any] = {"request": {}}
    assert unmet(count, variables=unknown) == []
    assert unmet(count, action="allow", variables=unknown) == [
        "when: cannot be evaluated (request.count is not set), wanted request.count > 1"
    ]


def unmet_by_taint(match: Any, place: Placement, *, action: str = "warn") -> list[str]:
    judge = judge_of(taintRules=[make_entry("rule", action, match)])
    question = TaintQuestion(JANE, place, DeviceTaint("k", "v", "NoSchedule"))
    (found,) = considered(judge, question, NOW, dict)
    return [str(each) for each in found.unmet]


@pytest.mark.parametrize(
    ("match", "place", "expected"),
    [
        ({"requesters": {"users": ["joe"]}}, Placement("d", "p"), ['requesters: user "jane"']),
        ({"drivers": ["x"]}, Placement("d", "p"), ['drivers: "d", wanted "x"']),
        ({"pools": ["x"]}, Placement("d", "p"), ['pools: "p", wanted "x"']),
        ({"evict": True}, Placement("d", "p"), ["evict: false, wanted true"]),
        ({"evict": False}, Placement("d", "p", evict=True), ["evict: true, wanted false"]),
        ({"taints": {"keys": ["x"]}}, Placement("d", "p"), ['taints.keys: "k", wanted "x"']),
        ({"taints": {"values": ["x"]}}, Placement("d", "p"), ['taints.values: "v", wanted "x"']),
        ({"taints": {"effects": ["None"]}}, Placement("d", "p"), ["taints.effects: NoSchedule, wanted None"]),
        (
            {"taints": {"effects": ["None"]}},
            Placement("d", "p", evict=True),
            ["taints.effects: NoSchedule with devicetaint.io/evict, wanted None"],
        ),
        ({"drivers": ["x"]}, Placement(None, None), []),
    ],
    ids=str,
)
def test_field_of_a_taint_rule_that_does_not_hold_is_named(match: Any, place: Placement, expected: list[str]) -> None:
    found = unmet_by_taint(match, place)
    assert len(found) == len(expected)
    assert all(map(str.startswith, found, expected)), found


def test_allowance_is_not_for_devices_that_are_not_named() -> None:
    assert unmet_by_taint({"drivers": ["x"]}, Placement(None, "p"), action="allow") == [
        'drivers: any (no driver is named), wanted "x"'
    ]
    assert unmet_by_taint({"pools": ["x"]}, Placement("d", None), action="allow") == [
        'pools: any (no pool is named), wanted "x"'
    ]


def walk(*rules: Any, **fields: Any) -> tuple[Considered, ...]:
    return considered(judge_of(*rules, **fields), ClaimQuestion(SCOPE, TARGET, XID), NOW, dict)


def test_rules_after_the_one_that_decides_are_not_reached() -> None:
    found = walk(make_entry("warned", "warn"), make_entry("ok", "allow"), make_entry("no"))
    assert [(each.rule.name, each.reached, each.hit is not None) for each in found] == [
        ("warned", True, True),
        ("ok", True, True),
        ("no", False, False),
        ("default", False, False),
    ]


def test_rule_that_does_not_match_does_not_decide() -> None:
    found = walk(make_entry("no", match={"deviceClasses": ["nic"]}), default="deny")
    assert [(each.rule.name, each.reached, each.decides) for each in found] == [
        ("no", True, False),
        ("default", True, True),
    ]


@table(
    "exception, over",
    {
        "one that holds": ({}, None),
        "one that has not begun": (
            {"notBefore": "2026-08-01T00:00:00Z"},
            ["notBefore: 2026-06-01T12:00:00Z, wanted 2026-08-01T00:00:00Z or later"],
        ),
        "one that begins now": ({"notBefore": "2026-06-01T12:00:00Z"}, None),
        "one that begins now for another class": (
            {"notBefore": "2026-06-01T12:00:00Z", "match": {"deviceClasses": ["nic"]}},
            ['deviceClasses: "gpu", wanted "nic"'],
        ),
        "one that has ended": (
            {"expiresAt": "2026-06-01T12:00:00Z"},
            ["expiresAt: 2026-06-01T12:00:00Z, wanted before 2026-06-01T12:00:00Z"],
        ),
        "one for another class": ({"match": {"deviceClasses": ["nic"]}}, ['deviceClasses: "gpu", wanted "nic"']),
        "one for one driver of two": (
            {"match": {"drivers": ["a.example.com"]}},
            ['drivers: "a.example.com" and "b.example.com", wanted "a.example.com"'],
        ),
    },
)
def test_exception_that_does_not_apply_says_why(exception: Any, over: list[str] | None) -> None:
    found, *rest = walk(make_entry("no"), exceptions=[make_exception(rules=["no"], **exception)])
    assert found.hit is not None
    assert (found.hit.exception is None) is (over is not None)
    assert [[str(each) for each in passed.unmet] for passed in found.passed_over] == ([] if over is None else [over])
    assert found.decides is (over is not None)
    assert rest[0].reached is (over is None)
