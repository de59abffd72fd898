"""How many pods of a rule are counted and as what, and the gauges of pods that are due and wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.builders import NOW
from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates, users, using
from tests.unit.eviction.world import BLOCKED, FAILED, FREE, World, evicting
from webhook.api.pods import PodClaim
from webhook.eviction.conditions import Progress
from webhook.eviction.progress import WaitCause, WaitingPods, progress_of
from webhook.policy.model import EvictionWindow, Pause

COUNTED = ("pending", "namespaces", "due", "blocked", "held", "skipped", "next_due")


def progress(world: World, rule_name: str = "rule") -> Progress:
    """Of a rule, by a plan of what is known now."""
    if world.is_due:
        world.catch_up()
    return asyncio.run(progress_of(world.worker._core, f"uid-{rule_name}"))


def figures(world: World) -> dict[str, object]:
    """Those that are not zero."""
    found = progress(world)
    known = {name: value for name in COUNTED if (value := getattr(found, name))}
    return {name: len(value) if isinstance(value, set) else value for name, value in known.items()}


def test_every_pod_counts_once() -> None:
    world = evicting(*using(*[f"held-{number}" for number in range(3)], hold="later"))
    for number, seconds in enumerate((90, 60, 120)):
        world.add(claim(f"early-{number}", tolerates(seconds)), pod(f"early-{number}"))
    world.add(*using(*[f"agent-{number}" for number in range(2)], make=owned, kind="DaemonSet"))
    world.add(claim("elsewhere", namespace="web"), pod("elsewhere", namespace="web"))
    world.add(claim("leaving"), pod("leaving", deleting=True), rule())
    expected = {"pending": 7, "namespaces": 2, "due": 4, "held": 3, "skipped": 2}
    assert figures(world) == {**expected, "next_due": NOW + timedelta(seconds=60)}


@pytest.mark.parametrize("count", [1, 2])
def test_pod_that_waits_for_its_budget_is_blocked(count: int) -> None:
    world = evicting()
    world.cluster.answers.extend([BLOCKED] * count)
    world.add(*using(*[f"pod-{number}" for number in range(count)]), rule())
    world.settle()
    assert figures(world) == {"pending": count, "due": count, "namespaces": 1, "blocked": count}


def reserve(world: World, *names: str) -> None:
    known = world.inventory.claims["ml/shared-claim"]
    world.edit(known, reserved_for=users(*names))


def test_pods_that_come_back_to_a_device_are_counted_by_their_claim_and_owner() -> None:
    world = evicting(claim("shared", owner="", consumers=()), rule())
    using = (PodClaim("shared-claim"),)
    for name in ("first", "second"):
        reserve(world, name)
        world.add(pod(name, claims=using))
        world.settle()
    assert world.evicted == ["first", "second"]
    reserve(world, *"abc")
    world.add(pod("a", claims=using), owned("b", claims=using), owned("c", claims=using))
    found = progress(world)
    returning = {("ml/shared-claim", ""): 1, ("ml/shared-claim", "ReplicaSet/rs"): 2}
    assert (found.pending, found.returning) == (0, returning)


def test_pods_that_stay_in_terminating_are_named() -> None:
    world = evicting(*using("b", "a"), rule(), lingering=True)
    world.advance(FREE.stuck_after_seconds + 10)
    assert sorted(progress(world).stuck) == ["ml/a", "ml/b"]


# --- gauges -------------------------------------------------------------------------------------


def paused(count: int) -> World:
    """Pods that are due, and wait for the end of a pause."""
    world = evicting()
    world.pause = Pause(NOW + timedelta(hours=1))
    for number in range(count):
        add(world, number)
    world.add(rule())
    world.catch_up()
    return world


def add(world: World, number: int) -> None:
    world.add(claim(f"pod-{number}"), pod(f"pod-{number}"))
    world.catch_up()


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
    world = evicting(overall=1, stuck_after_seconds=3600.0, windows=(window,), lingering=True)
    for number in range(2):
        add(world, number)
    world.add(rule())
    world.advance(590)
    waiting = WaitingPods(world.worker._core)
    assert (waiting.count(WaitCause.OVERALL), waiting.count(WaitCause.WINDOW)) == (1, 0)
    world.advance(20)
    assert (waiting.count(WaitCause.OVERALL), waiting.count(WaitCause.WINDOW)) == (0, 1)


def test_age_of_a_pod_that_fails_counts_from_the_end_of_its_grace() -> None:
    world = evicting(grace_seconds=100.0, answers=[FAILED] * 100)
    add(world, 0)
    world.add(rule())
    world.advance(130)
    assert WaitingPods(world.worker._core).oldest_due_seconds() == pytest.approx(30, abs=0.01)


def test_pod_that_became_due_by_a_clock_that_was_set_back_has_no_age() -> None:
    world = evicting(overall=1, lingering=True)
    for number in range(2):
        add(world, number)
    world.add(rule())
    world.settle()
    world.clock.wall -= timedelta(hours=1)
    waiting = WaitingPods(world.worker._core)
    assert (waiting.count(WaitCause.OVERALL), waiting.oldest_due_seconds()) == (1, 0.0)


def test_pod_that_failed_and_is_in_line_again_counts_for_what_it_waits_for_now() -> None:
    world = evicting(overall=1, lingering=True, answers=[FAILED])
    for number in range(2):
        add(world, number)
    world.add(rule())
    assert world.after(1) == ["pod-1"]
    waiting = WaitingPods(world.worker._core)
    assert {cause: waiting.count(cause) for cause in WaitCause if waiting.count(cause)} == {WaitCause.OVERALL: 1}
