"""An acknowledgement covers what was tainted up to its time, and nothing that was tainted after that."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import taint
from tests.unit.eviction.test_breaker import FIFTH, cluster
from tests.unit.eviction.world import FREE, World
from webhook.eviction.ledger import Ledger


def taint_more(world: World, count: int) -> None:
    """So many of the ten are tainted; those that were not yet are from now on."""
    known = world.inventory.slices["slice"]
    fresh = [structs.replace(each, taints=each.taints or (taint(added=world.clock.wall),)) for each in known.devices]
    world.edit(known, devices=(*fresh[:count], *known.devices[count:]))


def acknowledge(world: World, seconds: float) -> None:
    """A person has checked what was tainted up to so many seconds after the beginning."""
    world.breaker = structs.replace(FIFTH, acknowledged=((DRIVER, NOW + timedelta(seconds=seconds)),))
    world.change_policy(FREE)


def restored(world: World) -> frozenset[str]:
    """The drivers whose breaker has tripped for a leader that starts now."""
    core = world.worker._core
    return Ledger.restored(core.view, world.breaker, core.moment()).tripped


@pytest.mark.parametrize(
    ("first", "until", "trips"),
    [(3, -1, True), (3, 0, True), (3, 30, True), (3, 60, False), (3, 90, False), (7, 0, True), (8, 0, False)],
    ids=["nothing", "the trip", "the trip and later", "all", "all and later", "three are left", "two are left"],
)
def test_breaker_stays_tripped_by_what_was_tainted_after_the_acknowledged_time(
    first: int, until: float, *, trips: bool
) -> None:
    world = cluster(tainted=first)
    world.advance(60)
    taint_more(world, 10)
    world.advance(30)
    acknowledge(world, until)
    assert len(world.evicted) == (0 if trips else 10)
    assert world.worker._core.breaker.tripped == restored(world) == (frozenset({DRIVER}) if trips else frozenset())


@pytest.mark.parametrize("later", [30, 400, 530])
def test_what_was_tainted_after_the_acknowledged_time_counts_however_late_that_is_acknowledged(later: float) -> None:
    world = cluster(tainted=3)
    world.advance(60)
    taint_more(world, 10)
    world.advance(later)
    acknowledge(world, 30)
    assert world.evicted == []
    assert world.worker._core.breaker.tripped == restored(world) == {DRIVER}
    world.advance(600 - later)
    assert len(world.evicted) == 10


def test_what_was_repaired_since_counts_no_longer_once_the_rest_is_acknowledged() -> None:
    """Nor is it kept, however many devices come and go while the breaker is tripped."""
    world = cluster(tainted=3)
    world.advance(60)
    taint_more(world, 10)
    world.advance(30)
    known = world.inventory.slices["slice"]
    world.edit(known, devices=(*known.devices[:3], *[structs.replace(each, taints=()) for each in known.devices[3:]]))
    acknowledge(world, -1)
    assert len(world.worker._core.breaker._drivers[DRIVER].tainted) == 3
    acknowledge(world, 30)
    assert world.worker._core.breaker.tripped == restored(world) == frozenset()
    assert len(world.evicted) == 3


def test_acknowledgement_of_the_rest_ends_what_the_first_one_left() -> None:
    """The breaker has tripped again, later than all that was tainted."""
    world = cluster(tainted=3)
    world.advance(60)
    taint_more(world, 6)
    world.advance(30)
    acknowledge(world, 30)
    assert world.evicted == []
    world.advance(10)
    acknowledge(world, 60)
    assert len(world.evicted) == 6


def test_trip_is_over_if_enough_of_what_led_to_it_is_acknowledged() -> None:
    """As for a leader that starts after the acknowledgement."""
    world = cluster(tainted=2)
    world.advance(60)
    taint_more(world, 3)
    assert len(world.after(30)) == 2
    acknowledge(world, 0)
    assert len(world.evicted) == 3


def test_acknowledgement_counts_once_however_often_the_policy_changes() -> None:
    world = cluster(tainted=3)
    world.advance(60)
    taint_more(world, 10)
    acknowledge(world, 30)
    tripped_at = world.worker._core.breaker._drivers[DRIVER].tripped_at
    world.advance(10)
    world.change_policy(FREE)
    assert world.worker._core.breaker._drivers[DRIVER].tripped_at == tripped_at


@pytest.mark.parametrize("order", [(0, 30), (30, 0)])
def test_last_acknowledged_time_of_a_driver_holds_whatever_the_order(order: tuple[int, ...]) -> None:
    known = (*[(DRIVER, NOW + timedelta(seconds=at)) for at in order], ("other.example.com", NOW + timedelta(days=1)))
    assert structs.replace(FIFTH, acknowledged=known).acknowledged_of(DRIVER) == NOW + timedelta(seconds=30)
