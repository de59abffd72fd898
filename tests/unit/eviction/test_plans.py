"""What plans know of pods and their owners as these change."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from msgspec import structs

from tests.unit.eviction.hurried import LoopClock, at_work, hurry
from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates
from tests.unit.eviction.world import FREE, World
from webhook.api.owners import Owner
from webhook.api.rules import DeviceSelector
from webhook.eviction import planner
from webhook.eviction.core import ItemKind, WorkItem
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult, PodFreed
from webhook.eviction.ready_queue import Idle, ReadyQueue
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from collections.abc import Callable


MANY = 300
DEADLINE_SECONDS = 20.0


def test_pod_that_gets_another_owner_counts_for_that_one() -> None:
    """A pod without a controller may be adopted, and released again."""
    world = World()
    orphan = pod("pod", ready=False)
    old, new = owned("pod", by="old", ready=False), owned("pod", by="new", ready=False)
    sizes = []
    for before, after in ((None, orphan), (orphan, old), (old, new), (new, orphan)):
        world.change(before, after)
        owners = world.worker.plans.owners
        sizes.append(
            [(owners.place_count(f"ml/uid-{name}"), owners.unavailable(f"ml/uid-{name}")) for name in ("old", "new")]
        )
    assert sizes == [[(0, 0), (0, 0)], [(1, 1), (0, 0)], [(0, 0), (1, 1)], [(0, 0), (0, 0)]]


def test_plan_has_the_pod_as_it_is_now() -> None:
    world = World(Mode.OBSERVE)
    before = pod("pod")
    after = structs.replace(before, owner=Owner("Job", "job", "uid-job"), hold="not now")
    world.add(claim("pod"), before, rule())
    world.change(before, after)
    [plan] = world.worker.plans.scheduled.values()
    assert (plan.pod, plan.owner, str(plan.ref), plan.key) == (after, "ml/uid-job", "ml/pod", "ml/pod")


def test_taint_on_most_claims_plans_who_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pods are looked at then, and not those of the claims alone."""
    world, other = World(Mode.OBSERVE), World(Mode.OBSERVE)
    for number in range(MANY):
        using = claim(f"p{number}") if number % 3 else claim(f"p{number}", devices=())
        for each in (world, other):
            each.add(using, pod(f"p{number}"))
    world.add(rule())
    monkeypatch.setattr(other.worker.planner, "mark_claims", other.worker.backlog.claims.add)
    other.add(rule())
    for each in (world, other):
        each.catch_up()
    assert world.planned == other.planned
    assert len(world.planned) == MANY * 2 // 3


class CountingQueue(ReadyQueue):
    """Counts how often somebody asks for a turn."""

    asked = 0

    def pop(self, now: float) -> str | Idle:
        self.asked += 1
        return super().pop(now)


def test_news_wake_one_worker_and_not_all() -> None:
    async def test() -> None:
        world = World(Mode.REPLACEMENT, FREE, workers=32)
        ready = world.worker.ready
        ready.__class__ = CountingQueue
        assert isinstance(ready, CountingQueue)
        for number in range(MANY):
            world.add(claim(f"p{number}"), pod(f"p{number}"))
        working = asyncio.create_task(world.worker.run())
        world.add(rule())
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(world.evicted) < MANY:  # noqa: ASYNC110 -- any state
                await asyncio.sleep(0.001)
        working.cancel()
        await asyncio.wait([working])
        assert ready.asked < 4 * MANY

    asyncio.run(test())


def test_inventory_counts_devices_in_use() -> None:
    inventory = Inventory()
    for number in range(3):
        inventory.apply(None, claim(f"p{number}"))
    assert (inventory.usage.count_on(None), inventory.usage.count_on("nobody.example.com")) == (1, 0)


@pytest.mark.parametrize("behind", [False, True])
def test_pod_whose_time_has_come_wakes_a_worker_unless_plans_are_behind(
    monkeypatch: pytest.MonkeyPatch,
    behind: bool,  # noqa: FBT001 -- a table's
) -> None:
    world, wake = World(Mode.REPLACEMENT, FREE), Mock()
    world.add(claim("pod"), pod("pod"), rule())
    monkeypatch.setattr(world.worker._evictor, "wake", wake)
    if behind:
        world.worker.backlog.pods.add(["ml/pod"])
    asyncio.run(world.worker.handle(WorkItem(ItemKind.POD, "uid-pod")))
    assert wake.call_count == (0 if behind else 1)


NEWS: dict[str, Callable[[World], None]] = {
    "it begins": lambda world: world.worker.start(),
    "another policy": lambda world: world.worker.replan_all(),
    "labels of the namespace": lambda world: world.worker.requeue_waiting("ml"),
    "another wall clock": lambda world: world.worker.requeue_waiting(),
    "a time slice": lambda world: world.worker.catch_up(),
    "another pod": lambda world: world.add(pod("other")),
}


@pytest.mark.parametrize("news", NEWS.values(), ids=NEWS)
@pytest.mark.parametrize("behind", [False, True])
def test_worker_is_woken_once_all_is_planned(
    news: Callable[[World], None], monkeypatch: pytest.MonkeyPatch, *, behind: bool
) -> None:
    world, wake = World(Mode.REPLACEMENT, FREE), Mock()
    world.add(claim("pod"), pod("pod"), rule())
    monkeypatch.setattr(world.worker._room, "_wake", wake)
    if behind:
        world.worker.backlog.pods.add(["ml/pod"])
        world.clock.step = 1.0  # each slice is over when it begins
    news(world)
    assert wake.called is not behind


@pytest.mark.parametrize("paused", [False, True])
def test_worker_is_woken_after_a_pause_between_two_items(monkeypatch: pytest.MonkeyPatch, *, paused: bool) -> None:
    """No pod is evicted during the pause."""

    async def pause() -> bool:
        return paused

    async def test() -> None:
        world, wake = World(Mode.REPLACEMENT, FREE, clock=LoopClock()), Mock()
        monkeypatch.setattr(world.worker.backlog.timeslice, "pause", pause)
        monkeypatch.setattr(world.worker._evictor, "wake", wake)
        async with at_work(world):
            await asyncio.sleep(0.1)
            wake.reset_mock()
            world.worker.queue.add(WorkItem(ItemKind.RULE, "none"))
            await asyncio.sleep(0.1)
            assert wake.call_count == (1 if paused else 0)

    hurry(test())


def test_revision_grows_with_each_plan_that_is_added_changed_or_dropped() -> None:
    world = World(Mode.OBSERVE, FREE)
    plans, tainted = world.worker.plans, rule()
    world.add(claim("pod"), pod("pod"))
    changes: tuple[Callable[[], None], ...] = (
        lambda: world.add(tainted),
        lambda: world.change(world.pod("pod"), pod("pod", hold="later")),
        lambda: world.remove(tainted),
    )
    seen = [plans.revision]
    for change in changes:
        change()
        seen.append(plans.revision)
    assert seen == sorted(set(seen))


def test_pod_that_goes_before_its_gang_is_looked_at_again_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "_AT_ONCE_MOST", -1)
    world = World(Mode.OBSERVE, FREE)
    world.add(claim("gone", devices=("clean",)), pod("gone"), claim("stays"), pod("stays"))
    world.add(rule(selector=DeviceSelector(device="gpu-0")))
    world.catch_up()
    world.worker.requeue_waiting("ml")
    world.remove(world.pod("gone"))
    world.catch_up()
    assert list(world.planned) == ["stays"]


@pytest.mark.parametrize(
    ("uid", "freed"), [("uid-of-another", True), ("uid-pod", False)], ids=["a later pod of the name", "the pod itself"]
)
def test_place_is_free_unless_the_very_pod_is_still_terminating(uid: str, *, freed: bool) -> None:
    world = World(Mode.OBSERVE, FREE)
    running = pod("pod")
    world.add(claim("pod"), rule(), running)
    plans = world.worker.plans
    plan = plans.scheduled["uid-pod"]
    plans.begin(plan, "place", "")
    leaving = structs.replace(running, meta=structs.replace(running.meta, uid=uid), deleting=True)
    world.inventory.apply(running, leaving)
    plans.freed.clear()
    plans.fail(plan)
    assert (PodFreed("ml") in plans.freed) is freed
    assert ("uid-pod" in plans.under_way) is not freed


# --- what counts for limits -----------------------------------------------------------------------


def test_pod_that_a_person_deletes_does_not_count_for_the_minute() -> None:
    """It was to be evicted later."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, max_per_minute=1))
    world.add(claim("later", tolerates(30)), pod("later"), rule())
    world.change(world.pod("later"), pod("later", deleting=True))
    world.add(claim("due"), pod("due"))
    world.settle()
    assert world.evicted == ["due"]


def test_evicted_pod_that_changes_while_it_terminates_counts_once_for_the_minute() -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, max_per_minute=2))
    world.cluster.lingering = True
    world.add(claim("first"), pod("first"), rule())
    world.settle()
    world.change(world.pod("first"), structs.replace(world.pod("first"), labels=(("app", "web"),)))
    world.add(claim("second"), pod("second"))
    world.settle()
    assert world.evicted == ["first", "second"]


def test_pod_that_goes_by_itself_leaves_its_owner_no_replacement_to_wait_for() -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, per_owner_unavailable=1))
    world.add(claim("a", devices=("clean",)), owned("a"), claim("b"), owned("b"))
    world.change(world.pod("a"), owned("a", deleting=True))
    world.remove(world.pod("a"))
    world.add(rule(selector=DeviceSelector(device="gpu-0")))
    world.settle()
    assert world.evicted == ["b"]


def test_pod_that_was_not_evicted_after_all_is_available_to_its_owner() -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, per_owner_unavailable=1))
    world.add(claim("a"), owned("a"), claim("b"), owned("b"))
    world.cluster.answers.append(EvictionOutcome(EvictionResult.FAILED, "500"))
    world.add(rule())
    world.settle()
    assert [name for _, name, _ in world.cluster.requests] == ["ml/a", "ml/b"]
    assert world.evicted == ["b"]


def test_sibling_that_a_person_deletes_is_missing_although_it_is_still_ready() -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, per_owner_unavailable=1))
    world.add(claim("a", devices=("clean",)), owned("a"), claim("b"), owned("b"))
    world.change(world.pod("a"), owned("a", deleting=True))
    world.add(rule(selector=DeviceSelector(device="gpu-0")))
    world.settle()
    assert world.evicted == []
    world.remove(world.pod("a"))
    world.settle()
    assert world.evicted == ["b"]


def test_pod_that_runs_for_long_is_not_stuck() -> None:
    world = World(Mode.REPLACEMENT, FREE)
    world.add(claim("pod"), owned("pod", hold="later"), rule())
    world.advance(FREE.stuck_after_seconds + 100)
    assert world.sample("pods_stuck") == 0


@pytest.mark.parametrize("again", [False, True], ids=["gone", "replaced by a namesake"])
def test_pod_that_went_in_time_is_not_reported_as_stuck(caplog: pytest.LogCaptureFixture, *, again: bool) -> None:
    world = World(Mode.REPLACEMENT, FREE)
    world.cluster.lingering = True
    world.add(claim("pod"), owned("pod"), rule())
    world.settle()
    world.remove(world.pod("pod"))
    if again:
        world.add(owned("pod", uid="uid-namesake", claims=()))
    world.advance(FREE.stuck_after_seconds + 100)
    assert "pod stuck in terminating" not in caplog.messages
    assert world.worker.plans.stuck == {}
