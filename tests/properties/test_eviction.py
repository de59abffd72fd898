"""Laws of the line, the rates, and the worker as a whole, for whatever comes in whatever order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.eviction.objects import claim, owned, rule, slice_of, taint
from tests.unit.eviction.world import FREE, World
from webhook.eviction import planner
from webhook.eviction.ledger import MINUTE_SECONDS
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult, OwnerLimit
from webhook.eviction.rate_limiter import SlidingMinute
from webhook.eviction.ready_queue import Idle, ReadyPod, ReadyQueue
from webhook.flowcontrol.token_bucket import Rate, TokenBucket
from webhook.policy.model import EvictionProfile

if TYPE_CHECKING:
    import random
    from collections.abc import Hashable

    from webhook.inventory.state import InventoryObject


class Doors:
    """Gates of a test: groups that are shut, and obstacles that so many may pass."""

    def __init__(self, room: dict[str, int]) -> None:
        self.room = room
        self.shut: set[Hashable] = set()

    def begin_pass(self) -> None:
        pass

    def wait_seconds(self, group: Hashable, now: float) -> float:  # noqa: ARG002 -- the port's
        return 1.0 if group in self.shut else 0.0

    def blocked_by(self, item: ReadyPod, now: float) -> OwnerLimit | None:  # noqa: ARG002 -- the port's
        owner = item.uid.split("-")[0]
        return None if self.room[owner] > 0 else OwnerLimit(owner, 0)

    def reserve(self, item: ReadyPod, now: float) -> None:  # noqa: ARG002 -- the port's
        self.room[item.uid.split("-")[0]] -= 1


PLACES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-2, 2), st.integers(0, 1), st.integers(0, 3), st.sampled_from("xy")),
    max_size=20,
)


@given(PLACES, st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)), st.randoms(use_true_random=False))
def test_line_lets_go_whoever_a_plain_sort_would(
    people: list[tuple[str, int, int, int, str]], room: dict[str, int], chance: random.Random
) -> None:
    """An oracle of a few lines: of all who wait, the first in order whose owner has room."""
    doors = Doors({owner: room.get(owner, 0) for owner in "abc"})
    ready = ReadyQueue(doors)
    waiting: dict[str, ReadyPod] = {}
    for number, (owner, priority, refusals, due, group) in enumerate(people):
        uid = f"{owner}-{number}"
        waiting[uid] = ReadyPod(uid, (priority, refusals, due, uid), group)
        ready.push(waiting[uid])
    while waiting:
        free = [item for item in waiting.values() if doors.room[item.uid.split("-")[0]] > 0]
        expected = min(free, key=lambda item: item.order).uid if free else None
        taken = ready.pop(0.0)
        assert (None if isinstance(taken, Idle) else taken) == expected
        if expected is not None:
            del waiting[expected]
        elif chance.random() < 0.2:
            gone = chance.choice(sorted(waiting))
            del waiting[gone]
            ready.discard(gone)
        else:
            owner = chance.choice("abc")
            doors.room[owner] += 1
            ready.unpark(OwnerLimit(owner, 0))
    assert ready.pop(0.0) == Idle(float("inf"))
    assert len(ready) == 0


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


@given(st.integers(1, 5), st.lists(st.tuples(st.floats(0, 40), st.floats(0, 5), st.booleans()), max_size=30))
def test_no_minute_has_more_than_its_limit(limit: int, asked: list[tuple[float, float, bool]]) -> None:
    """Each eviction happens somewhere between its question and its answer; no minute may hold more than the limit."""
    minute, now, done = SlidingMinute(), 0.0, list[tuple[float, float]]()
    for pause, lasts, evicted in asked:
        now += pause
        wait = minute.wait_seconds(limit, now)
        assert wait <= MINUTE_SECONDS + 1e-6
        now += wait
        assert minute.wait_seconds(limit, now + 1e-6) == 0
        minute.begin()
        began, now = now, now + lasts
        minute.end(now, evicted=evicted)
        if evicted:
            done.append((began, now))
    for first, later in zip(done, done[limit:], strict=False):
        assert later[0] - first[1] >= MINUTE_SECONDS - 1e-3


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
    assert (len(world.worker.ready), len(world.worker.plans.under_way), world.worker.plans.evicted) == (0, 0, set())


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
    with patch.object(planner, "_AT_ONCE_MOST", data.draw(st.sampled_from((-1, 256)))):
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
    assert world.planned == later.planned
