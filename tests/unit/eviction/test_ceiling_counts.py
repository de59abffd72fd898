"""The count of evicted pods that a ceiling uses: what resets it, who takes it over, what a new leader reads back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import claim, pod, rule, using
from tests.unit.eviction.patched import counted
from tests.unit.eviction.slow import UNSURE
from tests.unit.eviction.world import EVICTED, FakeCluster, World, evicting
from webhook.api.rules import COUNTED_PODS, EVICTED_PODS, Condition, DeviceSelector, DeviceTaintRule
from webhook.eviction.ceilings import CeilingGroup, Tally, rule_rejudged
from webhook.eviction.ports import Ceiling, EvictionOutcome, PodRef

WIDE = rule(selector=DeviceSelector(driver=DRIVER))


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
    world = evicting(ceiling_of=lambda _: Ceiling(2, None, confirmed=False))
    world.add(claim("a", devices=("gpu-0",)), pod("a"), claim("b", devices=("gpu-1",)), pod("b"), WIDE)
    assert len(world.after(20)) == 2
    world.edit(world.rule(), selector=changed(selector={"pool": "node-0"}).selector, generation=2)
    world.add(claim("c", devices=("gpu-2",), pool="node-0"), pod("c"))
    assert len(world.after(20)) == 2
    told = "hits 3 pods, the limit is 2 and nothing was confirmed; 2 pods evicted"
    assert world.condition("rule") == ("False", "Stopped", told)


# --- several rules --------------------------------------------------------------------------------


def before(number: int) -> Tally:
    """Of a rule for which pods were evicted by an earlier leader."""
    return Tally(rule(conditions=(counted(number),)))


def group_of(**numbers: int) -> CeilingGroup:
    group = CeilingGroup()
    for name, number in numbers.items():
        group.add(name, before(number))
    return group


def counting_of(group: CeilingGroup) -> list[int]:
    return [each.counting for each in group.tallies.values()]


def test_counts_are_added_up_and_stay_when_a_rule_is_gone() -> None:
    group = group_of(a=3, b=2, c=0)
    assert group.counting == 5
    assert group.remove("a") == "c"
    assert (group.counting, counting_of(group)) == (5, [2, 3])
    group.add("none", before(0))
    assert group.remove("none") == "", "there is nothing to take over"
    assert group.remove("b") == "c"
    assert group.remove("c") == ""
    assert (group.counting, group.tallies) == (5, {})
    group.add("d", new := before(1))
    group.add("e", before(0))
    assert (group.counting, new.counting, new.total) == (6, 6, 1)
    assert group.remove("d") == "e"
    assert group.remove("e") == ""
    group.restart()
    assert group.counting == 0


# --- over a change of leader ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "counting"),
    [
        ((), 0),
        ((counted(7),), 7),
        ((counted(7), counted(2, COUNTED_PODS)), 2),
        ((counted(7), counted(0, COUNTED_PODS)), 0),
        ((counted(7), counted(9, COUNTED_PODS)), 9),
        ((counted(7), Condition(COUNTED_PODS, "True", "PodsCounted", "a few")), 7),
        ((counted(2, COUNTED_PODS),), 2),
    ],
)
def test_new_leader_reads_both_counts(conditions: tuple[Condition, ...], counting: int) -> None:
    tally = Tally(rule(conditions=conditions))
    assert tally.counting == counting
    tally.count()
    assert tally.counting == counting + 1


def test_second_count_is_written_once_it_differs_and_then_kept_up_to_date() -> None:
    world = evicting(claim("a"), pod("a"), rule(), ceiling_of=lambda _: Ceiling(9, confirmed=False))
    world.advance(20)
    assert COUNTED_PODS not in [each.type for each in world.inventory.rules["rule"].conditions]
    known = world.inventory.rules["rule"]
    world.edit(known, taint=structs.replace(known.taint, key="example.com/new"))
    world.advance(20)
    assert world.condition("rule", COUNTED_PODS) == ("True", "PodsCounted", "0")
    assert world.condition("rule", EVICTED_PODS)[2] == "1"
    world.add(claim("b"), pod("b"))
    world.advance(20)
    assert world.condition("rule", COUNTED_PODS) == ("True", "PodsCounted", "1")
    assert world.condition("rule", EVICTED_PODS)[2] == "2"


class Untrue(FakeCluster):
    """Says that it evicts pods, and does not."""

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:  # noqa: ARG002
        self.requests.append(("evict", str(pod), self.world.clock.passed()))
        return EVICTED


def test_pod_that_stands_undeleted_counts_once_however_often_it_is_evicted() -> None:
    world = evicting(ceiling_of=lambda _: Ceiling(2), cluster=Untrue)
    world.add(claim("a"), pod("a"), claim("b"), pod("b"), rule())
    world.advance(400)
    assert len(world.cluster.requests) > 4
    assert world.condition("rule")[2] == "2 pods evicted"


class Unanswered(Untrue):
    """Says once that it evicts a pod, and does not; the next request works, and gets no answer."""

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
        if pod.name != "a":
            return self._remove("evict", pod)
        said = await super().evict(pod, grace_period_seconds)
        return said if len(self.requests) == 1 else UNSURE


def test_pod_that_stands_undeleted_counts_once_although_its_second_eviction_gets_no_answer() -> None:
    world = evicting(ceiling_of=lambda _: Ceiling(2), cluster=Unanswered)
    world.add(claim("a"), pod("a"), claim("b"), pod("b", hold="checkpoint"), rule())
    world.advance(61)
    world.edit(world.pod("a"), deleting=True)
    world.remove(world.pod("a"))
    world.advance(5)
    world.edit(world.pod("b"), hold=None)
    assert world.after(60) == ["b"]
    assert world.condition("rule")[2] == "2 pods evicted"


def test_new_leader_does_not_count_what_was_evicted_before_the_rule_was_judged_anew() -> None:
    """M8: a rule that moved to another node may evict 45 pods there, also under a new leader."""

    def world_with(*names: str) -> World:
        world = evicting(ceiling_of=lambda _: Ceiling(50, None, confirmed=False))
        for name in names:
            world.add(*using(*[f"{name}-{number}" for number in range(45)], on="{}", pool=name))
        return world

    first = world_with("node-1", "node-2")
    first.add(rule(selector=DeviceSelector(driver=DRIVER, pool="node-1")))
    first.advance(60)
    known = first.inventory.rules["rule"]
    later = structs.replace(known.taint, time_added=NOW + timedelta(days=1))
    moved = structs.replace(
        known, selector=DeviceSelector(driver=DRIVER, pool="node-2"), taint=later, generation=known.generation + 1
    )
    first.change(known, moved)
    first.advance(60)
    assert first.condition("rule")[1] == "Waiting"
    second = world_with("node-2")
    second.add(first.inventory.rules["rule"])
    second.advance(60)
    assert second.condition("rule")[1] == "Waiting"
