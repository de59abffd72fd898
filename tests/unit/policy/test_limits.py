"""Which limits hold, which namespaces are protected, and which profile a pod has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import table
from tests.unit.policy.documents import policy_of
from webhook.api.taints import DeviceTaint
from webhook.policy.limits import (
    NO_LIMITS,
    PodFacts,
    ProfileMatcher,
    limits_for,
    limits_of_anybody,
    protected_among,
    resolve_limit,
)
from webhook.policy.match import KnownNames, NamespaceFacts, Requester
from webhook.policy.model import EvictionProfile, ImpactLimits, ImpactSettings, LabelMatch, NamespaceMatch, Share

JANE = Requester("jane", ("ml-team",))
ROBOT = Requester("system:serviceaccount:health:operator")
TAINT = DeviceTaint("health.example.com/ecc", "bad")


def limits(requester: Requester = JANE, effect: str = "NoExecute", taint: DeviceTaint = TAINT, **impact: Any) -> Any:
    return limits_for(policy_of(impact=impact).impact, requester, taint, effect).pods


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ({"requesters": {"users": ["jane"]}}, True),
        ({"requesters": {"users": ["j*"]}}, True),
        ({"requesters": {"groups": ["ml-*"]}}, True),
        ({"requesters": {"serviceAccounts": ["health/operator"]}}, False),
        ({"requesters": {"users": ["john"], "groups": ["ml-team"]}}, True),
        ({"taints": {"keys": ["health.example.com/*"]}}, True),
        ({"taints": {"keys": ["other.example.com/*"]}}, False),
        ({"taints": {"values": ["bad"]}}, True),
        ({"taints": {"values": [""]}}, False),
        ({"taints": {"effects": ["NoExecute"]}}, True),
        ({"taints": {"effects": ["NoSchedule", "None"]}}, False),
        ({"requesters": {"users": ["jane"]}, "taints": {"values": ["good"]}}, False),
        ({"requesters": {"users": ["john"]}, "taints": {"values": ["bad"]}}, False),
    ],
    ids=str,
)
def test_entry_fits_if_all_that_it_names_does(match: Any, *, fits: bool) -> None:
    assert limits(limits=[{**match, "pods": 7}, {"pods": 1}]) == (7 if fits else 1)


def test_first_entry_that_fits_decides_alone() -> None:
    """What it leaves out keeps its default; the entries after it do not fill in."""
    entries = [{"requesters": {"serviceAccounts": ["health/operator"]}, "claims": 5}, {"pods": 1}]
    assert (limits(ROBOT, limits=entries), limits(JANE, limits=entries)) == (50, 1)


def test_limit_for_a_group_is_not_for_a_requester_whose_groups_are_not_known() -> None:
    unknown = Requester("jane", groups_known=False)
    entries = [{"requesters": {"groups": ["*"]}, "pods": 7}, {"pods": 1}]
    assert (limits(JANE, limits=entries), limits(unknown, limits=entries)) == (7, 1)


def test_nothing_that_fits_is_no_limit() -> None:
    impact = ImpactSettings(limits=())
    assert limits_for(impact, JANE, TAINT, "NoExecute") is NO_LIMITS
    assert ImpactLimits() == NO_LIMITS


JANES = {"requesters": {"users": ["jane"]}, "pods": 1}
ROBOTS = {"requesters": {"serviceAccounts": ["health/operator"]}, "taints": {"effects": ["NoExecute"]}, "pods": 2}
OTHERS = {"taints": {"keys": ["other.example.com/*"]}, "pods": 3}
HEALTH = {"taints": {"keys": ["health.example.com/*"]}, "pods": 4}
REST = {"pods": 5}


@table(
    "effect, entries, pods",
    {
        "one for all": ("NoExecute", [REST], [5]),
        "those of each requester, and of all others": ("NoExecute", [JANES, ROBOTS, REST], [1, 2, 5]),
        "not those for another effect": ("NoSchedule", [JANES, ROBOTS, REST], [1, 5]),
        "not those for another key": ("NoExecute", [OTHERS, JANES, REST], [1, 5]),
        "none after one that is for every requester": ("NoExecute", [HEALTH, JANES, REST], [4]),
    },
)
def test_limits_of_an_author_who_is_not_known_are_all_that_may_apply(effect: str, entries: Any, pods: Any) -> None:
    impact = policy_of(impact={"limits": entries}).impact
    assert [each.pods for each in limits_of_anybody(impact, TAINT, effect)] == pods


def test_without_an_entry_for_every_requester_there_may_be_no_limit() -> None:
    janes, rest = policy_of(impact={"limits": [JANES, REST]}).impact.limits
    assert rest.pods == 5
    assert limits_of_anybody(ImpactSettings(limits=(janes,)), TAINT, "NoExecute") == (janes, NO_LIMITS)
    assert limits_of_anybody(ImpactSettings(limits=()), TAINT, "NoExecute") == (NO_LIMITS,)


def test_effect_is_the_one_that_acts() -> None:
    """A NoSchedule rule that asks for eviction is not under the limits for NoSchedule."""
    entries = [{"taints": {"effects": ["NoSchedule"]}, "pods": None}, {"pods": 3}]
    taint = DeviceTaint("a", "", "NoSchedule")
    assert (limits(effect="NoSchedule", taint=taint, limits=entries), limits(taint=taint, limits=entries)) == (None, 3)


@pytest.mark.parametrize(
    ("limit", "total", "expected"),
    [
        (None, 10, None),
        (5, 0, 5),
        (0, 10, 0),
        (Share(0), 10, 0),
        (Share(5), 19, 0),
        (Share(5), 20, 1),
        (Share(12.5), 8, 1),
        (Share(100), 7, 7),
        (Share(0.1), 1000, 1),
        (Share(65.6), 375, 246),
        (Share(65.59), 375, 245),
        (Share(36.48), 625, 228),
    ],
)
def test_share_is_of_all_there_are_rounded_down(limit: Any, total: int, expected: int | None) -> None:
    assert resolve_limit(limit, total) == expected


@given(st.integers(0, 100), st.integers(0, 10**6))
def test_share_is_exact(percent: int, total: int) -> None:
    assert resolve_limit(Share(percent), total) == total * percent // 100


NAMES = KnownNames({"ml": {"tier": "user"}, "kube-system": {"tier": "system"}, "bare": {}})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"names": ["kube-*"]}, {"kube-system"}),
        ({"names": ["*"], "except": ["ml"]}, {"kube-system", "bare", "stranger"}),
        ({"labels": {"tier": "system"}}, {"kube-system", "stranger"}),
        ({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}, {"kube-system", "ml", "stranger"}),
        (
            {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["user"]}]},
            {"kube-system", "bare", "stranger"},
        ),
        ({}, set()),
        ({"names": []}, set()),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_protected_are_those_that_match_and_those_of_unknown_labels(document: Any, expected: set[str]) -> None:
    match = policy_of(impact={"protectedNamespaces": document}).impact.protected_namespaces
    assert protected_among(match, ["ml", "kube-system", "bare", "stranger"], NAMES.namespace) == expected
    assert protected_among(match, [], NAMES.namespace) == frozenset()


TRAIN = NamespaceMatch(("train-*",))
TIER = NamespaceMatch(labels=(("tier", "low"),))
LOW = NamespaceFacts("x", {"tier": "low"})
HIGH = NamespaceFacts("x", {"tier": "high"})


@table(
    "first, pod, expected",
    {
        "by the name of the namespace": ({"namespaces": TRAIN}, PodFacts("train-1"), 0),
        "not by the name of the namespace": ({"namespaces": TRAIN}, PodFacts("web"), 1),
        "by its labels": ({"namespaces": TIER}, PodFacts("x", LOW), 0),
        "not by its labels": ({"namespaces": TIER}, PodFacts("x", HIGH), 1),
        "by labels that are not known": ({"namespaces": TIER}, PodFacts("x"), None),
        "by a priority that is not known": ({"priority_at_most": 5}, PodFacts("x"), None),
        "by priority": ({"priority_at_most": 5}, PodFacts("x", known=True, priority=5), 0),
        "not by priority": ({"priority_at_most": 5}, PodFacts("x", known=True, priority=6), 1),
        "no priority is zero": ({"priority_at_most": 0}, PodFacts("x", known=True), 0),
        "no priority is not below zero": ({"priority_at_most": -1}, PodFacts("x", known=True), 1),
        "by labels of the pod": ({"pod_labels": LabelMatch((("a", "b"),))}, PodFacts("x"), None),
        "its labels": ({"pod_labels": LabelMatch((("a", "b"),))}, PodFacts("x", known=True, labels={"a": "b"}), 0),
        "not by labels of the pod": ({"pod_labels": LabelMatch((("a", "b"),))}, PodFacts("x", known=True), 1),
        "by one of its classes": ({"device_classes": ("gpu",)}, PodFacts("x", classes={"gpu"}), 0),
        "there may be others": ({"device_classes": ("gpu",)}, PodFacts("x", classes={"nic"}), None),
        "not by class": ({"device_classes": ("gpu",)}, PodFacts("x", known=True, classes={"nic"}), 1),
        "one field that does not match": ({"namespaces": TRAIN, "priority_at_most": 5}, PodFacts("web"), 1),
        "one that is not known": ({"namespaces": TRAIN, "priority_at_most": 5}, PodFacts("train-1"), None),
    },
)
def test_profile_of_a_pod_as_far_as_it_is_known(first: dict[str, Any], pod: PodFacts, expected: int | None) -> None:
    assert ProfileMatcher([EvictionProfile(**first), EvictionProfile()]).profile_of(pod) == expected


@table(
    "first, pod, expected",
    {
        "known labels of the namespace": ({"namespaces": TIER}, PodFacts("x", LOW, known=True), 0),
        "unknown labels of the namespace": ({"namespaces": TIER}, PodFacts("x", known=True), 1),
        "an unknown priority": ({"priority_at_most": 5}, PodFacts("x"), 1),
        "classes that may be others": ({"device_classes": ("gpu",)}, PodFacts("x", classes={"nic"}), 1),
    },
)
def test_profile_that_needs_an_unknown_fact_is_not_applied(first: dict[str, Any], pod: PodFacts, expected: int) -> None:
    assert ProfileMatcher([EvictionProfile(**first), EvictionProfile()]).profile_to_apply(pod) == expected


def test_last_profile_applies_to_every_pod() -> None:
    low = EvictionProfile(priority_at_most=5)
    high, unknown = PodFacts("x", known=True, priority=6), PodFacts("x")
    assert [ProfileMatcher([low, low]).profile_to_apply(pod) for pod in (high, unknown)] == [1, 1]
    assert [ProfileMatcher([low, low]).profile_of(pod) for pod in (high, unknown)] == [1, None]
