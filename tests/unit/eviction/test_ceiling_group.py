"""What counts against a ceiling that several rules have."""

from __future__ import annotations

from tests.builders import NOW
from tests.unit.eviction.objects import rule
from webhook.api.rules import EVICTED_PODS, Condition
from webhook.eviction.ceilings import CeilingGroup, Tally


def tally(number: int) -> Tally:
    """Of a rule for which pods were evicted by an earlier leader."""
    return Tally(rule(conditions=(Condition(EVICTED_PODS, "True", "PodsEvicted", str(number), 1, NOW),)))


def group_of(**numbers: int) -> CeilingGroup:
    group = CeilingGroup()
    for name, number in numbers.items():
        group.add(name, tally(number))
    return group


def counting(group: CeilingGroup) -> list[int]:
    return [each.counting for each in group.tallies.values()]


def test_counts_are_added_up_and_stay_when_a_rule_is_gone() -> None:
    group = group_of(a=3, b=2, c=0)
    assert group.counting == 5
    assert group.remove("a") == "c"
    assert (group.counting, counting(group)) == (5, [2, 3])
    group.add("none", tally(0))
    assert group.remove("none") == "", "there is nothing to take over"
    assert group.remove("b") == "c"
    assert group.remove("c") == ""
    assert (group.counting, group.tallies) == (5, {})
    group.add("d", new := tally(1))
    group.add("e", tally(0))
    assert (group.counting, new.counting, new.total) == (6, 6, 1)


def test_rule_that_leaves_is_held_no_longer() -> None:
    group = group_of(a=0, b=0)
    group.held.update(["a", "b"])
    group.remove("a")
    assert group.held == {"b"}


def test_new_judgement_starts_the_count_over_also_in_a_group_without_rules() -> None:
    group = group_of(a=3, b=2)
    group.restart()
    assert (group.counting, counting(group)) == (0, [0, 0])
    empty = group_of(a=2)
    empty.remove("a")
    empty.restart()
    assert empty.counting == 0


def test_pod_that_another_rule_counts_is_evicted_for_both() -> None:
    group = group_of(a=0, b=0)
    group.tallies["a"].count()
    group.tallies["b"].count(elsewhere=True)
    assert (group.counting, counting(group), group.tallies["b"].total) == (1, [1, 0], 1)
