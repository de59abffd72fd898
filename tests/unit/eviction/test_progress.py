"""How many pods of a rule are counted, and as what."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates
from tests.unit.eviction.world import BLOCKED, FREE, World
from webhook.api.claims import Consumer
from webhook.api.meta import ObjectMeta
from webhook.api.pod_groups import SINGLE, PodGroup
from webhook.api.pods import PodClaim
from webhook.eviction.conditions import HeldByPodGroup, ReturningPods
from webhook.eviction.modes import Mode
from webhook.eviction.progress import ProgressCount

if TYPE_CHECKING:
    from webhook.eviction.conditions import Progress

COUNTED = ("pending", "namespaces", "due", "blocked", "held", "skipped", "next_due")


def progress(world: World) -> Progress:
    return asyncio.run(ProgressCount(world.worker._core).count("uid-rule"))


def figures(world: World) -> dict[str, object]:
    """Those that are not zero."""
    found = progress(world)
    return {name: value for name in COUNTED if (value := getattr(found, name))}


def test_every_pod_counts_once() -> None:
    world = World(Mode.REPLACEMENT, FREE)
    for number in range(3):
        world.add(claim(f"held-{number}"), pod(f"held-{number}", hold="later"))
    for number, seconds in enumerate((90, 60, 120)):
        world.add(claim(f"early-{number}", tolerates(seconds)), pod(f"early-{number}"))
    for number in range(2):
        world.add(claim(f"agent-{number}"), owned(f"agent-{number}", kind="DaemonSet"))
    world.add(claim("elsewhere", namespace="web"), pod("elsewhere", namespace="web"))
    world.add(claim("leaving"), pod("leaving", deleting=True), rule())
    expected = {"pending": 7, "namespaces": 2, "due": 4, "held": 3, "skipped": 2}
    assert figures(world) == {**expected, "next_due": NOW + timedelta(seconds=60)}


def test_pod_is_blocked_if_its_budget_refused_it_or_it_waits_for_that_budget() -> None:
    world = World(Mode.REPLACEMENT, FREE)
    for number in range(3):
        world.add(claim(f"pod-{number}"), pod(f"pod-{number}"))
    world.add(rule())
    assert figures(world) == {"pending": 3, "due": 3, "namespaces": 1}
    plans = list(world.worker.plans.scheduled.values())
    plans[0].blocked = True
    assert figures(world)["blocked"] == 1
    plans[1].blocked = True
    assert figures(world)["blocked"] == 2


@pytest.mark.parametrize("count", [1, 2])
def test_pod_that_waits_for_its_budget_is_blocked(count: int) -> None:
    world = World(Mode.REPLACEMENT, FREE)
    world.cluster.answers.extend([BLOCKED] * count)
    for number in range(count):
        world.add(claim(f"pod-{number}"), pod(f"pod-{number}"))
    world.add(rule())
    world.settle()
    assert figures(world) == {"pending": count, "due": count, "namespaces": 1, "blocked": count}


def test_pods_behind_a_limit_of_the_profile_are_counted_by_it_and_three_are_named() -> None:
    world = World(Mode.REPLACEMENT, structs.replace(FREE, overall=1))
    world.cluster.lingering = True
    for number in range(6):
        world.add(claim(f"pod-{number}"), pod(f"pod-{number}"))
    world.add(rule())
    world.settle()
    found = progress(world)
    assert (found.pending, found.due, found.blocked) == (5, 5, 0)
    [limited] = found.limited
    assert limited[:2] == ("overall", 5)
    assert len(limited[2]) == 3
    assert list(limited[2]) == sorted(plan.key for plan in world.worker.plans.scheduled.values())[:3]


def test_pods_that_a_pod_group_keeps_are_counted_by_it() -> None:
    world = World(Mode.REPLACEMENT, FREE)
    world.add(PodGroup(ObjectMeta("ring", namespace="ml", uid="uid-ring"), SINGLE))
    reserved = (Consumer("scheduling.k8s.io", "podgroups", "ring", "uid-ring"),)
    for name in "ab":
        world.add(claim(name, consumers=reserved, owner="uid-ring", group="ring"), pod(name, pod_group="ring"))
    world.add(rule())
    found = progress(world)
    assert (found.pending, found.held_by) == (0, (HeldByPodGroup("ml/ring", 2),))


def test_pods_that_come_back_to_a_device_are_counted_by_their_claim_and_owner() -> None:
    world = World(Mode.REPLACEMENT, FREE)
    world.add(claim("shared", owner="", consumers=()), rule())
    using, returns = (PodClaim("shared-claim"),), world.worker._core.returns
    for name in ("first", "second"):
        returns.begin(pod(name, claims=using))
        returns.end(pod(name, claims=using), evicted=True)
    known = world.inventory.claims["ml/shared-claim"]
    consumers = tuple([Consumer("", "pods", name, f"uid-{name}") for name in "abc"])
    world.change(known, structs.replace(known, reserved_for=consumers))
    world.add(pod("a", claims=using), owned("b", claims=using), owned("c", claims=using))
    found = progress(world)
    owner_less, of_owner = (
        ReturningPods("ml/shared-claim", owner, pods) for owner, pods in (("", 1), ("ReplicaSet/rs", 2))
    )
    assert (found.pending, found.returning) == (0, (owner_less, of_owner))


def test_pods_that_stay_in_terminating_are_named() -> None:
    world = World(Mode.REPLACEMENT, FREE)
    world.cluster.lingering = True
    for name in ("b", "a"):
        world.add(claim(name), pod(name))
    world.add(rule())
    world.advance(FREE.stuck_after_seconds + 10)
    assert progress(world).stuck == ("ml/a", "ml/b")
