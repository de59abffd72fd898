"""What the breaker counts: further taints on a device, and what a driver did before this process started."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import claim, pod, slice_of, taint
from tests.unit.eviction.world import World, evicting
from webhook.api.taints import DeviceTaint
from webhook.policy.model import BreakerSettings

DEVICES = 10


def aged(*seconds: float, key: str = "example.com/bad") -> tuple[DeviceTaint, ...]:
    """A taint of each age."""
    return tuple([taint(added=NOW - timedelta(seconds=each), key=f"{key}-{at}") for at, each in enumerate(seconds)])


def cluster(*taints: tuple[DeviceTaint, ...], settings: BreakerSettings = BreakerSettings()) -> World:  # noqa: B008
    """A worker that starts now; the first of ten devices, each used by one pod, have these taints."""
    world = evicting(breaker=settings)
    for number in range(DEVICES):
        world.add(claim(f"pod-{number}", devices=(f"gpu-{number}",)), pod(f"pod-{number}", hold="it stays"))
    every = [*taints, *[()] * (DEVICES - len(taints))]
    world.inventory.apply(None, slice_of({f"gpu-{number}": every[number] for number in range(DEVICES)}))
    world.worker.start()
    return world


def tripped(world: World) -> bool:
    world.settle()
    return world.worker._core.breaker.tripped == {DRIVER}


# --- further taints on a device -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "trips"),
    [
        ({"key": "example.com/bad"}, True),
        ({"value": "other"}, True),
        ({"time_added": NOW}, False),
        ({}, False),
    ],
    ids=["key", "value", "time alone", "nothing"],
)
def test_further_taint_counts_on_devices_that_have_one_already(fields: dict[str, object], *, trips: bool) -> None:
    old = aged(86400.0)[0]
    world = cluster(*[(old,)] * DEVICES)
    assert not tripped(world)
    more = (old, structs.replace(old, **fields)) if fields else (old,)
    world.change(world.inventory.slices["slice"], slice_of({f"gpu-{number}": more for number in range(DEVICES)}))
    assert tripped(world) is trips


def test_driver_that_adds_further_taints_is_not_calm() -> None:
    world = cluster(*[aged(0.0)] * 3)
    assert tripped(world)
    world.advance(590)
    first, *others = world.inventory.slices["slice"].devices
    more = (*first.taints, taint(added=world.clock.wall, key="example.com/more"))
    world.edit(world.inventory.slices["slice"], devices=(structs.replace(first, taints=more), *others))
    world.advance(590)
    assert tripped(world)
    world.advance(20)
    assert not tripped(world)


# --- before this process started ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ages", "trips"),
    [
        ([(590.0,)] * 3, True),
        ([(610.0,)] * 3, False),
        ([(590.0,)] * 2, False),
        ([(590.0,), (400.0,), (300.0,)], True),
        ([(590.0,), (400.0,), (280.0,)], False),
        ([(800.0,)] * 3 + [(250.0,)], True),
        ([(860.0,)] * 3 + [(250.0,)], False),
        ([(2000.0,)] * 3 + [(1500.0,), (1000.0,), (500.0,)], True),
        ([(800.0, 300.0)] * 2 + [(800.0,)], True),
        ([(86400.0, 590.0)] * 3, True),
    ],
    ids=[
        "not calm for long enough yet",
        "calm since",
        "never too many",
        "too many within a window",
        "in no window too many",
        "not calm before the last",
        "calm before the last",
        "again and again",
        "further taints hide no earlier one",
        "further taints alone",
    ],
)
def test_new_leader_knows_a_trip_until_the_driver_was_calm(ages: list[tuple[float, ...]], *, trips: bool) -> None:
    assert tripped(cluster(*[aged(*each) for each in ages])) is trips


def test_new_leader_ends_a_trip_when_the_driver_was_calm_for_the_whole_time() -> None:
    world = cluster(*[aged(500.0)] * 3)
    world.advance(99)
    assert tripped(world)
    world.advance(1)
    assert not tripped(world)


@pytest.mark.parametrize(("seconds_ago", "trips"), [(500.0, False), (501.0, True)])
def test_trip_before_the_start_is_acknowledged_by_its_own_time(seconds_ago: float, *, trips: bool) -> None:
    world = cluster(*[aged(500.0)] * 3)
    assert tripped(world)
    world.breaker = BreakerSettings(acknowledged=((DRIVER, NOW - timedelta(seconds=seconds_ago)),))
    world.worker.replan_all()
    assert tripped(world) is trips


def test_calm_that_is_shorter_than_the_window_ends_a_trip_before_the_start() -> None:
    """What was tainted before does not count any more."""
    settings = BreakerSettings(window_seconds=600.0, calm_seconds=100.0)
    assert cluster(*[aged(500.0)] * 3, settings=settings).worker._core.breaker.tripped == frozenset()
    assert not tripped(cluster(*[aged(500.0)] * 3, aged(50.0), settings=settings))
    assert tripped(cluster(*[aged(500.0)] * 2, aged(50.0), settings=settings))
