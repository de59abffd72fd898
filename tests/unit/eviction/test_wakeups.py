"""A limit that has room wakes the pods that wait for it: at once, in the worker's own tasks, whatever made room."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.hurried import LoopClock, at_work, hurried
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, taint, tolerates, using
from tests.unit.eviction.world import FREE, NO_BREAKER, Budget, World, evicting
from webhook.api.rules import EVICTED_PODS, DeviceSelector
from webhook.eviction.conditions import IN_TREE
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult
from webhook.eviction.profiles import Profiles
from webhook.policy.model import EvictionProfile

OF_OTHERS = structs.replace(FREE, priority_at_most=-1)
"""A profile for pods of a priority that no pod of most tests has."""
OWNER = structs.replace(FREE, per_owner_unavailable=1)
SOON = 0.2
"""Seconds in which the worker has made a plan, and acted by it."""


@contextlib.asynccontextmanager
async def beside(*profiles: EvictionProfile) -> AsyncIterator[World]:
    """Beside the tasks of a worker: nothing but news and the clock wakes them."""
    world = World(Mode.REPLACEMENT, *profiles, breaker=NO_BREAKER, clock=LoopClock())
    world.cluster.lingering = True
    async with at_work(world):
        yield world


async def soon() -> None:
    await asyncio.sleep(SOON)


async def gone(world: World) -> None:
    world.remove(world.pod("pod-0"))


async def stuck(_: World) -> None:
    await asyncio.sleep(FREE.stuck_after_seconds)


async def not_evicted(world: World) -> None:
    """Its undoing is that of the pod that the API server never deleted."""
    world.edit(world.pod("pod-0"), deleting=False)
    world.remove(world.inventory.rules["first"])
    await asyncio.sleep(world.deps.settings.undeleted_seconds)


PROFILES = {"overall": structs.replace(FREE, overall=1), "per_namespace": structs.replace(FREE, per_namespace=1)}


def one_rule_each(world: World) -> None:
    """Rules `first` and `second` hit the pods of the first and of the second device."""
    for number, name in enumerate(("first", "second")):
        world.add(rule(name, selector=DeviceSelector(device=f"gpu-{number}")))


@pytest.mark.parametrize("limit", PROFILES)
@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("frees", [gone, stuck, not_evicted])
@hurried
async def test_end_of_an_eviction_wakes_the_next_of_each_profile(
    limit: str, position: int, frees: Callable[[World], Awaitable[None]]
) -> None:
    async with beside(*[OF_OTHERS] * position, PROFILES[limit]) as world:
        world.add(claim("pod-0"), pod("pod-0"), claim("pod-1", devices=("gpu-1",)), pod("pod-1"))
        one_rule_each(world)
        await soon()
        assert world.evicted == ["pod-0"]
        await frees(world)
        await soon()
        assert world.evicted == ["pod-0", "pod-1"]


@pytest.mark.parametrize("limit", PROFILES)
@hurried
async def test_end_of_an_eviction_wakes_a_pod_of_every_profile_that_counts_it(limit: str) -> None:
    """Profiles count all evictions, so what one pod leaves makes room in both."""
    async with beside(structs.replace(PROFILES[limit], priority_at_most=0), PROFILES[limit]) as world:
        for name, priority in (("pod-0", -1), ("low", 0), ("high", 100)):
            world.add(claim(name, devices=(f"gpu-{name}",)), pod(name, priority=priority))
        world.add(rule())
        await soon()
        assert world.evicted == ["pod-0"]
        world.remove(world.pod("low"))  # the only one that waits for the narrow profile's limit
        world.remove(world.pod("pod-0"))
        await soon()
        assert world.evicted == ["pod-0", "high"]


@hurried
async def test_end_of_an_eviction_in_another_namespace_wakes_no_pod_of_this_one() -> None:
    async with beside(PROFILES["per_namespace"]) as world:
        for namespace in ("ml", "web"):
            for number in range(2):
                name = f"{namespace}-{number}"
                world.add(claim(name, namespace=namespace), pod(name, namespace=namespace))
        world.add(rule())
        await soon()
        assert world.evicted == ["ml-0", "web-0"]
        world.remove(world.inventory.pods["web/web-0"])
        await soon()
        assert world.evicted == ["ml-0", "web-0", "web-1"]


def replicas(world: World) -> None:
    """Two pods of one owner, on a device each."""
    for number in range(2):
        world.add(claim(f"pod-{number}", devices=(f"gpu-{number}",)), owned(f"pod-{number}"))


@pytest.mark.parametrize("position", [0, 1, 2])
@hurried
async def test_replacement_that_becomes_ready_wakes_the_next_of_its_owner(position: int) -> None:
    async with beside(*[OF_OTHERS] * position, OWNER) as world:
        replicas(world)
        one_rule_each(world)
        await soon()
        world.remove(world.pod("pod-0"))
        await asyncio.sleep(1)
        assert world.evicted == ["pod-0"]
        world.add(claim("new", devices=("clean",)), owned("new", ready=False))
        await asyncio.sleep(60)
        assert world.evicted == ["pod-0"]
        world.edit(world.pod("new"), ready=True)
        await soon()
        assert world.evicted == ["pod-0", "pod-1"]


@pytest.mark.parametrize("hit", [True, False])
@hurried
async def test_owner_waits_for_a_replacement_for_five_seconds(*, hit: bool) -> None:
    """Also if no taint hits the pod any more by the time that it is gone."""
    async with beside(OWNER) as world:
        replicas(world)
        one_rule_each(world)
        await soon()
        assert world.evicted == ["pod-0"]
        if not hit:
            world.remove(world.inventory.rules["first"])
        await asyncio.sleep(20)
        world.remove(world.pod("pod-0"))
        await asyncio.sleep(world.deps.settings.replacement_seconds - SOON)
        assert world.evicted == ["pod-0"]
        await asyncio.sleep(2 * SOON)
        assert world.evicted == ["pod-0", "pod-1"]


@hurried
async def test_pod_that_stays_in_terminating_without_a_taint_is_given_up_in_time() -> None:
    """A user has deleted it; its owner misses it until then."""
    async with beside(OWNER) as world:
        replicas(world)
        world.add(claim("pod-2", devices=("gpu-2",)), owned("pod-2", ready=False))
        world.add(rule(selector=DeviceSelector(device="gpu-1")))
        await soon()
        world.edit(world.pod("pod-0"), deleting=True)
        world.edit(world.pod("pod-2"), ready=True)
        await asyncio.sleep(FREE.stuck_after_seconds - SOON)
        assert world.evicted == []
        await asyncio.sleep(2 * SOON)
        assert world.evicted == ["pod-1"]


@hurried
async def test_pod_that_fails_by_itself_is_missing_already_and_goes_at_once() -> None:
    async with beside(OWNER) as world:
        replicas(world)
        world.add(rule())
        await soon()
        world.edit(world.pod("pod-1"), ready=False)
        await soon()
        assert world.evicted == ["pod-0", "pod-1"]


@pytest.mark.parametrize("result", [EvictionResult.GONE, EvictionResult.FAILED])
@hurried
async def test_token_that_was_not_used_wakes_the_next_of_its_rate(result: EvictionResult) -> None:
    async with beside(structs.replace(FREE, rate=0.001, burst=1)) as world:
        world.cluster.answers.append(EvictionOutcome(result, "no"))
        world.add(*using(*[f"pod-{number}" for number in range(3)]), rule())
        await soon()
        assert [name for _, name, _ in world.cluster.requests] == ["ml/pod-0", "ml/pod-1"]
        assert world.evicted == ["pod-1"]


@hurried
async def test_status_of_a_budget_wakes_one_that_waits_for_it() -> None:
    async with beside(FREE) as world:
        budget = Budget(allows_at=3600.0, status=0)
        world.add_budget(budget)
        world.add(claim("pod-0"), pod("pod-0"), rule())
        await asyncio.sleep(1)
        assert world.evicted == []
        budget.allows_at, budget.status = 0.0, 1
        world.worker.observe_budget("ml", "0")
        await soon()
        assert world.evicted == ["pod-0"]


@hurried
async def test_budget_that_refused_is_asked_again_after_five_seconds() -> None:
    async with beside(FREE) as world:
        world.budgets.append(Budget(allows_at=4.0))
        world.add(claim("pod-0"), pod("pod-0"), rule())
        await asyncio.sleep(4.9)
        assert world.evicted == []
        await asyncio.sleep(0.2)
        assert world.evicted == ["pod-0"]


@pytest.mark.parametrize("limit", ["overall", "per_namespace", "per_owner_unavailable", "max_per_minute", "rate"])
@hurried
async def test_policy_wakes_all_pods_that_wait(limit: str) -> None:
    """One profile less than before: what waited for the second waits for nothing."""
    strict = structs.replace(FREE, rate=0.001, burst=1) if limit == "rate" else structs.replace(FREE, **{limit: 1})
    async with beside(OF_OTHERS, strict) as world:
        replicas(world)
        world.add(rule())
        await soon()
        assert world.evicted == ["pod-0"]
        world.profiles = Profiles((FREE,))
        world.worker.replan_all()
        await soon()
        assert world.evicted == ["pod-0", "pod-1"]


# --- the earliest of several times --------------------------------------------------------------


TIMES = [(5, 9), (9, 5), (5, 5), (7, None), (None, 7)]


@pytest.mark.parametrize(("one", "two"), TIMES)
def test_pod_is_due_at_the_earliest_of_two_taints_or_devices(one: int | None, two: int | None) -> None:
    """Of two rules, of a rule and a slice, of two taints in a slice, and of two devices under one rule."""
    keys = ("example.com/one", "example.com/two")
    tolerated = [tolerates(seconds, key=key) for seconds, key in zip((one, two), keys, strict=True)]
    worlds = [evicting(claim("pod", *tolerated), pod("pod"), breaker=NO_BREAKER) for _ in range(3)]
    for by_rule, world in enumerate(worlds):
        world.add(*[rule(f"rule-{key[-3:]}", key=key) for key in keys[:by_rule]])
        world.add(slice_of({"gpu-0": tuple(taint(key=key) for key in keys[by_rule:])}))
    first, second = claim("pod", tolerates(one)), claim("pod", tolerates(two), devices=("gpu-1",))
    both = structs.replace(first, allocation=(*(first.allocation or ()), *(second.allocation or ())))
    expected = {"pod": min(seconds for seconds in (one, two) if seconds is not None)}
    assert [world.planned for world in (*worlds, evicting(both, pod("pod"), rule()))] == [expected] * 4


# --- the last conditions ------------------------------------------------------------------------


def at_the_end(world: World) -> None:
    """The worker stops, ten seconds before it would write again."""
    asyncio.run(world.worker.stop())


def test_last_condition_says_what_came_of_the_rule() -> None:
    """A rollout after the last eviction leaves no rule that says True for ever."""
    world = evicting(claim(), pod(), rule(selector=DeviceSelector(driver=DRIVER)))
    world.advance(1)
    assert world.condition("rule")[:2] == ("True", "Evicting")
    world.advance(5)
    at_the_end(world)
    assert world.condition("rule") == ("False", "Completed", "1 pod evicted")
    assert world.condition("rule", IN_TREE) == ("False", "Completed", "1 pod evicted since starting the controller.")
    assert world.condition("rule", EVICTED_PODS)[2] == "1"


@pytest.mark.parametrize(("leads", "trusted"), [(False, True), (True, False), (False, False)])
def test_no_last_condition_without_the_lease_or_by_a_doubtful_inventory(
    leads: bool,  # noqa: FBT001 -- a case
    trusted: bool,  # noqa: FBT001 -- a case
) -> None:
    world = evicting(claim(), pod(), rule())
    world.advance(6)
    before = list(world.cluster.writes)
    world.leads, world.trusted = leads, trusted
    world.worker._core.affected.mark(("ml/pod",))
    at_the_end(world)
    assert world.cluster.writes == before
    assert world.worker._core.affected.pending == 1, "nor is anything planned"
