"""The counts of pods that are due and wait, and how long they are kept."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.world import FREE, World
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult
from webhook.eviction.waiting import WaitCause, WaitingPods
from webhook.policy.model import EvictionWindow, Pause


def paused(count: int) -> World:
    """Pods that are due, and wait for the end of a pause."""
    world = World(Mode.REPLACEMENT, FREE)
    world.pause = Pause(NOW + timedelta(hours=1))
    for number in range(count):
        add(world, number)
    world.add(rule())
    return world


def add(world: World, number: int) -> None:
    world.add(claim(f"pod-{number}"), pod(f"pod-{number}"))


@pytest.mark.parametrize(
    ("seconds", "counted"),
    [(0.0, 2), (0.4, 2), (0.5, 3), (1.0, 3), (-0.1, 3)],
    ids=["at once", "within one scrape", "after it", "later", "a clock that was set back"],
)
def test_counts_are_kept_for_half_a_second(seconds: float, counted: int) -> None:
    world = paused(2)
    waiting = WaitingPods(world.worker._core)
    assert waiting.count(WaitCause.PAUSE) == 2
    add(world, 2)
    world.clock.elapsed += seconds
    assert waiting.count(WaitCause.PAUSE) == counted


def test_half_a_second_begins_again_with_each_count() -> None:
    world = paused(1)
    waiting = WaitingPods(world.worker._core)
    for number in range(1, 4):
        assert waiting.count(WaitCause.PAUSE) == number
        add(world, number)
        world.clock.elapsed += 0.4
        assert waiting.count(WaitCause.PAUSE) == number
        world.clock.elapsed += 0.1


def test_first_count_needs_no_time_to_pass() -> None:
    world = paused(3)
    world.clock.elapsed = 0.0
    assert WaitingPods(world.worker._core).count(WaitCause.PAUSE) == 3


def test_without_pods_that_are_due_the_oldest_has_no_age() -> None:
    waiting = WaitingPods(World().worker._core)
    assert waiting.oldest_due_seconds() == 0.0
    assert [waiting.count(cause) for cause in WaitCause] == [0] * len(WaitCause)


def test_pod_behind_a_limit_counts_for_its_window_once_that_has_closed() -> None:
    window = EvictionWindow(f"0 {NOW.hour} * * *", 600.0)
    world = World(Mode.REPLACEMENT, structs.replace(FREE, overall=1, stuck_after_seconds=3600.0, windows=(window,)))
    world.cluster.lingering = True
    for number in range(2):
        add(world, number)
    world.add(rule())
    world.advance(590)
    waiting = WaitingPods(world.worker._core)
    assert (waiting.count(WaitCause.OVERALL), waiting.count(WaitCause.WINDOW)) == (1, 0)
    world.advance(20)
    assert (waiting.count(WaitCause.OVERALL), waiting.count(WaitCause.WINDOW)) == (0, 1)


def test_age_of_a_pod_that_fails_counts_from_the_end_of_its_grace() -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, grace_seconds=100.0))
    world.cluster.answers.extend([EvictionOutcome(EvictionResult.FAILED, "500")] * 100)
    add(world, 0)
    world.add(rule())
    world.advance(130)
    assert WaitingPods(world.worker._core).oldest_due_seconds() == pytest.approx(30, abs=0.01)


def test_pod_that_became_due_by_a_clock_that_was_set_back_has_no_age() -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, overall=1))
    world.cluster.lingering = True
    for number in range(2):
        add(world, number)
    world.add(rule())
    world.settle()
    world.clock.wall -= timedelta(hours=1)
    waiting = WaitingPods(world.worker._core)
    assert (waiting.count(WaitCause.OVERALL), waiting.oldest_due_seconds()) == (1, 0.0)


def test_pod_that_failed_and_is_in_line_again_counts_for_what_it_waits_for_now() -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, overall=1))
    world.cluster.lingering = True
    world.cluster.answers.append(EvictionOutcome(EvictionResult.FAILED, "500"))
    for number in range(2):
        add(world, number)
    world.add(rule())
    world.advance(1)
    assert world.evicted == ["pod-1"]
    waiting = WaitingPods(world.worker._core)
    assert {cause: waiting.count(cause) for cause in WaitCause if waiting.count(cause)} == {WaitCause.OVERALL: 1}
