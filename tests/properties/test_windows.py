"""Laws of windows where clocks change: of the windows themselves, and of the worker that keeps to them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.properties.minutes import CHANGES, MINUTE, WINDOWS, open_minutes
from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.world import FREE, Clock, FakeCluster, World
from webhook.api.claims import Consumer
from webhook.api.pods import PodClaim
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult
from webhook.policy.model import EvictionWindow, LabelMatch
from webhook.policy.windows import OpeningHours

if TYPE_CHECKING:
    import random
    from datetime import datetime

    from webhook.eviction.ports import PodRef

DAY = timedelta(days=1)


@given(st.lists(WINDOWS, min_size=1, max_size=3), st.sampled_from(CHANGES), st.integers(-400, 400), st.data())
def test_windows_agree_with_a_walk_from_minute_to_minute(
    windows: list[EvictionWindow], change: datetime, offset: int, data: st.DataObject
) -> None:
    now = change + offset * MINUTE
    open_at = open_minutes(windows, now - 3 * DAY, 6 * 1440)
    hours = OpeningHours(windows)
    for _ in range(4):
        moment = now + timedelta(seconds=data.draw(st.integers(0, 59)))
        state = hours.at(moment)
        assert state.open == (now in open_at)
        until = moment + DAY if state.until is None else state.until
        step = now
        while step < min(until, now + DAY):
            assert (step in open_at) == state.open
            step += MINUTE
        if not state.open and until < now + DAY:
            assert until in open_at, "it is closed for as long as it says, and no longer"
        if state.open:
            assert state.since is not None
            assert state.since <= moment
            assert state.since in open_at or state.since < now - DAY, "the walk does not go back for ever"
        now += data.draw(st.integers(-300, 300)) * MINUTE


# --- the worker ---------------------------------------------------------------------------------

PROFILES = 3
ROOMY = st.lists(WINDOWS, max_size=2).map(tuple)
FAILED = EvictionOutcome(EvictionResult.FAILED, "500")


class Guard(FakeCluster):
    """Notes who was asked to leave, and at which minute."""

    asked: list[tuple[str, datetime]]

    def _remove(self, verb: str, ref: PodRef) -> EvictionOutcome:
        wall = self.world.clock.wall
        self.asked = [*getattr(self, "asked", []), (ref.name, wall.replace(second=0, microsecond=0))]
        return super()._remove(verb, ref)


class History:
    """A worker in the days around a change of clocks, and what it should do by the walk."""

    def __init__(self, windows: list[tuple[EvictionWindow, ...]], change: datetime, chance: random.Random) -> None:
        self.chance = chance
        clock = Clock()
        clock.wall = change - DAY
        profiles = [
            structs.replace(FREE, pod_labels=LabelMatch((("profile", str(number)),)), windows=own)
            for number, own in enumerate(windows)
        ]
        self.world = World(Mode.REPLACEMENT, *profiles, FREE, clock=clock, cluster=Guard, condition_seconds=3600.0)
        first = change - 3 * DAY
        self.open = [open_minutes(own, first, 8 * 1440) if own else None for own in windows]
        self.members: dict[str, tuple[int, ...]] = {}
        """The profiles of all pods that each pod goes together with."""
        self.started = clock.wall
        self.world.add(rule(added=clock.wall))

    def may_go(self, name: str, minute: datetime) -> bool:
        opened = [self.open[number] for number in self.members[name]]
        return all(minutes is None or minute in minutes for minutes in opened)

    def add(self, number: int) -> None:
        """A pod, or two that share a claim."""
        names = [f"pod-{number}-{part}" for part in "ab"[: self.chance.choice([1, 1, 2])]]
        profiles = tuple(self.chance.randrange(PROFILES) for _ in names)
        consumers = tuple(Consumer("", "pods", name, f"uid-{name}") for name in names)
        self.world.add(claim(f"of-{number}", devices=(f"gpu-{number}",), consumers=consumers, owner=""))
        self.members |= dict.fromkeys(names, profiles)
        for name, profile in zip(names, profiles, strict=True):
            labels = (("profile", str(profile)),)
            self.world.add(pod(name, claims=(PodClaim(f"of-{number}-claim"),), labels=labels))

    def happen(self, number: int) -> None:
        """One thing of many happens."""
        world, chance = self.world, self.chance
        what = chance.choice(["pod", "pod", "failure", "clock", "policy"])
        if what == "pod":
            self.add(number)
        elif what == "failure":
            world.cluster.answers.append(FAILED)
        elif what == "clock":
            self.set_clock(chance.choice([-7200, -60, 60, 3600]))
        else:
            world.worker.replan_all()
        world.advance(chance.choice([1, 30, 60, 601, 3599, 3 * 3600]))

    def set_clock(self, seconds: float) -> None:
        world = self.world
        if world.clock.wall + timedelta(seconds=seconds) > self.started:
            world.clock.wall += timedelta(seconds=seconds)
            world.worker.requeue_waiting()

    @property
    def left(self) -> set[str]:
        """Pods that may go now and are still there."""
        now = self.world.clock.wall.replace(second=0, microsecond=0)
        return {name for name in self.members if f"ml/{name}" in self.world.inventory.pods and self.may_go(name, now)}


@given(
    st.lists(ROOMY, min_size=PROFILES, max_size=PROFILES),
    st.sampled_from(CHANGES),
    st.randoms(use_true_random=False),
)
def test_no_pod_leaves_outside_a_window_and_plans_last_until_the_next_one(
    windows: list[tuple[EvictionWindow, ...]], change: datetime, chance: random.Random
) -> None:
    """Whatever is created, fails or is set meanwhile: pods leave in windows of all that go with them, and then do."""
    history = History(windows, change, chance)
    world = history.world
    for number in range(12):
        history.happen(number)
    world.cluster.answers.clear()
    while world.clock.wall < change + DAY:
        world.advance(chance.choice([600, 3600, 4 * 3600]))
        world.advance(30)  # after the last failure, it is tried again within seconds
        assert history.left == set(), "a window is open, and nothing else keeps them"
        assert world.planned.keys() == {name for name in history.members if f"ml/{name}" in world.inventory.pods}
    cluster = world.cluster
    assert isinstance(cluster, Guard)
    outside = [each for each in getattr(cluster, "asked", []) if not history.may_go(*each)]
    assert outside == []
    assert len(world.evicted) == len(set(world.evicted))
    for name, profiles in history.members.items():
        if name in world.evicted and len(profiles) > 1:
            assert {f"{name[:-1]}{part}" for part in "ab"} <= set(world.evicted), "no unit is split"
