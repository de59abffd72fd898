"""Rates and the sliding minute: many taints at once, refused requests, and a new process."""

from __future__ import annotations

from datetime import timedelta

from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint
from tests.unit.eviction.world import FREE, Budget, World
from webhook.api.rules import EVICTIONS_PER_SECOND, DeviceSelector
from webhook.eviction.modes import Mode
from webhook.policy.model import EvictionProfile

NODES, DEVICES = 10, 8


def storm(profile: EvictionProfile) -> World:
    """A driver taints all devices of ten nodes, a second between two nodes."""
    world = World(Mode.REPLACEMENT, profile)
    for node in range(NODES):
        for device in range(DEVICES):
            name = f"pod-{node}-{device}"
            world.add(claim(name, devices=(f"gpu-{device}",), pool=f"node-{node}"), pod(name))
    for node in range(NODES):
        broken = taint(added=NOW - timedelta(seconds=node))
        devices = {f"gpu-{device}": (broken,) for device in range(DEVICES)}
        world.add(slice_of(devices, name=f"slice-{node}", pool=f"node-{node}"))
    return world


def test_taints_of_one_driver_and_key_share_a_rate() -> None:
    """H7: a rate of 10 with a burst of 10 holds for a driver and key, whenever its nodes were tainted."""
    world = storm(EvictionProfile(per_owner_unavailable=None))
    assert len(world.after(1)) <= 21


def test_driver_that_taints_most_of_its_devices_is_not_acted_on() -> None:
    """H7: once more than a fifth of a driver's devices were tainted within five minutes the breaker stops evictions."""
    world = storm(FREE)
    assert len(world.after(60)) <= NODES * DEVICES / 5


def test_refused_evictions_add_no_tokens_to_an_empty_bucket() -> None:
    """M12: a refused eviction returns to each bucket only the token that it took from it."""
    slow = structs.replace(FREE, rate=1 / 60, burst=10)
    world = World(Mode.REPLACEMENT, slow)
    for number in range(30):
        # ten use the burst of the slow taint, ten are under both taints and are refused, ten wait for the slow one
        name = f"{'first' if number < 10 else 'both' if number < 20 else 'late'}-{number}"
        world.add(claim(name, devices=(name,)), pod(name, priority=number))
    world.add_budget(Budget("both"))
    for number in range(10, 20):
        fast = {EVICTIONS_PER_SECOND: "100"}
        selector = DeviceSelector(device=f"both-{number}")
        world.add(rule(f"fast-{number}", key="example.com/fast", selector=selector, annotations=fast))
    world.add(rule("slow"))
    assert len(world.after(5)) <= 10


def test_new_process_counts_evictions_of_the_last_minute() -> None:
    """M15: `maxPerMinute` holds across a restart, by the pods that are on their way out when the process starts."""
    limited = structs.replace(FREE, max_per_minute=2)
    first = World(Mode.REPLACEMENT, limited)
    first.cluster.lingering = True
    for number in range(6):
        first.add(claim(f"pod-{number}", devices=(f"gpu-{number}",)), pod(f"pod-{number}"))
    first.add(rule())
    assert len(first.after(10)) == 2
    second = World(Mode.REPLACEMENT, limited)
    second.add(*first.inventory.claims.values(), *first.inventory.pods.values(), *first.inventory.rules.values())
    assert second.after(30) == []
