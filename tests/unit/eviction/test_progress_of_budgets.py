"""Units that wait for a budget while it lets other pods go: it makes progress, so none is deleted past it."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.eviction.objects import owned, rule, using
from tests.unit.eviction.world import FREE, Budget, World, evicting

DELETES = structs.replace(FREE, deadline_seconds=20.0, delete_after_deadline=True)


def waiting_gang(singles: int, *budgets: Budget) -> World:
    """A gang of two under a budget that lets one pod go each five seconds, and single pods of the namespace."""
    world = evicting(base=DELETES, rate=0.2, burst=1, budgets=budgets)
    world.add(*using("gang-a", "gang-b", make=owned, gang="ring", on="{}", priority=-1))
    world.add(*using(*[f"single-{number:02}" for number in range(singles)], make=owned, by="web", on="{}"), rule())
    return world


def verbs_after(world: World, seconds: int) -> dict[str, list[str]]:
    """The pods that went, by how they went. The watch shows each five seconds that budgets allow an eviction again."""
    for _ in range(seconds // 5):
        world.advance(5.0)
        for number, budget in enumerate(world.budgets):
            for status in (0, budget.status):
                world.budgets[number].status = status
                world.worker.observe_budget("ml", str(number))
    found = dict[str, list[str]]()
    for verb, key, _ in world.cluster.calls:
        found.setdefault(verb, []).append(key.partition("/")[2])
    return found


def allowing_one(selects: str = "") -> Budget:
    return Budget(selects, every_seconds=0.0, allows_at=0.0, status=1)


def test_gang_is_not_deleted_past_a_budget_that_lets_single_pods_go() -> None:
    world = waiting_gang(30, allowing_one())
    gone = verbs_after(world, 120)
    assert list(gone) == ["evict"]
    assert len(gone["evict"]) >= 20


def test_gang_is_deleted_once_its_budget_has_let_no_pod_go_for_the_deadline() -> None:
    world = waiting_gang(4, allowing_one())
    assert verbs_after(world, 35).keys() == {"evict"}
    assert verbs_after(world, 30)["delete"] == ["gang-a", "gang-b"]


@pytest.mark.parametrize("other", [[], [allowing_one("single")]], ids=["no budget", "another budget"])
def test_eviction_that_another_budget_allows_is_no_progress(other: list[Budget]) -> None:
    world = waiting_gang(30, allowing_one("gang"), *other)
    assert verbs_after(world, 60)["delete"] == ["gang-a", "gang-b"]
