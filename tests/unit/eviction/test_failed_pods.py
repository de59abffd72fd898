"""A pod that never completes has failed and terminates, as after the shutdown of its node: its owner misses it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.builders import NOW
from tests.unit.eviction.objects import owned, rule, using
from tests.unit.eviction.world import World, gentle


def stateful(phase: str, *, completes: bool = False) -> World:
    """Three pods of one owner, of which the first terminates in this phase."""
    pods = using("db-0", "db-1", "db-2", make=owned, kind="StatefulSet", by="db", hold="wait", completes=completes)
    world = gentle(*pods, rule(), per_owner_unavailable=1, lingering=True)
    world.edit(world.pod("db-0"), deleting=True, grace_ends=NOW + timedelta(seconds=30), phase=phase, ready=False)
    world.settle()
    for name in ("db-1", "db-2"):
        world.edit(world.pod(name), hold=None)
    return world


@pytest.mark.parametrize(
    ("phase", "completes", "evicted"),
    [("Running", False, []), ("Failed", False, []), ("Succeeded", False, []), ("Failed", True, ["db-1"])],
)
def test_owner_misses_a_failed_pod_until_it_is_gone(phase: str, evicted: list[str], *, completes: bool) -> None:
    world = stateful(phase, completes=completes)
    assert world.after(20) == evicted


def test_owner_misses_a_failed_pod_no_longer_once_it_is_gone_and_replaced() -> None:
    world = stateful("Failed")
    world.advance(20)
    world.remove(world.pod("db-0"))
    world.add(*using("db-0", make=owned, kind="StatefulSet", by="db", uid="uid-new", hold="wait"))
    assert world.after(20) == ["db-1"]
