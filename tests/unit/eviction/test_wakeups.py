"""A limit that has room wakes the pods that wait for it, at once and not with the sweep half a minute later."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import FREE, NO_BREAKER, Budget, World
from webhook.api.rules import EVICTED_PODS, DeviceSelector
from webhook.eviction.conditions import IN_TREE
from webhook.eviction.modes import Mode
from webhook.eviction.ports import BudgetLimit, EvictionOutcome, EvictionResult, LimitKind
from webhook.eviction.ready_queue import Idle
from webhook.policy.model import BreakerSettings, Pause

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.policy.model import EvictionProfile

OF_OTHERS = structs.replace(FREE, priority_at_most=-1)
"""A profile for pods of a priority that no pod of most tests has."""
OWNER = structs.replace(FREE, per_owner_unavailable=1)


def without_sweep(*profiles: EvictionProfile) -> World:
    """Nothing but news wakes a pod."""
    world = World(Mode.REPLACEMENT, *profiles, breaker=NO_BREAKER)
    world.worker.ready.sweep = lambda: None  # type: ignore[method-assign]
    world.cluster.lingering = True
    return world


def gone(world: World) -> None:
    world.remove(world.pod("pod-0"))


def stuck(world: World) -> None:
    world.advance(FREE.stuck_after_seconds + 1)


def not_evicted(world: World) -> None:
    """Its undoing is that of the pod that the API server never deleted."""
    terminating = world.pod("pod-0")
    world.change(terminating, structs.replace(terminating, deleting=False))
    world.remove(world.inventory.rules["first"])
    world.advance(world.deps.settings.undeleted_seconds + 1)


PROFILES = {
    "overall": structs.replace(FREE, overall=1),
    "per_namespace": structs.replace(FREE, per_namespace=1),
}


@pytest.mark.parametrize("limit", PROFILES)
@pytest.mark.parametrize("position", [0, 1, 2])
@pytest.mark.parametrize("frees", [gone, stuck, not_evicted])
def test_end_of_an_eviction_wakes_the_next_of_each_profile(
    limit: str, position: int, frees: Callable[[World], None]
) -> None:
    profiles = [OF_OTHERS] * position + [PROFILES[limit]]
    world = without_sweep(*profiles)
    world.add(claim("pod-0"), pod("pod-0"), claim("pod-1", devices=("gpu-1",)), pod("pod-1"))
    world.add(
        rule("first", selector=DeviceSelector(device="gpu-0")), rule("second", selector=DeviceSelector(device="gpu-1"))
    )
    world.settle()
    assert world.evicted == ["pod-0"]
    frees(world)
    world.settle()
    assert world.evicted == ["pod-0", "pod-1"]


@pytest.mark.parametrize("limit", PROFILES)
def test_end_of_an_eviction_wakes_a_pod_of_every_profile_that_counts_it(limit: str) -> None:
    """Profiles count all evictions, so what one pod leaves makes room in both."""
    narrow = structs.replace(PROFILES[limit], priority_at_most=0)
    world = without_sweep(narrow, PROFILES[limit])
    for name, priority in (("pod-0", -1), ("low", 0), ("high", 100)):
        world.add(claim(name, devices=(f"gpu-{name}",)), pod(name, priority=priority))
    world.add(rule())
    world.settle()
    assert world.evicted == ["pod-0"]
    low = world.pod("low")
    world.remove(low)  # the only one that waits for the narrow profile's limit
    world.remove(world.pod("pod-0"))
    world.settle()
    assert world.evicted == ["pod-0", "high"]


def test_end_of_an_eviction_in_another_namespace_wakes_no_pod_of_this_one() -> None:
    world = without_sweep(PROFILES["per_namespace"])
    for namespace in ("ml", "web"):
        for number in range(2):
            name = f"{namespace}-{number}"
            world.add(claim(name, namespace=namespace), pod(name, namespace=namespace))
    world.add(rule())
    world.settle()
    assert world.evicted == ["ml-0", "web-0"]
    world.remove(world.inventory.pods["web/web-0"])
    world.settle()
    assert world.evicted == ["ml-0", "web-0", "web-1"]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_replaced_pod_wakes_the_next_of_its_owner(position: int) -> None:
    world = without_sweep(*[OF_OTHERS] * position, OWNER)
    world.add(*[each for number in range(2) for each in (claim(f"pod-{number}"), owned(f"pod-{number}"))], rule())
    world.settle()
    assert world.evicted == ["pod-0"]
    world.remove(world.pod("pod-0"))
    world.settle()
    assert world.evicted == ["pod-0"]
    world.add(claim("new", devices=("clean",)), owned("new", ready=True, claims=()))
    world.advance(world.deps.settings.replacement_seconds + 1)
    assert world.evicted == ["pod-0", "pod-1"]


def test_replacement_that_becomes_ready_wakes_the_next_of_its_owner() -> None:
    world = without_sweep(OWNER)
    world.add(*[each for number in range(2) for each in (claim(f"pod-{number}"), owned(f"pod-{number}"))])
    world.add(rule(selector=DeviceSelector(device="gpu-0")))
    world.settle()
    world.remove(world.pod("pod-0"))
    replacement = owned("new", ready=False)
    world.add(claim("new", devices=("clean",)), replacement)
    world.settle()
    assert world.evicted == ["pod-0"]
    world.change(replacement, structs.replace(replacement, ready=True))
    world.settle()
    assert world.evicted == ["pod-0", "pod-1"]


def test_pod_that_fails_by_itself_is_missing_already_and_goes_at_once() -> None:
    world = without_sweep(OWNER)
    world.add(*[each for number in range(2) for each in (claim(f"pod-{number}"), owned(f"pod-{number}"))], rule())
    world.settle()
    waiting = world.pod("pod-1")
    world.change(waiting, structs.replace(waiting, ready=False))
    world.settle()
    assert world.evicted == ["pod-0", "pod-1"]


@pytest.mark.parametrize("result", [EvictionResult.GONE, EvictionResult.FAILED])
def test_token_that_was_not_used_wakes_the_next_of_its_rate(result: EvictionResult) -> None:
    world = without_sweep(structs.replace(FREE, rate=0.001, burst=1))
    world.add(*[each for number in range(2) for each in (claim(f"pod-{number}"), pod(f"pod-{number}"))], rule())
    world.cluster.answers.append(EvictionOutcome(result, "no"))
    [first] = [world.worker.ready.pop(world.clock.seconds())]
    assert first == "uid-pod-0"
    assert isinstance(world.worker.ready.pop(world.clock.seconds()), Idle)  # no token is left
    asyncio.run(world.worker.evict(first))
    assert world.worker.ready.pop(world.clock.seconds()) == "uid-pod-1"


def test_order_of_a_pod_is_made_of_priority_refusals_due_time_and_name() -> None:
    world = World(Mode.REPLACEMENT, FREE)
    world.pause = Pause(NOW + timedelta(hours=1))
    world.add(claim("pod", tolerates(5)), pod("pod", priority=7), rule())
    [plan] = world.worker.plans.scheduled.values()
    plan.refusals = 3
    order = world.worker._core.limiter.ready_pod(plan).order
    assert order == (7, 3, (NOW + timedelta(seconds=5)).timestamp(), "ml/pod")


def test_status_of_a_budget_wakes_one_that_waits_for_it() -> None:
    world = without_sweep(FREE)
    budget = Budget(allows_at=3600.0, status=0)
    world.budgets.append(budget)
    world.add(claim("pod-0"), pod("pod-0"), rule())
    world.advance(1)
    [limit] = set(world.worker.ready.parked())
    assert isinstance(limit, BudgetLimit)
    budget.allows_at, budget.status = 0.0, 1
    world.worker.observe_budget("ml", "0")
    world.settle()
    assert world.evicted == ["pod-0"]


@pytest.mark.parametrize(("seconds", "tried"), [(0.0, True), (0.5, False)])
def test_pod_that_waits_for_a_budget_is_tried_once_there_is_nothing_to_wait_for(
    seconds: float, monkeypatch: pytest.MonkeyPatch, *, tried: bool
) -> None:
    world, wake = without_sweep(FREE), Mock()
    world.budgets.append(Budget())
    world.add(claim("pod-0"), pod("pod-0"), rule())
    world.advance(1)
    [limit] = set(world.worker.ready.parked())
    assert isinstance(limit, BudgetLimit)
    monkeypatch.setattr(world.worker._room, "_wake", wake)
    world.worker._room.retry_after(limit, seconds)
    assert (len(world.worker.ready.parked()), wake.call_count) == ((0, 1) if tried else (1, 0))


def test_budget_that_refused_is_asked_again_after_five_seconds() -> None:
    world = without_sweep(FREE)
    world.budgets.append(Budget(allows_at=4.0))
    world.add(claim("pod-0"), pod("pod-0"), rule())
    world.advance(4.9)
    assert world.evicted == []
    world.advance(0.2)
    assert world.evicted == ["pod-0"]


@pytest.mark.parametrize("position", [0, 1])
def test_breaker_that_resets_wakes_all_pods_of_its_driver(position: int) -> None:
    world = without_sweep(*[OF_OTHERS] * position, FREE)
    world.breaker = BreakerSettings(devices=1, calm_seconds=20.0)
    for number in range(3):
        world.add(claim(f"pod-{number}", devices=(f"gpu-{number}",)), pod(f"pod-{number}"))
    world.add(slice_of({f"gpu-{number}": (taint(),) for number in range(3)}))
    world.advance(19)
    assert {limit.kind for limit in world.worker.ready.parked()} == {LimitKind.BREAKER}
    assert world.evicted == []
    world.advance(1.1)
    assert world.evicted == ["pod-0", "pod-1", "pod-2"]


# --- the earliest of several times --------------------------------------------------------------


TIMES = [(5, 9), (9, 5), (5, 5), (7, None), (None, 7)]


@pytest.mark.parametrize(("one", "two"), TIMES)
def test_pod_is_due_at_the_earliest_of_two_claims(one: int | None, two: int | None) -> None:
    world = World(Mode.REPLACEMENT, FREE)
    world.add(claim("pod", tolerates(one)), claim("more", tolerates(two), owner="uid-pod", devices=("gpu-1",)))
    more = claim("more", tolerates(two), owner="uid-pod", devices=("gpu-1",))
    known = world.inventory.claims["ml/more-claim"]
    world.change(known, structs.replace(more, reserved_for=world.inventory.claims["ml/pod-claim"].reserved_for))
    both = pod("pod")
    world.add(structs.replace(both, claims=(*both.claims, structs.replace(both.claims[0], claim="more-claim"))), rule())
    assert world.planned == {"pod": min(seconds for seconds in (one, two) if seconds is not None)}


@pytest.mark.parametrize(("one", "two"), TIMES)
def test_pod_is_due_at_the_earliest_of_two_taints(one: int | None, two: int | None) -> None:
    """Of two rules, of a rule and a slice, and of two taints in a slice."""
    keys = ("example.com/one", "example.com/two")
    tolerated = [tolerates(seconds, key=key) for seconds, key in zip((one, two), keys, strict=True)]
    expected = {"pod": min(seconds for seconds in (one, two) if seconds is not None)}
    for by_rule in (2, 1, 0):
        world = World(Mode.REPLACEMENT, FREE, breaker=NO_BREAKER)
        world.add(claim("pod", *tolerated), pod("pod"))
        world.add(*[rule(f"rule-{key[-3:]}", key=key) for key in keys[:by_rule]])
        world.add(slice_of({"gpu-0": tuple(taint(key=key) for key in keys[by_rule:])}))
        assert world.planned == expected


@pytest.mark.parametrize(("one", "two"), TIMES)
def test_pod_is_due_at_the_earliest_of_two_devices(one: int | None, two: int | None) -> None:
    world = World(Mode.REPLACEMENT, FREE)
    first = claim("pod", tolerates(one))
    second = claim("pod", tolerates(two), devices=("gpu-1",))
    assert first.allocation
    assert second.allocation
    world.add(structs.replace(first, allocation=(*first.allocation, *second.allocation)), pod("pod"), rule())
    assert world.planned == {"pod": min(seconds for seconds in (one, two) if seconds is not None)}


# --- the last conditions ------------------------------------------------------------------------


def at_the_end(world: World) -> None:
    """The worker stops, ten seconds before it would write again."""
    asyncio.run(world.worker.stop())


def test_last_condition_says_what_came_of_the_rule() -> None:
    """A rollout after the last eviction leaves no rule that says True for ever."""
    world = World(Mode.REPLACEMENT, FREE)
    world.add(claim(), pod(), rule(selector=DeviceSelector(driver=DRIVER)))
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
    world = World(Mode.REPLACEMENT, FREE)
    world.add(claim(), pod(), rule())
    world.advance(6)
    before = list(world.cluster.writes)
    world.leads, world.trusted = leads, trusted
    world.worker.backlog.pods.add(("ml/pod",))
    at_the_end(world)
    assert world.cluster.writes == before
    assert world.worker.backlog.pod_count == 1  # nor is it planned what would be written


def test_last_condition_counts_what_was_not_planned_yet() -> None:
    """Planning in time slices is finished first."""
    world = World(Mode.OBSERVE, FREE)
    world.add(rule())
    world.advance(20)
    for number in range(3):
        world.inventory.apply(None, claim(f"pod-{number}"))
        world.inventory.apply(None, pod(f"pod-{number}"))
    world.worker.backlog.pods.add(world.inventory.pods)
    at_the_end(world)
    assert world.condition("rule")[2] == "0 pods evicted; 3 pods would be evicted in 1 namespace"
