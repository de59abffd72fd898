"""Annotation `/not-before` on a rule: no pod is evicted for it before that time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, pod, rule, tolerates
from tests.unit.eviction.world import FREE, World
from webhook.api.meta import format_time
from webhook.api.rules import NOT_BEFORE, DeviceTaintRule
from webhook.eviction.modes import InTree, Mode


def starting(seconds: float | None, effect: str = "NoSchedule", text: str = "") -> DeviceTaintRule:
    """A rule that asks for eviction from some seconds after noon on."""
    given = {} if seconds is None else {NOT_BEFORE: format_time(NOW + timedelta(seconds=seconds))}
    return rule(effect=effect, evict=effect == "NoSchedule", annotations={NOT_BEFORE: text} if text else given)


def going(*tolerated: int, mode: Mode = Mode.DELEGATED, in_tree: InTree = InTree.ACTIVE) -> World:
    world = World(mode, FREE, in_tree=in_tree)
    for seconds in tolerated:
        name = f"pod-{seconds}"
        world.add(claim(name, tolerates(seconds), devices=(name,)), pod(name))
    return world


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(600, {"pod-0": 600, "pod-900": 900}, id="later than some are due"),
        pytest.param(3600, {"pod-0": 3600, "pod-900": 3600}, id="later than all"),
        pytest.param(-600, {"pod-0": 0, "pod-900": 900}, id="past"),
        pytest.param(None, {"pod-0": 0, "pod-900": 900}, id="without it"),
    ],
)
def test_no_pod_goes_before_that_time_nor_before_it_is_due(seconds: float | None, expected: dict[str, int]) -> None:
    world = going(0, 900)
    world.add(starting(seconds))
    world.advance(4000)
    assert world.went_at == expected


def test_announcement_counts_if_it_is_later() -> None:
    world = going(0)
    world.leads = False
    world.add(starting(60))
    assert world.after(100) == []
    world.leads = True
    world.advance(2)
    assert [round(seconds) for seconds in world.went_at.values()] == [pytest.approx(101, abs=2)]


def test_condition_says_when_the_first_pod_is_due() -> None:
    world = going(0)
    world.add(starting(3600))
    world.advance(60)
    status, reason, message = world.condition("rule")
    assert (status, reason) == ("True", "Waiting")
    assert "next due 2026-06-01T13:00:00Z" in message


def test_time_can_be_changed_while_pods_wait() -> None:
    world = going(0)
    first = starting(3600)
    world.add(first)
    world.advance(60)
    later = structs.replace(world.inventory.rules["rule"], meta=starting(7200).meta)
    world.change(world.inventory.rules["rule"], later)
    assert world.after(3600) == []
    sooner = structs.replace(world.inventory.rules["rule"], meta=starting(3700).meta)
    world.change(world.inventory.rules["rule"], sooner)
    world.advance(60)
    assert world.went_at == {"pod-0": 3700}


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_text_that_is_no_time_stops_the_rule_and_says_so(effect: str) -> None:
    world = going(0, mode=Mode.REPLACEMENT, in_tree=InTree.ABSENT)
    world.add(starting(None, effect, text="tomorrow"))
    assert world.after(4000) == []
    status, reason, message = world.condition("rule")
    assert (status, reason) == ("False", "Stopped")
    assert message.startswith(
        'devicetaint.io/not-before is no time like "2026-01-31T12:00:00Z", so no pod is evicted for this rule; '
    )
    mended = structs.replace(world.inventory.rules["rule"], meta=starting(None, effect).meta)
    world.change(world.inventory.rules["rule"], mended)
    assert world.after(60) == ["pod-0"]


def test_replacement_keeps_to_it_for_every_rule() -> None:
    world = going(0, mode=Mode.REPLACEMENT, in_tree=InTree.ABSENT)
    world.add(starting(600, "NoExecute"))
    world.advance(4000)
    assert world.went_at == {"pod-0": 600}


@pytest.mark.parametrize("text", ["", "tomorrow"])
def test_what_the_in_tree_controller_does_is_observed_without_it(text: str) -> None:
    """It does not read the annotation."""
    world = going(0, mode=Mode.OBSERVE)
    world.add(starting(600, "NoExecute", text))
    world.settle()
    assert world.planned == {"pod-0": 0.0}
    assert world.condition("rule")[1] == "ObserveOnly"
