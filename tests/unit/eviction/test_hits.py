"""Which pods rules hit, and several rules together."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tests.unit.eviction.objects import pod
from webhook.eviction.hits import RuleHits
from webhook.eviction.pod_plan import PodPlan

if TYPE_CHECKING:
    from webhook.eviction.profiles import Profile
    from webhook.inventory.evictions import Eviction


class _Evicted:
    """As far as an eviction is looked at."""

    def __init__(self, *rules: str) -> None:
        self.rules = tuple([(rule, f"name-{rule}") for rule in rules])


def plan(name: str, *rules: str, namespace: str = "ml", held_by: str = "") -> PodPlan:
    found = pod(name, namespace=namespace)
    eviction, profile = cast("Eviction", _Evicted(*rules)), cast("Profile", None)
    return PodPlan(f"{namespace}/{name}", found.meta.uid, found, eviction, profile, held_by=held_by)


def counts(hits: RuleHits, group: str = "g") -> tuple[int, list[str]]:
    number, namespaces = hits.counts_in(group)
    return number, sorted(namespaces)


def filled(*plans: PodPlan) -> RuleHits:
    hits = RuleHits()
    for each in plans:
        hits.add(each)
    return hits


def test_pod_counts_once_however_many_rules_of_a_group_hit_it() -> None:
    both, one = plan("both", "a", "b"), plan("one", "a", namespace="web")
    hits = filled(both)
    hits.join("a", "g")
    assert counts(hits) == (1, ["ml"])
    hits.join("b", "g")
    hits.add(one)
    assert counts(hits) == (2, ["ml", "web"])
    hits.discard(both)
    assert counts(hits) == (1, ["web"])
    hits.discard(one)
    assert counts(hits) == (0, [])
    assert hits.plans_of("a") == []


def test_pods_that_came_before_their_rules_joined_count() -> None:
    hits = filled(plan("1", "a"), plan("2", "b"), plan("3", "c"), plan("4", "b", "c"))
    for number, rule in enumerate("abc"):
        hits.join(rule, "g")
        assert counts(hits) == ([1, 3, 4][number], ["ml"])


def test_rule_that_leaves_takes_away_only_what_no_other_rule_hits() -> None:
    mine, shared = plan("mine", "a"), plan("shared", "a", "b", "c")
    hits = filled(mine, shared)
    for rule in "abc":
        hits.join(rule, "g")
    hits.leave("a")
    assert counts(hits) == (1, ["ml"])
    hits.discard(mine)
    assert counts(hits) == (1, ["ml"])
    hits.leave("b")
    assert counts(hits) == (1, ["ml"])
    hits.discard(shared)
    assert counts(hits) == (0, [])
    hits.leave("c")
    assert (hits._joint, hits._members, hits._group_of) == ({}, {}, {})


def test_rule_that_is_left_alone_is_joined_by_another_one() -> None:
    hits = filled(plan("1", "a"), plan("2", "b"))
    hits.join("a", "g")
    hits.join("b", "g")
    hits.leave("a")
    hits.add(plan("3", "b"))
    hits.join("a", "g")
    assert counts(hits) == (3, ["ml"])


def test_pods_that_are_not_evicted_do_not_count() -> None:
    held = plan("held", "a", "b", held_by="crew")
    hits = filled(held, plan("free", "a"))
    hits.join("a", "g")
    hits.join("b", "g")
    assert (counts(hits), hits.count_of("a"), hits.count_of("b"), hits.count_of("c")) == ((1, ["ml"]), 1, 0, 0)
    assert len(hits.plans_of("a")) == 2
    hits.discard(held)
    assert counts(hits) == (1, ["ml"])


def test_groups_do_not_mix() -> None:
    hits = filled(plan("1", "a", "b"), plan("2", "b"))
    hits.join("a", "g")
    hits.join("b", "h")
    assert (counts(hits), counts(hits, "h"), counts(hits, "none")) == ((1, ["ml"]), (2, ["ml"]), (0, []))


def test_pod_is_hit_until_the_request_for_it_is_answered_and_counts_once() -> None:
    one, other = plan("one", "a", "b"), plan("other", "b")
    hits = filled(one, other)
    hits.join("a", "g")
    hits.join("b", "g")
    hits.begin_request(one)
    assert (counts(hits), hits.count_of("a"), hits.count_of("b")) == ((2, ["ml"]), 1, 2)
    hits.discard(one)
    assert (counts(hits), hits.count_of("a"), hits.count_of("b")) == ((2, ["ml"]), 1, 2)
    hits.end_request(one.uid, one.eviction.rules)
    assert (counts(hits), hits.count_of("a"), hits.count_of("b")) == ((1, ["ml"]), 0, 1)
    hits.discard(other)
    assert (hits._of_rule, counts(hits)) == ({}, (0, []))


def test_rules_that_join_and_leave_meanwhile_take_requests_with_them() -> None:
    one = plan("one", "a")
    hits = filled(one, plan("other", "b"))
    hits.join("b", "g")
    hits.begin_request(one)
    hits.join("a", "g")
    hits.discard(one)
    assert counts(hits) == (2, ["ml"])
    hits.leave("a")
    assert (counts(hits), hits.count_of("a")) == ((1, ["ml"]), 1)
    hits.join("a", "g")
    hits.end_request(one.uid, one.eviction.rules)
    assert counts(hits) == (1, ["ml"])


def test_pod_that_comes_under_other_rules_meanwhile_is_hit_by_both() -> None:
    before, after = plan("one", "a"), plan("one", "b")
    hits = filled(before)
    hits.begin_request(before)
    hits.discard(before)
    hits.add(after)
    assert (hits.count_of("a"), hits.count_of("b"), hits.plans_of("b")) == (1, 1, [after])
    hits.end_request(before.uid, before.eviction.rules)
    assert (hits.count_of("a"), hits.count_of("b")) == (0, 1)


def test_pod_that_is_held_meanwhile_counts_until_the_answer() -> None:
    one = plan("one", "a", "b")
    hits = filled(one)
    hits.join("a", "g")
    hits.join("b", "g")
    hits.begin_request(one)
    hits.discard(one)
    one.held_by = "crew"
    hits.add(one)
    assert (counts(hits), hits.count_of("a")) == ((1, ["ml"]), 1)
    hits.end_request(one.uid, one.eviction.rules)
    assert (counts(hits), hits.count_of("a"), hits.plans_of("a")) == ((0, []), 0, [one])
    hits.discard(one)
    assert (hits._of_rule, counts(hits)) == ({}, (0, []))


def test_pod_that_is_held_no_longer_counts_in_rules_that_joined_before() -> None:
    one = plan("one", "a", held_by="crew")
    hits = filled(one, plan("other", "b"))
    hits.join("a", "g")
    hits.join("b", "g")
    assert counts(hits) == (1, ["ml"])
    hits.discard(one)
    one.held_by = ""
    hits.add(one)
    assert counts(hits) == (2, ["ml"])
