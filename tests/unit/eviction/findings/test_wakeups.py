"""Pods that wait for a limit are let go as soon as the limit allows it, whatever has changed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.findings.turmoil import Turmoil
from tests.unit.eviction.objects import POOL, claim, owned, pod, rule, using
from tests.unit.eviction.world import FREE, Budget, World, evicting
from webhook.api.rules import DeviceSelector
from webhook.eviction.modes import Mode
from webhook.policy.model import EvictionProfile, NamespaceMatch, Share

ONE_OF_OWNER = structs.replace(FREE, per_owner_unavailable=1)


# --- another policy -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (structs.replace(FREE, overall=2), structs.replace(FREE, overall=6)),
        (structs.replace(FREE, per_namespace=2), structs.replace(FREE, per_namespace=6)),
        (structs.replace(FREE, rate=0.001, burst=2), structs.replace(FREE, rate=100, burst=10)),
    ],
    ids=["overall", "perNamespace", "rate"],
)
def test_changed_limit_holds_for_pods_that_wait_already(before: EvictionProfile, after: EvictionProfile) -> None:
    world = evicting(base=before, lingering=True)
    world.add(*using(*[f"pod-{number}" for number in range(6)], on="gpu-{}"), rule())
    assert len(world.after(30)) == 2
    world.change_policy(after)
    assert len(world.after(1)) == 6


def test_namespace_that_is_relabelled_gets_another_profile_for_planned_pods() -> None:
    production = NamespaceMatch(labels=(("tier", "production"),))
    world = World(
        Mode.REPLACEMENT,
        structs.replace(FREE, namespaces=production, grace_seconds=3600),
        structs.replace(FREE, rate=0.1, burst=1),
    )
    world.relabel("ml", tier="batch")
    world.add(*using(*[f"pod-{number}" for number in range(3)], on="gpu-{}"), rule())
    assert world.after(1) == ["pod-0"]
    world.relabel("ml", tier="production")
    assert world.after(600) == ["pod-0"]


@pytest.mark.parametrize("limit", ["overall", "per_namespace"])
def test_pod_of_one_profile_does_not_keep_back_a_pod_of_another(limit: str) -> None:
    narrow = structs.replace(FREE, priority_at_most=0, **{limit: 1})
    world = World(Mode.REPLACEMENT, narrow, structs.replace(FREE, **{limit: 3}))
    world.cluster.lingering = True
    for number in range(3):
        world.add(claim(f"low-{number}", devices=(f"a-{number}",)), pod(f"low-{number}"))
        world.add(claim(f"high-{number}", devices=(f"b-{number}",)), pod(f"high-{number}", priority=100))
    world.add(rule())
    world.advance(5)
    for name in world.evicted[:2]:
        world.remove(world.pod(name))
    assert "high-2" in world.after(60)


# --- another state of the owner -----------------------------------------------------------------


def waiting(profile: EvictionProfile) -> World:
    """One pod that is ready and due, and a sibling that stays Pending; the limit of their owner is used up."""
    world = World(Mode.REPLACEMENT, profile)
    pending = owned("pending", node_name="", phase="Pending", ready=False)
    world.add(claim("pending", devices=()), pending, claim("web-1"), owned("web-1"))
    world.add(rule(selector=DeviceSelector(driver=DRIVER, pool=POOL)))
    assert world.after(60) == []
    return world


def test_owner_that_grows_may_miss_more_pods() -> None:
    """H5: half of eight pods is more than half of two, so a pod that waits is evicted once its owner was scaled up."""
    world = waiting(structs.replace(FREE, per_owner_unavailable=Share(50)))
    world.add(*using(*[f"web-{number}" for number in range(2, 8)], on="other", pool="clean", make=owned))
    assert world.after(60) == ["web-1"]


def test_budget_that_is_created_takes_the_place_of_the_limit_of_the_owner() -> None:
    """M14: a pod with a budget is not counted for its owner, also when the budget came after the pod was planned."""
    world = waiting(ONE_OF_OWNER)
    world.add_budget(Budget("web", every_seconds=0.0, allows_at=0.0))
    assert world.after(60) == ["web-1"]


# --- anything -----------------------------------------------------------------------------------


HAPPENS: dict[str, tuple[Iterable[int], dict[str, bool]]] = {
    "pods, rules and readiness": ((18, 106), {"shares": True, "readiness": True}),
    "without shares and readiness": (range(20), {"shares": False, "readiness": False}),
    "budgets": (range(40), {"shares": True, "readiness": True, "budgets": True}),
    "gangs, PodGroups and shared claims": (
        (*range(30), 6016),
        {"shares": True, "readiness": True, "budgets": True, "together": True},
    ),
}


@pytest.mark.parametrize(
    ("seed", "happens"), [(seed, name) for name, (seeds, _) in HAPPENS.items() for seed in seeds], ids=str
)
def test_no_pod_waits_without_a_reason(seed: int, happens: str) -> None:
    """H5: whatever happens, a pod that may be evicted is evicted within ten minutes."""
    assert Turmoil(seed, **HAPPENS[happens][1]).stalled() == ""


@pytest.mark.parametrize(
    "seed", [*range(10), 212, *[pytest.param(each, marks=pytest.mark.whole) for each in range(10, 40)]]
)
def test_every_pod_goes_in_the_end(seed: int) -> None:
    """H5: once nothing changes any longer and budgets allow it, no pod that is planned is left."""
    assert Turmoil(seed, shares=True, readiness=True, budgets=True, together=seed % 3 > 0).left() == []
