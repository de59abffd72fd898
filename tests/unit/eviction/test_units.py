"""Pods that belong together are evicted together, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.costs import calls_of
from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates, users, using
from tests.unit.eviction.world import EVICTED, FAILED, FREE, Budget, FakeCluster, World, evicting, gentle
from webhook.api.claims import Consumer, ResourceClaim
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, Pod, PodClaim, PodGroup
from webhook.api.rules import DeviceSelector
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, PodRef
from webhook.inventory.state import InventoryObject

JOB_SET = "jobset.sigs.k8s.io/jobset-name"


def member(name: str, gang: str = "train", **fields: Any) -> Pod:
    """A rank of a JobSet."""
    return owned(name, by=f"job-{gang}", kind="Job", labels=((JOB_SET, gang),), **fields)


def gang(
    *names: str, of: str = "train", seconds: Mapping[str, int] | None = None, **fields: Any
) -> list[ResourceClaim | Pod]:
    """Ranks with a claim each."""
    made = list[ResourceClaim | Pod]()
    for name in names:
        tolerations = () if seconds is None or name not in seconds else (tolerates(seconds[name]),)
        made += [claim(name, *tolerations, devices=(f"gpu-{name}",)), member(name, of, **fields)]
    return made


def group(mode: str = ALL, name: str = "ring") -> PodGroup:
    return PodGroup(ObjectMeta(name=name, namespace="ml", uid=f"uid-{name}"), mode, None)


# --- gangs --------------------------------------------------------------------------------------


TOGETHER: dict[str, tuple[list[InventoryObject], list[str]]] = {
    "ranks of a JobSet": ([*gang("a", "b", "c")], ["a", "b", "c"]),
    "ranks of a JobSet, but for one that no taint hits": ([*gang("a"), claim("b", tolerates()), member("b")], ["a"]),
    "and no mirror pod, which is not waited for": (
        [*gang("a"), claim("b", tolerates(30)), member("b", mirror=True)],
        ["a"],
    ),
    "a PodGroup of mode all, with those that no taint hits, but not those without a node": (
        [
            *(group(), claim("a"), pod("a", pod_group="ring"), pod("b", pod_group="ring", claims=())),
            pod("c", pod_group="ring", claims=(), node_name=""),
        ],
        ["a", "b"],
    ),
    "no PodGroup of mode single": ([group(SINGLE), *using("a", "b", pod_group="ring")], ["a"]),
}


@pytest.mark.parametrize(("objects", "evicted"), TOGETHER.values(), ids=TOGETHER)
def test_pods_that_go_together_take_one_place_of_their_owner(
    objects: list[InventoryObject], evicted: list[str]
) -> None:
    assert sorted(gentle(*objects, rule()).settled()) == evicted


def test_second_gang_of_an_owner_waits_until_the_first_is_whole() -> None:
    """Two groups of a LeaderWorkerSet: one place, which is free once all pods of the first group are back and ready."""
    world = gentle()
    of_a, of_b = (
        (("leaderworkerset.sigs.k8s.io/group-key", key), ("leaderworkerset.sigs.k8s.io/name", "serve")) for key in "ab"
    )
    world.add(*using("a0", "a1", labels=of_a), *using("b0", "b1", labels=of_b), rule())
    assert sorted(world.settled()) == ["a0", "a1"]
    world.add(pod("a2", labels=of_a))
    assert len(world.settled()) == 2, "one pod of the group is still missing"
    world.add(pod("a3", labels=of_a, ready=False))
    assert len(world.settled()) == 2, "the last pod is not ready"
    world.edit(world.pod("a3"), ready=True)
    assert sorted(world.settled()) == ["a0", "a1", "b0", "b1"]


def test_gang_that_is_not_replaced_counts_as_unavailable_for_a_minute() -> None:
    """A Job controller waits 10 s or longer, others until the last pod is gone."""
    world = gentle(gang_labels=("devicetaint.io/pool",))
    for name in ("a0", "b0"):
        world.add(claim(name), owned(name, labels=(("devicetaint.io/pool", name),)))
    world.add(rule())
    world.advance(120)
    first, second = sorted(world.went_at.values())
    assert (first, second) == (0, 60)


LATE = {"b": 30}
COMPLETES = {"wait_for_completion_seconds": 100.0}
WAITS: dict[str, tuple[list[ResourceClaim | Pod], dict[str, Any], dict[str, int]]] = {
    "the last that is due within a minute": (
        gang("a", "b", "c", "d", seconds={"b": 30, "c": 60, "d": 61}),
        {},
        {"a": 60, "b": 60, "c": 60, "d": 61},
    ),
    "the last within the window of the profile": (
        gang("a", "b", "c", seconds={"b": 10, "c": 11}),
        {"gang_window_seconds": 10.0},
        {"a": 10, "b": 10, "c": 11},
    ),
    "the last that may complete": (
        [*gang("a", "b", seconds=LATE, completes=True), *gang("c")],
        COMPLETES,
        {"a": 130, "b": 130, "c": 130},
    ),
    "the last, if all are left to complete": (
        gang("a", "b", seconds=LATE, completes=True),
        COMPLETES,
        {"a": 130, "b": 130},
    ),
    "the last hold, if all are on hold": (
        gang("a", "b", seconds=LATE, hold="checkpoint"),
        {"max_hold_seconds": 100.0},
        {"a": 130, "b": 130},
    ),
    "tokens that a gang before took all at once": (
        [*gang("a0", "a1", "a2", "a3", of="one"), *gang("b0", of="two")],
        {"rate": 1.0, "burst": 1},
        {"a0": 0, "a1": 0, "a2": 0, "a3": 0, "b0": 4},
    ),
}


@pytest.mark.parametrize(("pods", "settings", "expected"), WAITS.values(), ids=WAITS)
def test_gang_waits_for(pods: list[ResourceClaim | Pod], settings: dict[str, Any], expected: dict[str, int]) -> None:
    world = evicting(*pods, rule(), **settings)
    world.advance(140)
    assert world.went_at == expected


def test_large_unit_keeps_to_the_requests_that_may_be_in_flight() -> None:
    class Slow(FakeCluster):
        now, most = 0, 0

        async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1
            return await super().evict(pod, grace_period_seconds)

    world = gentle(*gang(*"abcdefgh"), rule(), cluster=Slow, workers=3)
    world.settle()
    assert isinstance(world.cluster, Slow)
    assert (len(world.evicted), world.cluster.most) == (8, 3)


# --- shared claims ------------------------------------------------------------------------------


def sharing(world: World, name: str, *pods: Pod) -> None:
    """A claim that these pods use beside others of theirs."""
    consumers = users(*[each.meta.name for each in pods])
    world.add(claim(name, consumers=consumers, owner="", devices=(f"gpu-{name}",)), *pods)


def test_pods_of_one_claim_wait_for_the_last_of_them_however_late() -> None:
    """Unlike those of a gang, which wait within a window of a minute."""
    patient = structs.replace(FREE, priority_at_most=-1, grace_seconds=100.0)
    world = World(Mode.REPLACEMENT, patient, FREE)
    using = (PodClaim("both-claim"),)
    sharing(world, "both", pod("a", claims=using), pod("b", claims=using, priority=-1))
    world.add(rule())
    world.advance(110)
    assert world.went_at == {"a": 100, "b": 100}


# --- PodGroups ----------------------------------------------------------------------------------


def test_replacements_do_not_go_along_with_pods_that_are_on_their_way_out() -> None:
    """Seen on a real API server: Job pods stay in Terminating until the Job controller has counted them."""
    world = gentle(lingering=True)
    world.add(group(), claim("a"), pod("a", pod_group="ring"), pod("b", pod_group="ring", claims=()), rule())
    assert sorted(world.settled()) == ["a", "b"]
    assert world.pod("a").deleting
    world.add(pod("c", pod_group="ring", claims=()))
    assert sorted(world.after(60)) == ["a", "b"]
    world.add(claim("d"), pod("d", pod_group="ring"))
    assert sorted(world.after(60)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("hold", [None, "too late"])
def test_member_that_was_refused_goes_after_the_pod_that_it_goes_along_with(hold: str | None) -> None:
    world = gentle(group(), claim("a"), pod("a", pod_group="ring"), pod("b", pod_group="ring", claims=()))
    world.cluster.lingering = True
    world.cluster.answers += [EVICTED, FAILED]
    world.add(rule())
    assert world.settled() == ["a"]
    assert world.pod("a").deleting
    world.edit(world.pod("a"), hold=hold)
    assert sorted(world.after(60)) == ["a", "b"]


def test_of_pods_due_at_the_same_time_the_first_by_name_is_why_others_go() -> None:
    world = gentle(group(), pod("z", pod_group="ring", claims=()))
    for name in "ba":
        world.add(rule(f"rule-{name}", selector=DeviceSelector(DRIVER, None, f"gpu-{name}")))
        world.add(claim(name, tolerates(10), devices=(f"gpu-{name}",)), pod(name, pod_group="ring"))
    world.settle()
    assert world.worker._core.plan.going["uid-z"].eviction.rules == (("uid-rule-a", "rule-a"),)


def large_ring(size: int) -> World:
    """A taint hits so many members of a group of twice that size; nothing is planned yet."""
    world = evicting(group())
    for number in range(size):
        name = f"hit-{number:03}"
        world.add(claim(name, tolerates(1000), devices=(f"gpu-{name}",)), pod(name, pod_group="ring"))
        world.add(pod(f"other-{number:03}", pod_group="ring", claims=()))
    world.add(rule())
    return world


def test_cost_of_a_group_grows_with_its_size_and_not_with_the_square() -> None:
    few, many = (calls_of(World.catch_up, partial(large_ring, size)) for size in (50, 200))
    assert many < 5 * few


def test_group_that_keeps_claims_reserved_gets_one_event() -> None:
    world = gentle()
    reserved = (Consumer("scheduling.k8s.io", "podgroups", "ring", "uid-ring"),)
    world.add(group(SINGLE))
    for name in ("a", "b"):
        world.add(claim(name, consumers=reserved, owner="uid-ring", group="ring"), pod(name, pod_group="ring"))
    world.add(rule())
    assert world.after(60) == []
    assert world.condition("rule")[1] == "HeldByPodGroup"
    assert world.told("EvictionHeldByPodGroup") == ["ring", "rule"]
    [event] = [each for each in world.cluster.events if isinstance(each.about, PodGroup)]
    assert event.warning
    assert event.text == (
        "pod ml/a would be evicted because of DeviceTaintRule rule, but is left alone: its claims stay reserved for "
        "this PodGroup, and are freed only when the PodGroup is deleted"
    )


# --- deadlines and failures ---------------------------------------------------------------------


def test_gang_is_deleted_as_a_whole_after_the_deadline() -> None:
    world = gentle(*gang("a", "b", "c"), rule(), deadline_seconds=20.0, delete_after_deadline=True, budgets=[Budget()])
    world.advance(60)
    assert sorted(verb for verb, *_ in world.cluster.calls) == ["delete"] * 3
    assert len(set(world.went_at.values())) == 1
