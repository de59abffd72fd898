"""What is remembered of pods and rules that are gone."""

from __future__ import annotations

from collections import deque

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.findings.turmoil import Turmoil
from tests.unit.eviction.objects import claim, pod, rule, tolerates
from tests.unit.eviction.world import BLOCKED, FREE, World
from webhook.api.rules import DeviceSelector
from webhook.eviction.modes import Mode
from webhook.eviction.plans import UnderWay
from webhook.eviction.ports import Ceiling, EvictionOutcome, EvictionResult

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
    turmoil = Turmoil(seed, shares=True, readiness=True, budgets=True)
    assert turmoil.stalled() == ""
    world, worker = turmoil.world, turmoil.world.worker
    inventory, core = world.inventory, worker._core
    world.remove(*inventory.rules.values(), *inventory.pods.values(), *inventory.claims.values())
    world.advance(700)
    core.limiter.forget_idle(world.clock.seconds())
    kept = {
        name: len(held) for name, held in {**vars(worker.plans), **vars(worker.plans.owners)}.items() if _sized(held)
    }
    kept |= {name: len(held) for name, held in vars(worker.ready).items() if _sized(held)}
    kept |= {"failures": len(worker.queue._failures), "gates": len(core.gate), "reserved": len(core.limiter._reserved)}
    kept |= {"rules": len(worker.rules._states), "announced": len(core.announcements._known)}
    assert {name: count for name, count in kept.items() if count} == {}


def _sized(held: object) -> bool:
    return isinstance(held, dict | set | list | UnderWay)
