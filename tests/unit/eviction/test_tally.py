"""The count of evicted pods that a ceiling uses: what resets it, and what a new leader reads back."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.world import FREE, World
from webhook.api.rules import (
    COUNTED_PODS,
    EVICTED_PODS,
    Condition,
    DeviceSelector,
    DeviceTaintRule,
    counted_pods,
)
from webhook.eviction.ceilings import CeilingGroup, Tally, rule_rejudged
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling

WIDE = rule(selector=DeviceSelector(driver=DRIVER))


def evicted(number: int) -> Condition:
    return Condition(EVICTED_PODS, "True", "PodsEvicted", str(number), 1, NOW)


def counted(number: int) -> Condition:
    return Condition(COUNTED_PODS, "True", "PodsCounted", str(number))


def follow(group: CeilingGroup, old: DeviceTaintRule, new: DeviceTaintRule) -> None:
    if rule_rejudged(old, new):
        group.restart()


def alone(tally: Tally) -> CeilingGroup:
    """A rule that has its ceiling for itself."""
    group = CeilingGroup()
    group.add("uid-rule", tally)
    return group


def evict(tally: Tally, number: int) -> None:
    for _ in range(number):
        tally.count()


def changed(**fields: Any) -> DeviceTaintRule:
    """The wide rule with another selector, or other fields of its taint."""
    selector = DeviceSelector(**{"driver": DRIVER, **fields.pop("selector", {})})
    return structs.replace(WIDE, selector=selector, taint=structs.replace(WIDE.taint, **fields))


@pytest.mark.parametrize(
    ("new", "left"),
    [
        pytest.param(changed(selector={"pool": "node-1"}), 3, id="narrower selector"),
        pytest.param(changed(effect="NoSchedule"), 3, id="lower effect"),
        pytest.param(changed(selector={"driver": None}), 0, id="wider selector"),
        pytest.param(changed(selector={"driver": "other.example.com"}), 0, id="other devices"),
        pytest.param(changed(key="example.com/other"), 0, id="another key"),
        pytest.param(changed(selector={"pool": "node-1"}, value="other"), 0, id="narrower, with another value"),
    ],
)
def test_only_an_update_that_admission_judges_resets_the_count(new: DeviceTaintRule, left: int) -> None:
    """An update after which the rule can only hit less passes admission without a look."""
    group = alone(tally := Tally(WIDE))
    evict(tally, 3)
    follow(group, WIDE, new)
    assert (group.counting, tally.counting, tally.total) == (left, left, 3)


def test_rule_that_is_narrowed_and_widened_again_counts_from_the_widening() -> None:
    group, narrow = alone(tally := Tally(WIDE)), changed(selector={"pool": "node-1"})
    evict(tally, 3)
    follow(group, WIDE, narrow)
    evict(tally, 2)
    follow(group, narrow, WIDE)
    assert (tally.counting, tally.total) == (0, 5)


def test_rule_that_is_narrowed_again_and_again_stays_under_its_ceiling() -> None:
    """F10: each narrower selector would otherwise allow the whole number of pods again."""
    world = World(Mode.REPLACEMENT, FREE, ceiling_of=lambda _: Ceiling(2, None, confirmed=False))
    world.add(claim("a", devices=("gpu-0",)), pod("a"), claim("b", devices=("gpu-1",)), pod("b"), WIDE)
    world.advance(20)
    assert len(world.evicted) == 2
    known = world.inventory.rules["rule"]
    world.change(known, structs.replace(known, selector=changed(selector={"pool": "node-0"}).selector, generation=2))
    world.add(claim("c", devices=("gpu-2",), pool="node-0"), pod("c"))
    world.advance(20)
    assert len(world.evicted) == 2
    told = "hits 3 pods, the limit is 2 and nothing was confirmed; 2 pods evicted"
    assert world.condition("rule") == ("False", "Stopped", told)


# --- over a change of leader ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "counting"),
    [
        ((), 0),
        ((evicted(7),), 7),
        ((evicted(7), counted(2)), 2),
        ((evicted(7), counted(0)), 0),
        ((evicted(7), counted(9)), 9),
        ((evicted(7), Condition(COUNTED_PODS, "True", "PodsCounted", "a few")), 7),
        ((counted(2),), 2),
    ],
)
def test_new_leader_reads_both_counts(conditions: tuple[Condition, ...], counting: int) -> None:
    tally = Tally(rule(conditions=conditions))
    assert tally.counting == counting
    tally.count()
    assert tally.counting == counting + 1


@pytest.mark.parametrize("number", [0, 1, 12345])
def test_count_can_be_read_again(number: int) -> None:
    assert counted_pods((evicted(99), counted(number))) == number
    assert counted_pods((evicted(99),)) == 99


def test_second_count_is_written_once_it_differs_and_then_kept_up_to_date() -> None:
    world = World(Mode.REPLACEMENT, FREE, ceiling_of=lambda _: Ceiling(9, confirmed=False))
    world.add(claim("a"), pod("a"), rule())
    world.advance(20)
    assert COUNTED_PODS not in [each.type for each in world.inventory.rules["rule"].conditions]
    known = world.inventory.rules["rule"]
    world.change(known, structs.replace(known, taint=structs.replace(known.taint, key="example.com/new")))
    world.advance(20)
    assert world.condition("rule", COUNTED_PODS) == ("True", "PodsCounted", "0")
    assert world.condition("rule", EVICTED_PODS)[2] == "1"
    world.add(claim("b"), pod("b"))
    world.advance(20)
    assert world.condition("rule", COUNTED_PODS) == ("True", "PodsCounted", "1")
    assert world.condition("rule", EVICTED_PODS)[2] == "2"


def test_change_that_no_leader_saw_does_not_reset_the_count() -> None:
    """It may have been a narrower selector."""
    tally = Tally(rule(conditions=(evicted(7), counted(2)), generation=5))
    assert tally.counting == 2
