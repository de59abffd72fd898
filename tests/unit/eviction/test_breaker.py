"""When taints in slices of a driver are not acted on any more, and when they are again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import FREE, NO_BREAKER, World
from webhook.api.rules import DeviceSelector
from webhook.eviction.limits import BreakerLimit
from webhook.eviction.modes import Mode
from webhook.policy.model import BreakerSettings, Share

FIFTH = BreakerSettings()
DEVICES = 10


def cluster(breaker: BreakerSettings = FIFTH, *, tainted: int = 0) -> World:
    """Ten devices, each used by one pod."""
    world = World(Mode.REPLACEMENT, FREE, breaker=breaker)
    for number in range(DEVICES):
        world.add(claim(f"pod-{number}", devices=(f"gpu-{number}",)), pod(f"pod-{number}"))
    world.add(slice_of({f"gpu-{number}": () for number in range(DEVICES)}))
    taint_devices(world, tainted)
    return world


def taint_devices(world: World, count: int, key: str = "example.com/bad") -> None:
    """So many of the ten are tainted from now on."""
    broken = (taint(added=world.clock.wall, key=key),)
    devices = {f"gpu-{number}": broken if number < count else () for number in range(DEVICES)}
    world.change(world.inventory.slices["slice"], slice_of(devices))


@pytest.mark.parametrize(
    ("devices", "tainted", "evicted"),
    [
        (Share(20), 2, 2),
        (Share(20), 3, 0),
        (Share(1), 1, 1),
        (Share(11), 2, 2),
        (5, 5, 5),
        (5, 6, 0),
        (None, 10, 10),
    ],
    ids=["at the share", "above it", "one is never too many", "rounded up", "number", "above the number", "off"],
)
def test_breaker_trips_above_its_limit(devices: int | Share | None, tainted: int, evicted: int) -> None:
    world = cluster(structs.replace(FIFTH, devices=devices), tainted=tainted)
    world.advance(60)
    assert len(world.evicted) == evicted
    assert world.sample("breakers_tripped") == (0 if evicted else 1)


def test_only_devices_tainted_within_the_window_count() -> None:
    world = cluster(tainted=2)
    world.advance(300)
    taint_devices(world, 4)
    world.advance(60)
    assert len(world.evicted) == 4
    world.advance(200)
    taint_devices(world, 5)
    world.advance(60)
    assert len(world.evicted) == 4


def test_driver_that_was_calm_for_long_enough_is_acted_on_again() -> None:
    world = cluster(tainted=3)
    world.advance(300)
    taint_devices(world, 4)  # not calm yet
    world.advance(599)
    assert world.evicted == []
    world.advance(2)
    assert len(world.evicted) == 4
    assert world.sample("breakers_tripped") == 0


def test_taint_added_after_the_reset_is_acted_on() -> None:
    world = cluster(tainted=3)
    world.advance(601)
    taint_devices(world, 5)
    world.advance(1)
    assert len(world.evicted) == 5


def test_acknowledged_driver_is_acted_on_at_once() -> None:
    world = cluster(tainted=3)
    world.advance(30)
    until = world.clock.wall
    world.breaker = structs.replace(FIFTH, acknowledged=(("other.example.com", until),))
    world.change_policy(FREE)
    assert world.evicted == []
    world.breaker = structs.replace(FIFTH, acknowledged=((DRIVER, until),))
    world.change_policy(FREE)
    assert len(world.evicted) == 3
    world.advance(10)
    taint_devices(world, 7)  # after the acknowledgement
    world.advance(60)
    assert len(world.evicted) == 3


def test_breaker_that_is_switched_off_lets_pods_go() -> None:
    world = cluster(tainted=3)
    world.advance(30)
    world.breaker = NO_BREAKER
    world.change_policy(FREE)
    assert len(world.evicted) == 3


def test_rule_evicts_whatever_the_breaker_says() -> None:
    world = cluster(tainted=10)
    world.add(rule(selector=DeviceSelector(driver=DRIVER, device="gpu-4")))
    world.advance(60)
    assert world.evicted == ["pod-4"]


def test_pod_that_only_a_later_rule_evicts_waits_for_it() -> None:
    world = cluster()
    tolerating = claim("late", tolerates(30, key="example.com/rule"), devices=("gpu-9",))
    world.add(tolerating, pod("late"))
    taint_devices(world, 10)
    world.add(rule(selector=DeviceSelector(driver=DRIVER, device="gpu-9"), key="example.com/rule"))
    world.advance(29)
    assert world.evicted == ["pod-9"]
    world.advance(2)
    assert world.evicted == ["pod-9", "late"]


def test_process_that_starts_counts_what_was_tainted_within_the_window() -> None:
    old, fresh = cluster(), cluster()
    for world, age in ((old, 301), (fresh, 299)):
        broken = (taint(added=NOW - timedelta(seconds=age)),)
        world.inventory.apply(
            world.inventory.slices["slice"], slice_of({f"gpu-{number}": broken for number in range(DEVICES)})
        )
        world.worker.start()
        world.advance(1)
    assert (len(old.evicted), len(fresh.evicted)) == (10, 0)


@pytest.mark.parametrize(("age", "evicted"), [(299.0, 0), (300.0, 10), (301.0, 10)])
def test_what_was_older_than_the_window_at_the_start_counts_for_no_longer_window(age: float, evicted: int) -> None:
    world = cluster()
    broken = (taint(added=NOW - timedelta(seconds=age)), taint(added=NOW - timedelta(days=1), key="example.com/old"))
    devices = slice_of({f"gpu-{number}": broken for number in range(DEVICES)})
    world.inventory.apply(world.inventory.slices["slice"], devices)
    world.worker.start()
    world.breaker = structs.replace(FIFTH, window_seconds=1000.0)
    world.advance(1)
    assert len(world.evicted) == evicted


def test_taint_of_the_future_counts_from_now_on() -> None:
    world = cluster()
    broken = (taint(added=NOW + timedelta(seconds=100)),)
    devices = slice_of({f"gpu-{number}": broken for number in range(DEVICES)})
    world.inventory.apply(world.inventory.slices["slice"], devices)
    world.worker.start()
    world.advance(599.5)
    assert world.evicted == []
    world.advance(1)
    assert len(world.evicted) == 10


def test_driver_blocks_only_its_own_devices() -> None:
    world = cluster(tainted=10)
    plans = world.worker.plans.scheduled.values()
    world.settle()
    breaker = world.worker._core.breaker
    assert {breaker.blocked_by(plan) for plan in plans} == {BreakerLimit(DRIVER)}
    assert breaker.tripped == {DRIVER}
    assert world.sample("pods_waiting", why="breaker") == 10
