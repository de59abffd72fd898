"""What changes while a request waits for its turn, for its connection, or between two requests, still counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from tests.unit.eviction.hurried import LoopClock, at_work, hurried
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, using
from tests.unit.eviction.world import BLUNT, FREE, NEVER, Budget, FakeCluster, World, evicting
from webhook.api.meta import ObjectMeta
from webhook.api.pods import Pod
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult, PodRef
from webhook.policy.model import BreakerSettings, EvictionProfile, Pause

UNHELD = EvictionProfile(rate=10_000, burst=100_000, per_owner_unavailable=None, max_hold_seconds=NEVER)


def pause(world: World) -> None:
    world.pause = Pause(world.clock.now() + timedelta(hours=1), "storage")


def hold(world: World) -> None:
    for each in list(world.inventory.pods.values()):
        world.edit(each, hold="debugging")


def hold_namespace(world: World) -> None:
    world.holds["ml"] = "release week"
    world.worker.requeue_waiting("ml")


def delete_rule(world: World) -> None:
    world.remove(world.inventory.rules["rule"])


def lose_lease(world: World) -> None:
    world.leads = world.trusted = False


def skip(world: World) -> None:
    world.profiles = type(world.profiles)([structs.replace(FREE, skips=True)])
    world.worker.replan_all()


def tolerate(world: World) -> None:
    world.change(world.inventory.rules["rule"], rule(effect="NoSchedule", generation=2))


CHANGES: dict[str, Callable[[World], None]] = {
    "pause": pause,
    "hold": hold,
    "hold of the namespace": hold_namespace,
    "rule deleted": delete_rule,
    "lost lease": lose_lease,
    "action: skip": skip,
    "softer effect": tolerate,
}


class Slow(FakeCluster):
    """An API server that takes a second for each request."""

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
        outcome = await super().evict(pod, grace_period_seconds)
        await asyncio.sleep(1.0)
        return outcome


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@hurried
async def test_no_eviction_is_sent_after_a_change_although_all_slots_were_taken(
    change: Callable[[World], None],
) -> None:
    world = evicting(base=UNHELD, cluster=Slow, clock=LoopClock(), workers=4, lingering=True)
    for number in range(20):
        world.add(claim(f"g{number}", devices=(f"gpu-{number}",)), pod(f"g{number}", gang="train"))
    world.add(claim("single", devices=("gpu-s",)), pod("single"))
    world.add(rule())
    async with at_work(world):
        await asyncio.sleep(0.5)
        sent = len(world.cluster.requests)
        assert 0 < sent <= 4
        change(world)
        await asyncio.sleep(30)
        assert len(world.cluster.requests) == sent


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("profile", [UNHELD, structs.replace(BLUNT, max_hold_seconds=NEVER)], ids=["evict", "delete"])
def test_nothing_is_sent_after_a_change_while_a_request_waits_for_its_connection(
    change: Callable[[World], None], profile: EvictionProfile
) -> None:
    world = evicting(claim("pod"), pod("pod"), rule(), base=profile)
    world.cluster.while_connecting.append(lambda: change(world))
    world.settle()
    assert world.cluster.requests == []


def test_what_a_request_that_was_not_sent_has_taken_is_there_for_the_next_one() -> None:
    """Its place, its token and its share of `maxPerMinute`: one of each is all that there is."""
    world = World(
        Mode.REPLACEMENT,
        structs.replace(FREE, rate=0.001, burst=1, overall=1, max_per_minute=1, max_hold_seconds=NEVER),
    )
    world.cluster.lingering = True
    world.add(*using("a", "b", on="gpu-{}"))
    world.cluster.while_connecting.append(lambda: world.edit(world.pod("a"), hold="debugging"))
    world.add(rule())
    assert world.after(5) == ["b"]


def test_members_of_a_gang_go_on_once_the_first_has_gone_unless_they_are_held_themselves() -> None:
    world = evicting(*using(*"abc", on="gpu-{}", gang="train"), base=UNHELD)

    def hold_b() -> None:
        world.edit(world.pod("b"), hold="debugging")

    world.cluster.while_connecting += [lambda: None, hold_b]
    world.add(rule())
    assert sorted(world.after(5)) == ["a", "c"]


def test_storm_that_begins_while_a_request_waits_stops_it() -> None:
    world = evicting(breaker=BreakerSettings(devices=2))

    def published(count: int) -> Any:
        return slice_of({f"gpu-{n}": (taint(),) if n < count else () for n in range(40)})

    world.add(published(0))
    for number in range(40):
        world.add(claim(f"p{number}", devices=(f"gpu-{number}",)), pod(f"p{number}"))
    slices = world.inventory.slices
    world.cluster.while_connecting.append(lambda: world.change(slices["slice"], published(40)))
    world.change(slices["slice"], published(1))
    world.advance(5)
    assert world.cluster.requests == []


# --- pods that the watch shows too old ------------------------------------------------------------


def version(number: int, name: str = "pod", **fields: Any) -> Pod:
    return pod(
        name,
        **{"meta": ObjectMeta(name=name, namespace="ml", uid=f"uid-{name}", resource_version=str(number)), **fields},
    )


def behind(profile: EvictionProfile, live: Pod, *, budget: bool = False) -> World:
    """The watch shows version 1 of the pod, and the API server has another one."""
    world = World(Mode.REPLACEMENT, profile)
    if budget:
        world.add_budget(Budget(allows_at=0.0, status=1))
    world.cluster.ahead["pod"] = live
    world.add(claim("pod"), version(1), rule())
    return world


HELD = version(2, hold="debugging")
WAYS = {
    "evict": (UNHELD, False),
    "evict under a budget": (UNHELD, True),
    "delete": (structs.replace(BLUNT, max_hold_seconds=NEVER), False),
}


@pytest.mark.parametrize(("profile", "budget"), WAYS.values(), ids=WAYS)
def test_pod_whose_hold_the_watch_does_not_show_yet_stays(profile: EvictionProfile, budget: bool) -> None:  # noqa: FBT001
    world = behind(profile, HELD, budget=budget)
    world.advance(60)
    asked = len(world.cluster.requests) + len(world.cluster.reads)
    assert asked == 1, "nothing is asked again before the watch has brought something new"
    world.change(world.pod("pod"), HELD)
    world.advance(60)
    assert (world.evicted, len(world.cluster.requests) + len(world.cluster.reads)) == ([], asked)


@pytest.mark.parametrize(("profile", "budget"), WAYS.values(), ids=WAYS)
def test_pod_whose_status_was_newer_goes_as_soon_as_the_watch_shows_it(profile: EvictionProfile, budget: bool) -> None:  # noqa: FBT001
    newer = version(2)
    world = behind(profile, newer, budget=budget)
    assert world.after(5) == ([] if not budget else ["pod"]), "a change of the status is no reason not to ask a budget"
    if not budget:
        world.change(world.pod("pod"), newer)
        assert world.settled() == ["pod"]
        assert len(world.cluster.requests) == 2


def test_hold_counts_although_a_budget_comes_after_the_pod_was_prepared() -> None:
    world = evicting()
    world.add(*[each for name in "ab" for each in (claim(name), version(1, name, gang="g"))])

    def hold_and_budget() -> None:
        world.cluster.ahead["a"] = version(2, "a", gang="g", hold="debugging")
        world.budgets.append(Budget(selects="a", allows_at=0.0, status=9))
        world.worker.observe_budgets("ml")

    world.cluster.meanwhile.extend([lambda: None, hold_and_budget])
    world.add(rule())
    assert "a" not in world.after(1)


def test_pod_that_changes_a_few_times_goes_without_being_read() -> None:
    world = evicting()
    newer = [version(number) for number in range(2, 6)]
    world.cluster.while_connecting += [partial(world.cluster.ahead.__setitem__, "pod", each) for each in newer]
    world.add(claim("pod"), version(1), rule())
    for number, each in enumerate(newer):
        world.settle()
        assert (world.evicted, len(world.cluster.requests)) == ([], number + 1)
        world.change(world.pod("pod"), each)
    world.settle()
    assert (world.cluster.reads, world.evicted) == ([], ["pod"])


def test_watch_that_was_faster_than_the_conflict_needs_no_further_change() -> None:
    world, newer = World(Mode.REPLACEMENT, FREE), version(2)

    def change() -> None:
        world.cluster.ahead["pod"] = newer
        world.change(world.pod("pod"), newer)

    world.cluster.while_connecting.append(change)
    world.add(claim("pod"), version(1), rule())
    assert world.settled() == ["pod"]


def test_hold_that_is_older_than_maxhold_does_not_keep_a_pod() -> None:
    world = evicting(max_hold_seconds=100.0, budgets=[Budget(allows_at=0.0, status=1)])
    held = version(1, hold="debugging")
    world.cluster.ahead["pod"] = held
    world.add(claim("pod"), held, rule())
    assert world.after(101) == ["pod"]


@pytest.mark.parametrize("budget", [True, False])
def test_no_member_of_a_gang_goes_while_the_watch_hides_the_hold_of_the_first(budget: bool) -> None:  # noqa: FBT001
    world = World(Mode.REPLACEMENT, UNHELD)
    if budget:
        world.add_budget(Budget(allows_at=0.0, status=3))
    for name in "abc":
        world.add(claim(name, devices=(f"gpu-{name}",)), version(1, name, gang="train"))
    held = world.cluster.ahead["a"] = version(2, "a", gang="train", hold="debugging")
    world.add(rule())
    assert world.after(30) == []
    world.change(world.pod("a"), held)
    assert world.after(30) == []


def test_conflict_of_the_second_member_does_not_keep_the_others() -> None:
    world = World(Mode.REPLACEMENT, UNHELD)
    for name in "abc":
        world.add(claim(name, devices=(f"gpu-{name}",)), version(1, name, gang="train"))
    newer = world.cluster.ahead["b"] = version(2, "b", gang="train")
    world.add(rule())
    assert sorted(world.settled()) == ["a", "c"]
    world.change(world.pod("b"), newer)
    assert sorted(world.settled()) == ["a", "b", "c"]


def test_only_pods_under_a_budget_are_read_and_each_of_them_once() -> None:
    world = evicting(budgets=[Budget(selects="web", every_seconds=0.0, allows_at=0.0, status=9)])
    world.add(*using("web-0", "web-1", "free-0", on="gpu-{}"), rule())
    world.advance(30)
    assert sorted(world.cluster.reads) == ["web-0", "web-1"]
    assert len(world.evicted) == 3


class Restless(FakeCluster):
    """A cluster in which something writes to the pod whenever it is to go, twenty times."""

    def _remove(self, verb: str, ref: PodRef) -> EvictionOutcome:
        number = min(len(self.requests), 20)
        self.ahead[ref.name] = newer = version(number + 2)
        outcome = super()._remove(verb, ref)
        if not outcome.evicted:
            self.world.change(self.world.pod("pod"), newer)
        return outcome


@pytest.mark.parametrize("profile", [UNHELD, BLUNT], ids=["evict", "delete"])
def test_pod_that_changes_at_each_request_goes_once_it_was_read(profile: EvictionProfile) -> None:
    world = evicting(claim("pod"), version(1), rule(), base=profile, cluster=Restless)
    world.advance(30)
    assert (len(world.cluster.requests), world.cluster.reads, world.evicted) == (6, ["pod"], ["pod"])


def test_pod_that_changes_at_each_request_stays_if_it_is_held_when_it_is_read() -> None:
    class Held(Restless):
        async def read(self, pod: PodRef) -> EvictionOutcome | None:
            self.ahead["pod"] = version(99, hold="debugging")
            return await super().read(pod)

    world = evicting(claim("pod"), version(1), rule(), base=UNHELD, cluster=Held)
    world.advance(30)
    assert (len(world.cluster.requests), world.cluster.reads, world.evicted) == (5, ["pod"], [])


def test_pod_that_cannot_be_read_is_tried_again() -> None:
    class Unreadable(FakeCluster):
        async def read(self, pod: PodRef) -> EvictionOutcome | None:
            self.reads.append(pod.name)
            return EvictionOutcome(EvictionResult.FAILED, "503") if len(self.reads) < 3 else None

    world = evicting(claim("pod"), pod("pod"), rule(), cluster=Unreadable, budgets=[Budget(allows_at=0.0, status=9)])
    world.advance(60)
    assert (len(world.cluster.reads), world.evicted) == (3, ["pod"])
