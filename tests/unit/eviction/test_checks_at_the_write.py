"""The last look at each pod of a large gang, as its request is written, when others of it have gone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.costs import calls_of
from tests.unit.eviction.objects import owned, rule, using
from tests.unit.eviction.world import FREE, Budget, World, evicting

DELETES = structs.replace(FREE, deadline_seconds=20.0, delete_after_deadline=True)


def gang(count: int, **fields: Any) -> World:
    world = evicting(**fields)
    world.add(*using(*[f"rank-{number:03}" for number in range(count)], make=owned, gang="ring", on="{}"))
    return world


def calls_to_evict(count: int, **fields: Any) -> int:
    def evict(world: World) -> None:
        world.settle()
        assert len(world.evicted) == count

    def made() -> World:
        world = gang(count, **fields)
        world.settle()
        world.add(rule())
        return world

    return calls_of(evict, made)


@pytest.mark.parametrize("fields", [{}, {"base": DELETES}], ids=["keep", "delete"])
def test_eviction_of_a_gang_costs_no_more_for_each_pod_if_the_gang_is_large(fields: dict[str, Any]) -> None:
    assert calls_to_evict(80, **fields) < 6 * calls_to_evict(20, **fields)


def test_gang_is_deleted_as_a_whole_although_its_first_pods_are_terminating_when_the_next_are_due() -> None:
    budget = Budget(every_seconds=0.0, allows_at=0.0, status=1)
    world = gang(3, base=DELETES, lingering=True, budgets=[budget])
    world.add(rule())
    world.advance(40)
    assert [verb for verb, _, _ in world.cluster.calls] == ["delete"] * 3
