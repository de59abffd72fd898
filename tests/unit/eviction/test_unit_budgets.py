"""Pods that belong together behind a disruption budget: all of them go, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.test_units import GENTLE, gang
from tests.unit.eviction.world import Budget, World
from webhook.eviction.modes import Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.eviction.limits import BudgetLimit
    from webhook.eviction.pod_plan import PodPlan


def test_no_pod_goes_unless_the_budget_allows_all() -> None:
    world = World(Mode.REPLACEMENT, GENTLE)
    budget = Budget(every_seconds=0.0, allows_at=0.0, status=2)
    world.add_budget(budget)
    gang(world, "a", "b", "c")
    world.add(rule())
    world.advance(60)
    assert world.evicted == []
    assert len(world.cluster.dry_runs) <= 60 / 5 + 1
    budget.status = 3
    world.worker.observe_budget("ml", "0")
    world.settle()
    assert sorted(world.evicted) == ["a", "b", "c"]


def test_single_pods_pass_a_gang_that_needs_more_than_its_budget_allows() -> None:
    world = World(Mode.REPLACEMENT, GENTLE)
    world.add_budget(Budget(allows_at=0.0, status=1))
    gang(world, "a", "b", priority=-1)
    world.add(claim("lone"), pod("lone"), rule())
    world.advance(1)
    assert world.evicted == ["lone"]


def test_budget_is_compared_with_a_large_gang_once_and_not_for_each_of_its_pods() -> None:
    world = World(Mode.REPLACEMENT, GENTLE)
    world.add_budget(Budget(every_seconds=0.0, allows_at=0.0, status=2))
    gang(world, *[f"rank-{number:03}" for number in range(200)])
    gate, asked = world.worker._core.gate, list[int]()
    blocks = gate.blocks

    def counted(plans: Sequence[PodPlan], now: float) -> BudgetLimit | None:
        asked.append(len(plans))
        return blocks(plans, now)

    gate.blocks = counted  # type: ignore[method-assign]
    world.add(rule())
    world.settle()
    assert world.evicted == []
    assert len(world.worker.ready.parked()) == 200
    assert asked
    assert set(asked) == {200}
    assert len(asked) <= 10


def test_dry_run_that_is_refused_keeps_all() -> None:
    world = World(Mode.REPLACEMENT, GENTLE)
    world.add_budget(Budget("b"))
    gang(world, "a", "b", "c")
    world.add(rule())
    world.advance(30)
    assert world.evicted == []
    assert world.cluster.requests == []
