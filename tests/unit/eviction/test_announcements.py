"""Evictions that a rule asks for with `/evict` are announced in its condition before they begin."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.world import FREE, World, delegated
from webhook.api.rules import Condition, DeviceTaintRule
from webhook.eviction.conditions import EVICTION, Announcements, announced_at
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling

LATER = NOW + timedelta(hours=1)


def announced(world: World) -> list[str]:
    """Reasons of the condition about the eviction, in the order of writing."""
    return [reason for _, kind, reason, _ in world.cluster.writes if kind == EVICTION]


def shows(status: str, reason: str, *, generation: int = 1, uid: str = "") -> DeviceTaintRule:
    """A rule that asks for eviction, with this condition."""
    known = Condition(EVICTION, status, reason, "", generation, NOW)
    return rule(effect="NoSchedule", evict=True, conditions=(known,), uid=uid)


@pytest.mark.parametrize(
    ("status", "reason", "announces"),
    [
        *[("True", reason, True) for reason in ("Waiting", "Evicting", "Blocked", "Held", "Limited")],
        *[("False", reason, True) for reason in ("Completed", "HeldByPodGroup", "ReturnsToDevice")],
        *[("False", reason, False) for reason in ("NothingToDo", "Stopped", "ObserveOnly", "SomethingNew")],
        ("Unknown", "Waiting", False),
    ],
)
def test_conditions_that_announce_an_eviction(status: str, reason: str, announces: bool) -> None:  # noqa: FBT001 -- of a table
    known = shows(status, reason)
    expected = NOW if announces else None
    assert announced_at(known.conditions, 1) == expected
    assert Announcements(acts=True).announced_at(known) == expected
    assert Announcements(acts=False).announced_at(known) == NOW


@pytest.mark.parametrize("acts", [True, False])
def test_condition_of_another_generation_announces_nothing(*, acts: bool) -> None:
    assert Announcements(acts=acts).announced_at(shows("True", "Evicting", generation=2)) is None
    assert Announcements(acts=acts).announced_at(rule(evict=True)) is None


@pytest.mark.parametrize(
    ("between", "lasts"),
    [
        pytest.param(shows("False", "NothingToDo"), True, id="nothing to do"),
        pytest.param(structs.replace(shows("True", "Waiting"), conditions=()), True, id="removed by another writer"),
        pytest.param(shows("False", "Completed", generation=7), True, id="a late event of the watch"),
        pytest.param(shows("False", "Stopped"), False, id="stopped"),
        pytest.param(shows("False", "ObserveOnly"), False, id="another worker"),
        pytest.param(structs.replace(shows("False", "NothingToDo", generation=2), generation=2), False, id="changed"),
    ],
)
def test_announcement_lasts_while_nothing_contradicts_it(between: DeviceTaintRule, lasts: bool) -> None:  # noqa: FBT001 -- of a table
    known = Announcements(acts=True)
    known.announced_at(shows("True", "Waiting"))
    assert known.announced_at(between) == (NOW if lasts else None)
    assert known.announced_at(shows("False", "NothingToDo")) == (NOW if lasts else None)


def test_announcement_is_forgotten_with_its_rule_and_holds_for_no_other() -> None:
    known = Announcements(acts=True)
    known.announced_at(shows("True", "Waiting"))
    assert known.announced_at(shows("False", "NothingToDo", uid="other")) is None
    known.forget("uid-rule")
    assert known.announced_at(shows("False", "NothingToDo")) is None


@pytest.mark.parametrize("reason", ["ObserveOnly", "Stopped", "NothingToDo"])
def test_eviction_begins_once_a_new_condition_announces_it(reason: str) -> None:
    known = Condition(EVICTION, "False", reason, "0 pods evicted", 1, NOW - timedelta(days=30))
    world = delegated(claim("pod"), pod("pod"))
    world.clock.wall = LATER
    world.add(rule(effect="NoSchedule", evict=True, added=known.last_transition_time, conditions=(known,)))
    world.advance(1)
    assert world.cluster.writes[0][2] == "Waiting"
    assert world.inventory.rules["rule"].conditions[0].last_transition_time == LATER
    assert world.evicted == ["pod"]


def test_pod_that_comes_when_there_was_nothing_to_do_is_evicted() -> None:
    world = delegated(rule(effect="NoSchedule", evict=True))
    world.advance(60)
    assert announced(world) == ["Waiting", "NothingToDo"]
    world.add(claim("pod"), pod("pod"))
    assert world.after(1) == ["pod"]


def test_rule_that_asks_again_is_announced_again() -> None:
    """Annotations do not move the generation, and /mutate may not be installed."""
    world = World(Mode.DELEGATED, FREE)
    asks = rule(effect="NoSchedule", evict=True)
    world.add(asks)
    world.advance(60)
    for given in ({}, asks.meta.annotations):
        known = world.inventory.rules["rule"]
        meta = structs.replace(known.meta, annotations=given)
        world.edit(known, meta=meta)
        world.advance(60)
    told = [reason for _, _, reason, _ in world.cluster.writes]
    assert told[-2:] == ["Waiting", "NothingToDo"]
    assert len(told) >= 5


def test_rule_that_was_stopped_is_announced_before_it_goes_on() -> None:
    most = [0]
    world = World(Mode.DELEGATED, FREE, ceiling_of=lambda _: Ceiling(most[0], None, confirmed=False))
    world.add(claim("pod"), pod("pod"), rule(effect="NoSchedule", evict=True))
    assert world.after(30) == []
    assert world.condition("rule")[:2] == ("False", "Stopped")
    most[0] = 1
    world.cluster.condition_error = "503: the server is away"
    world.worker.replan_all()
    assert world.after(30) == []
    world.cluster.condition_error = ""
    assert world.after(12) == ["pod"]


def test_rule_that_stays_stopped_is_not_written_again() -> None:
    world = World(Mode.DELEGATED, FREE, ceiling_of=lambda _: Ceiling(0, None, confirmed=False))
    world.add(claim("pod"), pod("pod"), rule(effect="NoSchedule", evict=True))
    world.advance(300)
    assert announced(world) == ["Waiting", "Stopped"]
