"""Condition Released while changes may have been missed: it is never set, and not kept for long."""

from __future__ import annotations

from tests.unit.eviction.objects import claim, rule
from tests.unit.eviction.releasing import ONE, OUTDATED, closing, known, released, statuses, world_of
from webhook.eviction.released import DOUBT_SECONDS, TURN_SECONDS


def test_worker_in_doubt_says_nothing_new() -> None:
    world = world_of()
    world.trusted = False
    world.add(closing(), closing("known", conditions=(known("False", "InUse"),)), closing("held"), claim("x"))
    world.remove(claim("x"))
    world.advance(0)
    assert statuses(world) == []
    assert released(world, "known") == OUTDATED
    world.trusted = True
    world.advance(6)
    assert [released(world, name)[0] for name in ("rule", "known", "held")] == ["True"] * 3


def test_allocation_that_is_seen_counts_also_in_doubt() -> None:
    world = world_of(rule(effect="NoSchedule", evict=True, selector=ONE))
    world.advance(20)
    assert released(world)[0] == "True"
    world.trusted = False
    world.add(claim("x"))
    world.advance(1)
    assert released(world)[:2] == ("False", "InUse")
    assert world.condition("rule")[:2] == ("False", "NothingToDo")
    world.remove(claim("x"))
    world.advance(20)
    assert released(world)[0] == "False"
    world.trusted = True
    world.advance(2)
    assert released(world)[0] == "True"


def test_short_doubt_changes_nothing_and_a_long_one_ends_what_was_true() -> None:
    assert (TURN_SECONDS, DOUBT_SECONDS) == (1.0, 30.0)
    world = world_of(closing())
    world.advance(20)
    world.trusted = False
    world.advance(29)
    world.trusted = True
    world.advance(31)
    assert statuses(world) == ["Waiting", "Released"]
    world.trusted = False
    world.advance(61)
    assert released(world) == OUTDATED
    world.trusted = True
    world.advance(2)
    assert released(world)[0] == "True"


def test_withdrawal_that_fails_is_tried_again() -> None:
    world = world_of(closing())
    world.advance(20)
    world.trusted = False
    world.cluster.condition_error = "500"
    world.add(claim("x"))
    world.advance(5)
    assert released(world)[0] == "True"
    world.cluster.condition_error = ""
    world.advance(1.1)
    assert released(world)[:2] == ("False", "InUse")
    assert statuses(world) == ["Waiting", "Released", "InUse"]


def test_process_without_the_lease_withdraws_nothing() -> None:
    world = world_of(closing())
    world.advance(20)
    world.leads = False
    world.add(claim("x"))
    world.advance(100)
    assert statuses(world) == ["Waiting", "Released"]


def test_failed_write_is_tried_again_soon() -> None:
    world = world_of(closing())
    world.advance(20)
    world.cluster.condition_error = "500"
    world.add(claim("x"))
    world.advance(1)
    world.cluster.condition_error = ""
    world.advance(2)
    assert released(world)[0] == "False"


def test_doubt_of_half_a_minute_ends_what_was_true() -> None:
    world = world_of(closing())
    world.advance(20)
    world.trusted = False
    known, kept = world.inventory.rules["rule"], world.worker.rules.released
    began, found = world.clock.elapsed, list[bool]()
    for seconds in (0.0, 29.0, 30.0):
        world.clock.elapsed = began + seconds
        found.append(kept.withdrawn(known, 0.0, list(known.conditions)) is not None)
    assert found == [False, False, True]
