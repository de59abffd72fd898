"""What is remembered of pods and rules that are gone."""

from __future__ import annotations

from collections import deque

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.findings.turmoil import Turmoil
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import BLOCKED, FREE, World
from webhook.api.meta import ObjectMeta
from webhook.api.pod_groups import ALL, PodGroup
from webhook.api.rules import EXPIRES_AT, DeviceSelector
from webhook.eviction.core import ItemKind, WorkItem
from webhook.eviction.modes import Mode
from webhook.eviction.plans import UnderWay
from webhook.eviction.ports import Ceiling, EvictionOutcome, EvictionResult
from webhook.policy.model import BreakerSettings

ROUNDS = 20
UNSURE = EvictionOutcome(EvictionResult.FAILED, "no answer", 5.0, unsure=True)


def test_pod_whose_eviction_was_not_answered_is_forgotten_once_it_is_gone() -> None:
    """L2: the worker forgets an eviction without an answer when the watch shows that the pod is gone."""
    world = World(Mode.REPLACEMENT, FREE)
    world.add(rule())
    for number in range(ROUNDS):
        world.cluster.answers = deque([UNSURE])
        held, gone = claim(f"pod-{number}"), pod(f"pod-{number}")
        world.add(held, gone)
        world.settle()
        world.remove(gone, held)
        world.advance(6)
    assert world.worker.plans.scheduled == {}


def test_failures_of_a_pod_are_forgotten_once_it_is_gone() -> None:
    """L2: the worker forgets the failures of a pod that goes while it waits in the queue."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, per_namespace=1))
    world.cluster.lingering = True
    world.add(rule())
    for number in range(ROUNDS):
        world.cluster.answers = deque([BLOCKED])
        blocked, other = f"blocked-{number}", f"other-{number}"
        world.add(claim(blocked, devices=(blocked,)), pod(blocked))
        world.settle()
        world.add(claim(other, devices=(other,)), pod(other))
        world.advance(8)
        for name in (blocked, other):
            world.remove(world.pod(name), world.inventory.claims[f"ml/{name}-claim"])
        world.settle()
    assert len(world.worker.queue._failures) == 0


def test_rule_that_was_stopped_is_forgotten_once_it_is_deleted() -> None:
    """L2: a rule that a ceiling stopped leaves nothing behind."""
    world = World(Mode.REPLACEMENT, FREE, ceiling_of=lambda _: Ceiling(0, None))
    world.add(claim("pod"), pod("pod"))
    for number in range(ROUNDS):
        stopped = rule(f"rule-{number}", selector=DeviceSelector(driver=DRIVER))
        world.add(stopped)
        world.advance(1)
        world.remove(world.inventory.rules[stopped.meta.name])
        world.settle()
    assert len(world.worker._core.evictions._suspended) == 0


def test_cache_of_verdicts_by_tolerations_is_bounded() -> None:
    """L2: the cache of verdicts by tolerations is bounded, also while no rule changes."""
    world = World(Mode.REPLACEMENT, FREE)
    world.add(rule())
    for seconds in range(2000):
        held, waits = claim("pod", tolerates(3600 + seconds)), pod("pod")
        world.add(held, waits)
        world.remove(waits, held)
    assert len(world.worker._core.evictions._alike) <= 1024


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_remembered_of_a_cluster_that_is_empty(seed: int) -> None:
    """L2: whatever happened to pods, rules and budgets, all indexes are empty once these are gone."""
    turmoil = Turmoil(seed, shares=True, readiness=True, budgets=True, together=seed % 2 > 0)
    assert turmoil.stalled() == ""
    world, worker = turmoil.world, turmoil.world.worker
    inventory, core = world.inventory, worker._core
    world.remove(*inventory.rules.values(), *inventory.pods.values(), *inventory.claims.values())
    world.advance(700)
    core.limiter.forget_idle(world.clock.seconds())
    parts = (worker.plans, worker.plans.owners, worker.plans.units, worker.plans.companions)
    kept = {name: len(held) for part in parts for name, held in vars(part).items() if _sized(held)}
    kept |= {name: len(held) for name, held in vars(worker.ready).items() if _sized(held)}
    kept |= {"failures": len(worker.queue._failures), "gates": len(core.gate._gates), "units": len(core.gate._units)}
    kept |= {"reserved": len(core.limiter._reserved)}
    kept |= {"rules": len(worker.rules._states), "announced": len(core.announcements._known)}
    assert {name: count for name, count in kept.items() if count} == {}


def _sized(held: object) -> bool:
    return isinstance(held, dict | set | list | UnderWay)


def test_evictions_count_for_a_minute_and_not_longer_also_without_a_limit_per_minute() -> None:
    """The worker forgets when it evicted a pod a minute later, whether or not `maxPerMinute` is set."""
    world = World(Mode.REPLACEMENT, FREE)
    world.add(rule())
    for number in range(ROUNDS):
        held, gone = claim(f"pod-{number}"), pod(f"pod-{number}")
        world.add(held, gone)
        world.advance(10)
        world.remove(held)
    limiter, now = world.worker._core.limiter, world.clock.seconds()
    [minute] = limiter._minutes.values()
    limiter.forget_idle(now)
    assert len(minute._done) == 5  # the last one was 10 s ago
    limiter.forget_idle(now + 49)
    assert list(limiter._minutes.values()) == [minute]
    limiter.forget_idle(now + 50)
    assert not limiter._minutes


def test_driver_that_taints_no_device_any_more_is_forgotten() -> None:
    """The breaker forgets a driver once none of its devices was tainted within the window."""
    world = World(Mode.REPLACEMENT, FREE, breaker=BreakerSettings(devices=5, window_seconds=30))
    for number in range(ROUNDS):
        tainted = slice_of({"gpu": (taint(added=world.clock.wall),)}, name=f"slice-{number}")
        world.add(structs.replace(tainted, driver=f"driver-{number}"))
        world.advance(10)
    breaker, limiter = world.worker._core.breaker, world.worker._core.limiter
    limiter.forget_idle(world.clock.seconds())
    assert sorted(breaker._drivers) == [f"driver-{ROUNDS - 2}", f"driver-{ROUNDS - 1}"]  # 20 s and 10 s ago, not 30


def test_driver_whose_breaker_tripped_is_not_forgotten() -> None:
    """A breaker that has tripped stays so until the driver is calm, which may take longer than the window."""
    world = World(Mode.REPLACEMENT, FREE, breaker=BreakerSettings(devices=1, window_seconds=30, calm_seconds=120))
    world.add(slice_of({name: (taint(added=world.clock.wall),) for name in ("a", "b")}))
    assert len(world.worker._core.breaker.tripped) == 1
    world.advance(60)
    world.worker._core.limiter.forget_idle(world.clock.seconds())
    assert len(world.worker._core.breaker.tripped) == 1


def test_wait_of_a_pod_ends_once_the_pod_is_gone_or_spared() -> None:
    """The worker forgets until when a pod waits, by its toleration or a hold, when its plan is dropped."""
    world = World(Mode.REPLACEMENT, FREE)
    world.add(rule())
    for number in range(ROUNDS):
        held = claim(f"held-{number}")
        tolerant = claim(f"tolerant-{number}", tolerates(86_400))
        pods = pod(f"held-{number}", hold="why not"), pod(f"tolerant-{number}")
        world.add(held, tolerant, *pods)
        world.settle()
        world.remove(pods[0], held, tolerant)  # the other one has no devices any more
    world.settle()
    assert waiting(world, ItemKind.POD) == []


def test_wait_for_the_expiry_of_a_rule_ends_once_the_rule_is_deleted() -> None:
    """The worker forgets when a rule expires, which may be in months, once the rule is deleted."""
    world = World(Mode.REPLACEMENT, FREE)
    for number in range(ROUNDS):
        expiring = rule(f"rule-{number}", annotations={EXPIRES_AT: "2099-01-01T00:00:00Z"})
        world.add(expiring)
        world.advance(30)
        world.remove(world.inventory.rules[expiring.meta.name])
        world.settle()
    world.add(rule("stays", annotations={EXPIRES_AT: "2099-01-01T00:00:00Z"}))
    world.advance(30)
    assert [item.name for item in waiting(world, ItemKind.RULE)] == ["stays"]


def waiting(world: World, kind: ItemKind) -> list[WorkItem]:
    """What waits for a time in the work queue."""
    return [item for item in world.worker.queue._ready_at if isinstance(item, WorkItem) and item.kind is kind]


@pytest.mark.parametrize("released", ["hold", "taint time"])
def test_nothing_is_queued_for_pods_that_waited_for_each_other_and_are_gone(released: str) -> None:
    """L2: the watch may be faster than the response to an eviction; what a pod waited for is an hour away."""
    world = World(Mode.REPLACEMENT, FREE)
    late = [tolerates(3000)] if released == "taint time" else []
    world.add(PodGroup(ObjectMeta("ring", namespace="ml", uid="uid-ring"), ALL))
    world.add(claim("a"), pod("a", pod_group="ring"))
    world.add(claim("b", *late), pod("b", pod_group="ring", hold=None if late else "checkpoint"), rule())
    world.advance(1)
    assert world.evicted == []
    if late:
        known = world.inventory.claims["ml/b-claim"]
        world.change(known, claim("b"))
    else:
        held = world.pod("b")
        world.change(held, structs.replace(held, hold=None))
    world.settle()
    assert sorted(world.evicted) == ["a", "b"]
    kept = [item for item in world.worker.queue._ready_at if isinstance(item, WorkItem) and item.kind is ItemKind.POD]
    assert kept == []
