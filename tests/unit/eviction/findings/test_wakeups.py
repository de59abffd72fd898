"""Pods that wait for a limit are let go as soon as the limit allows it, whatever has changed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.builders import DRIVER
from tests.unit.eviction.findings.turmoil import Turmoil
from tests.unit.eviction.objects import POOL, claim, owned, rule, using
from tests.unit.eviction.world import Budget, World, evicting
from webhook.api.rules import DeviceSelector
from webhook.policy.model import Share


def waiting(limit: int | Share) -> World:
    """One pod that is ready and due, and a sibling that stays Pending; the limit of their owner is used up."""
    world = evicting(per_owner_unavailable=limit)
    pending = owned("pending", node_name="", phase="Pending", ready=False)
    world.add(claim("pending", devices=()), pending, claim("web-1"), owned("web-1"))
    world.add(rule(selector=DeviceSelector(driver=DRIVER, pool=POOL)))
    assert world.after(60) == []
    return world


def test_owner_that_grows_may_miss_more_pods() -> None:
    """H5: half of eight pods is more than half of two, so a pod that waits is evicted once its owner was scaled up."""
    world = waiting(Share(50))
    world.add(*using(*[f"web-{number}" for number in range(2, 8)], on="other", pool="clean", make=owned))
    assert world.after(60) == ["web-1"]


def test_budget_that_is_created_takes_the_place_of_the_limit_of_the_owner() -> None:
    """M14: a pod with a budget is not counted for its owner, also when the budget came after the pod was planned."""
    world = waiting(1)
    world.add_budget(Budget("web", every_seconds=0.0, allows_at=0.0))
    assert world.after(60) == ["web-1"]


FEW, MANY = 10, 100
"""`make test` plays the first seeds of each, and those beyond, in which something was found."""
HAPPENS: dict[str, tuple[Iterable[int], dict[str, bool]]] = {
    "pods, rules and readiness": ((18, 106), {"shares": True, "readiness": True}),
    "without shares and readiness": (range(20), {"shares": False, "readiness": False}),
    "budgets": (range(40), {"shares": True, "readiness": True, "budgets": True}),
    "gangs, PodGroups and shared claims": (
        (*range(30), 6016),
        {"shares": True, "readiness": True, "budgets": True, "together": True},
    ),
}


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("seed", "happens"),
    [
        pytest.param(seed, name, marks=pytest.mark.whole if at >= FEW and seed < MANY else ())
        for name, (seeds, _) in HAPPENS.items()
        for at, seed in enumerate(seeds)
    ],
    ids=str,
)
def test_no_pod_waits_without_a_reason(seed: int, happens: str) -> None:
    """H5: whatever happens, a pod that may be evicted is evicted within ten minutes."""
    assert Turmoil(seed, **HAPPENS[happens][1]).stalled() == ""
