"""What counts against a ceiling that several rules have."""

from __future__ import annotations

import pytest

from tests.builders import NOW
from tests.unit.eviction.objects import rule
from webhook.api.rules import Condition
from webhook.eviction.ceiling_group import CeilingGroup
from webhook.eviction.conditions import EVICTED_PODS
from webhook.eviction.tally import Tally


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


@pytest.mark.parametrize(
    ("code", "proved", "rejudged", "left"),
    [
        pytest.param("one", True, False, 5, id="the same code"),
        pytest.param("one", True, True, 5, id="the same code, judged again: it allows nothing twice"),
        pytest.param("one", False, False, 5, id="no longer proved"),
        pytest.param("", False, False, 5, id="taken away"),
        pytest.param("", True, False, 5, id="none"),
        pytest.param("", False, True, 0, id="judged again without a code"),
        pytest.param("two", False, False, 5, id="made up"),
        pytest.param("two", True, False, 0, id="a new code"),
        pytest.param("two", True, True, 0, id="a new code, judged again"),
    ],
)
def test_new_code_and_a_new_judgement_start_the_count_over(
    code: str, *, proved: bool, rejudged: bool, left: int
) -> None:
    group = group_of(a=3, b=2)
    group.follow("one", proved=False, rejudged=True)
    assert group.counting == 5, "what was judged first is not known"
    group.follow(code, proved=proved, rejudged=rejudged)
    assert group.counting == left


def test_code_that_returns_goes_on_from_what_it_has_allowed() -> None:
    group = group_of(a=2, b=1)
    group.follow("one", proved=True, rejudged=False)
    group.follow("two", proved=True, rejudged=False)
    assert counting(group) == [0, 0]
    group.tallies["b"].count()
    group.follow("one", proved=True, rejudged=False)
    assert counting(group) == [3, 0]
    group.follow("two", proved=True, rejudged=False)
    assert counting(group) == [1, 0]


def test_count_of_a_group_without_rules_is_started_over_as_well() -> None:
    group = group_of(a=2)
    group.follow("one", proved=True, rejudged=False)
    group.remove("a")
    group.follow("two", proved=True, rejudged=False)
    assert group.counting == 0
    group.follow("one", proved=True, rejudged=False)
    assert group.counting == 2


def test_pod_that_another_rule_counts_is_evicted_for_both() -> None:
    group = group_of(a=0, b=0)
    group.tallies["a"].count()
    group.tallies["b"].count(elsewhere=True)
    assert (group.counting, counting(group), group.tallies["b"].total) == (1, [1, 0], 1)
