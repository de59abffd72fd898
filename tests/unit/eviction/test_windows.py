"""Windows of profiles, waitForCompletion and action: skip: who is left alone, and until when. It is Monday noon."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, crowd, owned, pod, rule, tolerates, users
from tests.unit.eviction.world import FAILED, FREE, Budget, World, evicting
from webhook.api.pods import PodClaim
from webhook.eviction import progress
from webhook.eviction.modes import Mode
from webhook.eviction.pod_plan import StepReason
from webhook.policy.model import EvictionProfile, EvictionWindow, LabelMatch

HOUR = 3600.0
DAY = 24 * HOUR
BERLIN = "Europe/Berlin"
NIGHTLY = EvictionWindow("0 22 * * *", HOUR, BERLIN)
"""From 20:00 to 21:00 UTC, so eight hours from now."""
AT_NIGHT = structs.replace(FREE, windows=(NIGHTLY,))
OPENS = 8 * HOUR
RARELY = 600.0
"""How often conditions are written, in tests over days that are not about them."""


# --- what a pod waits for ------------------------------------------------------------------------


def wait(profile: EvictionProfile, hours: float, **fields: Any) -> tuple[float, StepReason] | None:
    """How many seconds a pod waits after some hours that is due now, and for what; None if it may go."""
    world = evicting(claim(), pod(**fields), rule(), base=profile)
    world.clock.wall += timedelta(hours=hours)
    world.catch_up()
    found = world.worker._core.plan.waits.get("uid-pod")
    if found is None or found.until is None:
        assert "uid-pod" in world.worker._core.line
        return None
    return (found.until - world.clock.wall).total_seconds(), found.reason


def test_pod_that_completes_is_left_to_it_from_when_it_is_due() -> None:
    patient = structs.replace(AT_NIGHT, wait_for_completion_seconds=DAY, grace_seconds=HOUR)
    assert wait(patient, 2, completes=True) == (23 * HOUR, StepReason.COMPLETING)
    assert wait(patient, 24.75, completes=True) == (900.0, StepReason.COMPLETING)
    assert wait(patient, 25, completes=True) == (7 * HOUR, StepReason.WINDOW)
    assert wait(patient, 32, completes=True) is None
    assert wait(patient, 8, completes=False) is None


# --- windows ------------------------------------------------------------------------------------


def test_pods_go_while_a_window_is_open_and_the_others_in_the_next_one() -> None:
    """Nothing is asked of the API server meanwhile."""
    short = structs.replace(AT_NIGHT, windows=(structs.replace(NIGHTLY, duration_seconds=60.0),), rate=1, burst=1)
    world = evicting(*crowd(100), rule(), base=short, condition_seconds=RARELY)
    assert world.after(OPENS - 1) == []
    assert len(world.planned) == 100
    world.advance(DAY)
    assert world.times == pytest.approx([OPENS + number for number in range(60)], abs=0.01)
    assert len(world.planned) == 40
    world.advance(DAY)
    assert world.times[60:] == pytest.approx([OPENS + DAY + number for number in range(40)], abs=0.01)
    assert len(world.cluster.requests) == 100


@pytest.mark.parametrize(
    ("seconds", "profile", "at"),
    [
        pytest.param(OPENS + HOUR / 2, AT_NIGHT, OPENS + HOUR / 2, id="before an open window"),
        pytest.param(600, structs.replace(FREE, wait_for_completion_seconds=HOUR), 600 + HOUR, id="before completion"),
    ],
)
def test_tolerated_time_comes_first(seconds: float, profile: EvictionProfile, at: float) -> None:
    world = World(Mode.REPLACEMENT, profile, condition_seconds=RARELY)
    world.add(claim("pod", tolerates(int(seconds))), pod(completes=True), rule())
    world.advance(DAY)
    assert world.times == pytest.approx([at], abs=0.01)


@pytest.mark.untraced
def test_condition_names_the_next_opening_and_metrics_count_who_waits() -> None:
    world = evicting(*crowd(3), rule(), base=AT_NIGHT)
    world.advance(60)
    status, reason, message = world.condition("rule")
    assert (status, reason) == ("True", "Waiting")
    assert "3 pods pending in 1 namespace; 3 waiting for a window that opens at " in message
    assert "opens at 2026-06-01T22:00:00+02:00 (Europe/Berlin)" in message
    assert world.sample("pods_waiting", why="window") == 3
    assert world.sample("pods_waiting", why="held") == 0
    assert world.sample("oldest_due_seconds") == 0
    assert set(world.told("EvictionScheduled")) == {"rule", "pod-000", "pod-001", "pod-002"}
    texts = {event.text for event in world.cluster.events if event.text.startswith("to be evicted")}
    [text] = texts
    assert "to be evicted in the window that opens at 2026-06-01T22:00:00+02:00 (Europe/Berlin) because of" in text
    assert len(world.after(OPENS)) == 3
    assert world.condition("rule")[1] == "Completed"
    assert world.sample("pods_waiting", why="window") == 0


@pytest.mark.untraced
def test_age_of_the_oldest_counts_from_when_the_window_opened() -> None:
    world = evicting(*crowd(3), rule(), base=AT_NIGHT, overall=1, lingering=True)
    assert len(world.after(OPENS + 100)) == 1
    assert world.sample("oldest_due_seconds") == pytest.approx(100, abs=0.01)
    world.change_policy(structs.replace(FREE, overall=1))
    world.advance(1)  # a scrape's numbers are kept for a moment
    assert world.sample("oldest_due_seconds") == pytest.approx(OPENS + 101, abs=0.01)


@pytest.mark.untraced
def test_age_of_a_pod_that_fails_counts_from_when_the_window_opened() -> None:
    world = evicting(*crowd(1), rule(), base=AT_NIGHT, answers=[FAILED] * 1000)
    world.advance(OPENS + 100)
    assert 90 < (world.sample("oldest_due_seconds") or 0) <= 100
    world.advance(HOUR)
    assert world.sample("oldest_due_seconds") == 0
    assert world.sample("pods_waiting", why="failed") == 0
    assert world.sample("pods_waiting", why="window") == 1


@pytest.mark.untraced
def test_pod_behind_a_budget_waits_for_the_next_window_once_it_is_closed() -> None:
    world = evicting(*crowd(2), base=AT_NIGHT, condition_seconds=RARELY, budgets=[Budget(allows_at=OPENS + HOUR + 60)])
    world.add(rule())
    assert world.after(OPENS + 2 * HOUR) == []
    assert world.cluster.requests[-1][2] < OPENS + HOUR
    assert world.sample("pods_waiting", why="window") == 2
    world.advance(DAY)
    assert world.cluster.requests[-1][2] >= OPENS + DAY
    assert world.evicted != []


def test_deadline_of_a_budget_does_not_go_on_while_windows_are_closed() -> None:
    """In the next window the budget is asked again before anything is deleted."""
    short = structs.replace(NIGHTLY, duration_seconds=300.0)
    world = World(
        Mode.REPLACEMENT,
        structs.replace(AT_NIGHT, windows=(short,), deadline_seconds=200, delete_after_deadline=True),
        condition_seconds=RARELY,
    )
    world.add(*crowd(1))
    world.add_budget(Budget(allows_at=OPENS + DAY))
    world.add(rule())
    world.advance(OPENS + 150)
    world.change_policy(
        structs.replace(AT_NIGHT, windows=(structs.replace(short, duration_seconds=180.0),), delete_after_deadline=True)
    )
    world.advance(DAY)
    assert [verb for verb, _, _ in world.cluster.calls] == ["evict"]


def test_no_one_waits_for_windows_in_mode_observe() -> None:
    world = evicting(*crowd(2), rule(), mode=Mode.OBSERVE, base=AT_NIGHT)
    world.advance(60)
    assert world.condition("rule")[1] == "ObserveOnly"
    assert world.sample("pods_waiting", why="window") == 0


# --- windows of pods that go together -----------------------------------------------------------


def shared(world: World, *names: tuple[str, str]) -> None:
    """Pods that use one claim; each with the value of its label."""
    world.add(claim("both", consumers=users(*[name for name, _ in names]), owner=""))
    for name, value in names:
        world.add(owned(name, claims=(PodClaim("both-claim"),), labels=(("window", value),)))


def windowed(value: str, *windows: EvictionWindow) -> EvictionProfile:
    return structs.replace(FREE, pod_labels=LabelMatch((("window", value),)), windows=windows)


def test_unit_that_is_planned_anew_while_it_is_counted_has_its_new_window(monkeypatch: pytest.MonkeyPatch) -> None:
    late, early = (EvictionWindow(f"0 {hour} * * *", HOUR) for hour in (15, 14))
    world = World(Mode.REPLACEMENT, windowed("late", late), structs.replace(FREE, windows=(early,)))
    for name in "abc":
        world.add(claim(name), pod(name, gang="train", labels=(("window", "late"),) if name == "c" else ()))
    world.add(rule())
    world.catch_up()

    class Interrupted:
        """Before the second pod."""

        before = iter(["", "c"])

        async def pause(self) -> None:
            if name := next(self.before, ""):
                world.remove(world.pod(name))
                world.catch_up()

    monkeypatch.setattr(progress, "TimeSlice", lambda clock: Interrupted())  # noqa: ARG005 -- as it is called
    counted = asyncio.run(progress.progress_of(world.worker._core, "uid-rule"))
    with_c, without = (f"2026-06-01T{hour}:00:00+00:00 (UTC)" for hour in (15, 14))
    assert counted.closed.keys() == {with_c, without}
    assert counted.closed[with_c] == 1


def test_unit_whose_windows_never_overlap_never_goes() -> None:
    world = World(
        Mode.REPLACEMENT,
        windowed("early", EvictionWindow("0 14 * * *", HOUR)),
        windowed("late", EvictionWindow("0 15 * * *", HOUR)),
        FREE,
        condition_seconds=RARELY,
    )
    shared(world, ("a", "early"), ("b", "late"))
    world.add(rule())
    for _ in range(26):
        world.advance(HOUR)
        assert "2 waiting for a window that opens at 2026-06-0" in world.condition("rule")[2]
    assert world.evicted == []


# --- pods that complete, and pods that are skipped ----------------------------------------------


@pytest.mark.untraced
def test_pods_that_complete_in_time_are_not_evicted() -> None:
    world = evicting(wait_for_completion_seconds=DAY)
    world.add(*crowd(3, completes=True), claim("server", devices=("server",)), pod("server"), rule())
    assert world.after(60) == ["server"]
    assert world.condition("rule")[:2] == ("True", "Waiting")
    assert "3 left to complete" in world.condition("rule")[2]
    assert world.sample("pods_waiting", why="completion") == 3
    texts = {event.text for event in world.cluster.events if "unless" in event.text}
    [text] = texts
    assert text.startswith("to be evicted unless it completes before 2026-06-02T12:00:00Z because of")
    world.edit(world.pod("pod-000"), phase="Succeeded")
    assert sorted(world.after(DAY)) == ["pod-001", "pod-002", "server"]
    assert world.times[1:] == pytest.approx([DAY, DAY], abs=0.01)
