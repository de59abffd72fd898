"""What is remembered of pods and rules that are gone."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import Any, Final

import pytest

from tests.unit.eviction.findings.turmoil import Turmoil
from tests.unit.eviction.objects import claim, pod, rule, tolerates
from tests.unit.eviction.world import BLOCKED, FREE, World, evicting
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, PodGroup
from webhook.api.rules import EXPIRES_AT
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult

ROUNDS = 20
UNSURE = EvictionOutcome(EvictionResult.FAILED, "no answer", 5.0, unsure=True)
BOUNDED: Final = {"_closed", "_rates", "_timed", "_asking", "gate_of"}
"""What `Room` finds out for one look, or for the pods of up to so many taints."""


def remembered(world: World) -> dict[str, int]:
    """How many things are in each collection of the worker and of its parts."""
    found, seen = dict[str, int](), set[int]()

    def look(at: str, part: Any) -> None:
        if isinstance(part, dict | set | frozenset | list | deque):
            found[at] = len(part)
        elif type(part).__module__.startswith(("webhook.eviction.", "webhook.flowcontrol.", "webhook.inventory.e")):
            fresh = id(part) not in seen
            seen.add(id(part))
            for name, value in attributes(part).items() if fresh else ():
                if name not in ("deps", "_deps", *BOUNDED):
                    look(f"{at}.{name}", value)

    look("worker", world.worker)
    return found


def left_in(world: World) -> dict[str, int]:
    """The collections in which there is more than in those of a new worker."""
    kept, fresh = remembered(world), remembered(World(Mode.REPLACEMENT, FREE))
    assert "worker._core.ledger.taken" in kept, "parts are looked at"
    return {at: number for at, number in kept.items() if number > fresh.get(at, 0)}


def attributes(part: Any) -> dict[str, Any]:
    names = [*getattr(part, "__dict__", ())]
    for base in type(part).__mro__:
        names += getattr(base, "__slots__", ())
    return {name: getattr(part, name) for name in names if hasattr(part, name)}


def test_failures_of_a_pod_are_forgotten_once_it_is_gone() -> None:
    """L2: the worker forgets the failures of a pod that goes while it waits in the queue."""
    world = evicting(rule(), per_namespace=1, lingering=True)
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
    assert world.worker._core.ledger.failures == {}


def test_failures_of_a_pod_are_forgotten_once_no_taint_evicts_it() -> None:
    """So a taint that comes back starts over."""
    world = evicting()
    world.cluster.answers = deque([BLOCKED] * 3)
    world.add(claim("pod"), pod("pod"), rule())
    world.advance(11)
    assert world.worker._core.ledger.failures["uid-pod"].refusals == 3
    world.remove(world.inventory.rules["rule"])
    world.settle()
    assert world.worker._core.ledger.failures == {}


def test_cache_of_verdicts_by_tolerations_is_bounded() -> None:
    world = evicting(rule())
    for seconds in range(2000):
        held, waits = claim("pod", tolerates(3600 + seconds)), pod("pod")
        world.add(held, waits)
        world.remove(waits, held)
    assert len(world.worker._core.evictions._alike) <= 1024


def test_memo_of_rates_is_bounded() -> None:
    """Pods under different taints or tolerations that wait for the same limit; it is cleared once it is full."""
    world = evicting(overall=0)
    world.clock.wall += timedelta(hours=2)
    for seconds in range(1100):
        world.add(claim(f"pod-{seconds}", tolerates(seconds)), pod(f"pod-{seconds}"))
    world.add(rule())
    world.settle()
    room = world.worker._core.room
    assert len(world.worker._core.line) == 1100
    assert max(len(room._rates), len(room._timed)) <= 1024


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_remembered_of_a_cluster_that_is_empty(seed: int) -> None:
    turmoil = Turmoil(seed, shares=True, readiness=True, budgets=True, together=seed % 2 > 0)
    assert turmoil.stalled() == ""
    world, inventory = turmoil.world, turmoil.world.inventory
    world.remove(*inventory.rules.values(), *inventory.pods.values(), *inventory.claims.values())
    world.advance(700)
    world.worker.forget_idle()
    assert left_in(world) == {}


def test_evictions_count_for_a_minute_and_not_longer_also_without_a_limit_per_minute() -> None:
    world = evicting(rule())
    for number in range(ROUNDS):
        held, gone = claim(f"pod-{number}"), pod(f"pod-{number}")
        world.add(held, gone)
        world.advance(10)
        world.remove(held)
    departures = world.worker._core.ledger.departures
    world.worker.forget_idle()
    assert len(departures[FREE]) == 5  # the last one was 10 s ago
    world.advance(49)
    world.worker.forget_idle()
    assert len(departures[FREE]) == 1
    world.advance(1)
    world.worker.forget_idle()
    assert departures == {}


def test_wait_for_the_expiry_of_a_rule_ends_once_the_rule_is_deleted() -> None:
    world = evicting()
    for number in range(ROUNDS):
        expiring = rule(f"rule-{number}", annotations={EXPIRES_AT: "2099-01-01T00:00:00Z"})
        world.add(expiring)
        world.advance(30)
        world.remove(world.inventory.rules[expiring.meta.name])
        world.settle()
    world.add(rule("stays", annotations={EXPIRES_AT: "2099-01-01T00:00:00Z"}))
    world.advance(30)
    assert list(world.worker._core.rules._ready_at) == ["stays"]


@pytest.mark.parametrize("released", ["hold", "taint time"])
def test_plan_does_not_wake_for_pods_that_waited_for_each_other_and_are_gone(released: str) -> None:
    """L2: the watch may be faster than the response to an eviction; what a pod waited for is an hour away."""
    world = evicting()
    late = [tolerates(3000)] if released == "taint time" else []
    world.add(PodGroup(ObjectMeta("ring", namespace="ml", uid="uid-ring"), ALL))
    world.add(claim("a"), pod("a", pod_group="ring"))
    world.add(claim("b", *late), pod("b", pod_group="ring", hold=None if late else "checkpoint"), rule())
    assert world.after(1) == []
    if late:
        known = world.inventory.claims["ml/b-claim"]
        world.change(known, claim("b"))
    else:
        world.edit(world.pod("b"), hold=None)
    assert sorted(world.settled()) == ["a", "b"]
    assert world.worker._core.plan.wake_at is None
