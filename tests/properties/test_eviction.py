"""Laws of the line, the rates, and the worker as a whole, for whatever comes in whatever order."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, taint
from tests.unit.eviction.world import FREE, World
from webhook.eviction import controller, planner
from webhook.eviction.ledger import MINUTE_SECONDS
from webhook.eviction.line import Line
from webhook.eviction.modes import Mode
from webhook.eviction.pod_plan import Going, StepReason, Unit, Wait
from webhook.eviction.ports import EvictionOutcome, EvictionResult, OwnerLimit, RateLimit
from webhook.eviction.profiles import Profile
from webhook.flowcontrol.rates import Rate, TokenBucket
from webhook.inventory.evictions import Eviction
from webhook.policy.model import EvictionProfile

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Iterator

    from webhook.eviction.ports import Limit
    from webhook.eviction.room import Room
    from webhook.inventory.state import InventoryObject


class Doors:
    """Room of a test: rates that are shut, and owners that so many pods may leave."""

    def __init__(self, room: dict[str, int]) -> None:
        self.room = room
        self.shut: set[str] = set()
        self.freed: set[tuple[str, str]] = set()

    def timed(self, unit: Unit) -> tuple[Limit, ...]:
        return (RateLimit(((unit.members[0].gang, Rate(1.0, 1)),)),)

    def closed_by(self, limit: Limit) -> Wait | None:
        if isinstance(limit, RateLimit):
            closed = limit.buckets[0][0] in self.shut
        else:
            assert isinstance(limit, OwnerLimit)
            closed = not self.room[limit.owner]
        return Wait(StepReason.LIMITED, limit=limit) if closed else None

    def closed(self, unit: Unit) -> Wait | None:
        waits = map(self.closed_by, (*self.timed(unit), OwnerLimit(unit.key, 0)))
        return next((wait for wait in waits if wait is not None), None)

    def admit(self, unit: Unit) -> None:
        self.room[unit.key] -= 1


def alone(number: int, owner: str, priority: int, refusals: int, seconds: int, rate: str) -> Unit:
    """A pod that goes by itself."""
    name, due = f"{owner}-{number}", NOW + timedelta(seconds=seconds)
    going = Going(f"ml/{name}", pod(name), Eviction(due, ()), Profile(0, FREE), due, rate)
    return Unit((going,), owner, due, (False, priority, refusals, due, name))


def next_of(line: Line) -> Unit | None:
    unit, more = line.take()
    assert not more
    return unit


def filled(line: Line, units: Iterable[Unit]) -> Line:
    """Another line, in one piece."""
    made = list[Line]()

    def fill() -> Iterator[None]:
        made.append((yield from line.filled(units)))

    for _ in fill():
        pass
    return made[0]


PEOPLE = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-2, 2), st.integers(0, 1), st.integers(0, 3), st.sampled_from("xy")),
    max_size=20,
)


@given(PEOPLE, st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)), st.randoms(use_true_random=False))
def test_line_lets_go_whoever_a_plain_sort_would(
    people: list[tuple[str, int, int, int, str]], room: dict[str, int], chance: random.Random
) -> None:
    """An oracle of a few lines: of all who wait, the first in order whose owner and rate have room."""
    doors = Doors({owner: room.get(owner, 0) for owner in "abc"})
    units = [alone(number, *each) for number, each in enumerate(people)]
    waiting = {unit.order: unit for unit in units}
    line = filled(Line(cast("Room", doors)), units)
    while waiting:
        free = [unit for unit in waiting.values() if doors.closed(unit) is None]
        expected = min(free, key=lambda unit: unit.order) if free else None
        assert next_of(line) is expected
        assert len(line) == len(waiting) - (expected is not None)
        if expected is not None:
            del waiting[expected.order]
        what = chance.random()
        if what < 0.1:
            doors.shut ^= {chance.choice("xy")}
        elif what < 0.2:  # another plan, in which some do not go any more
            waiting = {order: unit for order, unit in waiting.items() if chance.random() < 0.8}
            line = filled(line, chance.sample(list(waiting.values()), len(waiting)))
        elif what < 0.3 and waiting:
            line.retry(chance.choice(list(waiting.values())).members[0].uid)
        elif expected is None:
            owner = chance.choice("abc")
            doors.room[owner] += 1
            doors.freed.add(("owner", owner))
    assert next_of(line) is None
    assert len(line) == 0


@given(st.floats(0.1, 1000), st.integers(1, 50), st.lists(st.floats(0, 5), min_size=1, max_size=60))
def test_bucket_never_gives_more_than_its_burst_and_its_rate(rate: float, burst: int, pauses: list[float]) -> None:
    bucket, now, taken = TokenBucket(Rate(rate, burst), 0.0), 0.0, list[float]()
    for pause in pauses:
        now += pause
        while bucket.wait_seconds(now) == 0:
            bucket.take(now)
            taken.append(now)
            assert len(taken) < 1_000_000
            if len(taken) > 2000:
                return
    for start in range(len(taken)):
        for end in range(start, min(start + 100, len(taken))):
            assert end - start + 1 <= burst + (taken[end] - taken[start]) * rate + 1e-3


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.floats(0, 40), st.booleans()), max_size=15),
    st.sampled_from([0.0, 0.5, 5.0]),
)
def test_no_minute_has_more_than_its_limit(limit: int, asked: list[tuple[float, bool]], lasts: float) -> None:
    """Also if requests take a while, and some fail."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, max_per_minute=limit))
    world.cluster.request_seconds = lasts
    world.cluster.answers.extend(
        [EvictionOutcome(EvictionResult.EVICTED if good else EvictionResult.FAILED) for _, good in asked]
    )
    world.add(rule())
    for number, (pause, _) in enumerate(asked):
        world.add(claim(f"pod-{number}"), pod(f"pod-{number}"))
        world.advance(pause)
    world.advance(MINUTE_SECONDS * (len(asked) + 1))
    times = [at for _, _, at in world.cluster.calls]
    assert len(times) == len(asked)
    for first, later in zip(times, times[limit:], strict=False):
        assert later - first >= MINUTE_SECONDS - 1e-3


PROFILES = st.builds(
    EvictionProfile,
    rate=st.sampled_from([1.0, 50.0, 10_000.0]),
    burst=st.sampled_from([1, 10, 1000]),
    max_per_minute=st.none() | st.integers(1, 8),
    per_namespace=st.none() | st.integers(1, 3),
    per_owner_unavailable=st.none() | st.integers(1, 2),
    overall=st.none() | st.integers(1, 4),
)
ANSWERS = st.lists(
    st.sampled_from(
        [
            EvictionOutcome(EvictionResult.EVICTED),
            EvictionOutcome(EvictionResult.FAILED, "500"),
            EvictionOutcome(EvictionResult.BLOCKED, "budget", 2.0),
        ]
    ),
    max_size=30,
)


@given(PROFILES, ANSWERS, st.integers(1, 12), st.integers(0, 5))
def test_nobody_is_forgotten_and_nobody_evicted_twice(
    profile: EvictionProfile, answers: list[EvictionOutcome], pods: int, tolerating: int
) -> None:
    world = World(Mode.DELEGATED, profile)
    world.cluster.answers.extend(answers)
    names = [f"pod-{number}" for number in range(pods)]
    for number, name in enumerate(names):
        world.add(claim(name), owned(name, by=f"rs-{number % 3}", priority=number % 2))
    for number in range(tolerating):
        world.add(claim(f"free-{number}", devices=()), owned(f"free-{number}"))
    world.add(rule(effect="NoSchedule", evict=True))
    world.advance(900)
    assert sorted(world.evicted) == sorted(names)
    assert world.condition("rule")[:2] == ("False", "Completed")
    assert world.condition("rule")[2].startswith(f"{pods} pod")
    core = world.worker._core
    assert (len(core.line), len(core.room.everywhere), core.ledger.taken, core.ledger.failures) == (0, 0, {}, {})


def said_of(world: World) -> tuple[object, ...]:
    """What the plan says of each pod, and who is in line by it."""
    core = world.worker._core
    return core.plan.going.keys(), core.plan.waits, {uid for uid, _ in core.line.pods()}


@given(st.data())
def test_any_history_plans_what_its_end_plans(data: st.DataObject) -> None:
    """Objects come, change and go at random, and are decided about sooner or later; who begins at the end plans it."""
    variants: dict[str, list[Any]] = {
        "slice": [
            slice_of({"gpu-0": (), "gpu-1": ()}),
            slice_of({"gpu-0": (taint(),)}),
            slice_of({"gpu-1": (taint(),)}),
        ],
        "claim": [claim(devices=()), claim(), claim(devices=("gpu-1",)), claim(consumers=())],
        "pod": [owned("pod", node_name=""), owned("pod"), owned("pod", uid="uid-other"), owned("pod", phase="Failed")],
        "rule": [rule(), rule(effect="None"), rule(uid="another"), rule(selector=None)],
    }
    world = World(Mode.REPLACEMENT, FREE)
    now: dict[str, InventoryObject | None] = dict.fromkeys(variants)
    steps = st.lists(st.tuples(st.sampled_from(sorted(variants)), st.integers(0, 4), st.booleans()), max_size=15)
    at_once, whole = data.draw(st.sampled_from((0, 256))), data.draw(st.sampled_from((-1, 1000)))
    with patch.object(controller, "AT_ONCE_MOST", at_once), patch.object(planner, "WHOLE_MOST", whole):
        for kind, choice, caught_up in data.draw(steps):
            new = variants[kind][choice] if choice < len(variants[kind]) else None
            if new is not None or now[kind] is not None:
                world.change(now[kind], new)
                now[kind] = new
            if caught_up:
                world.catch_up()
        world.catch_up()
    later = World(Mode.REPLACEMENT, FREE)
    later.worker.started = False
    later.add(*[each for each in now.values() if each is not None])
    later.worker.start()
    later.catch_up()
    assert world.planned == later.planned
    assert said_of(world) == said_of(later)
