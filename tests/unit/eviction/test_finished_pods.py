"""Pods that have finished, as a Job leaves them behind: no limit counts them, whatever becomes of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW
from tests.unit.eviction.objects import owned, rule, using
from tests.unit.eviction.world import evicting, gentle
from webhook.inventory.state import InventoryObject
from webhook.policy.model import Share


def job(*names: str, **fields: Any) -> list[InventoryObject]:
    return [*using(*names, make=owned, kind="Job", by="job", completes=True, **fields)]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("finished", [0, 8, 96])
def test_share_of_an_owner_is_of_its_pods_that_have_not_finished(finished: int, phase: str) -> None:
    done = job(*[f"done-{number:02}" for number in range(finished)], phase=phase)
    world = gentle(*job("a", "b", "c", "d"), *done, rule(), per_owner_unavailable=Share(25), lingering=True)
    assert len(world.after(5)) == 1


LIMITS: dict[str, dict[str, Any]] = {
    "perOwnerUnavailable": {"per_owner_unavailable": 1},
    "perNamespace": {"per_namespace": 1},
    "overall": {"overall": 1},
}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_finished_pod_whose_deletion_waits_for_a_finalizer_takes_no_place(limit: dict[str, Any]) -> None:
    world = evicting(*job("done", phase="Succeeded"), *job("a", hold="later"), rule(), **limit)
    world.edit(world.pod("done"), deleting=True, grace_ends=NOW)
    world.settle()
    world.edit(world.pod("a"), hold=None)
    assert world.settled() == ["a"]


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_evicted_pod_keeps_its_place_while_its_containers_have_ended_and_it_is_still_there(
    limit: dict[str, Any],
) -> None:
    world = evicting(*job("a", "b"), rule(), lingering=True, **limit)
    assert world.settled() == ["a"]
    world.edit(world.pod("a"), phase="Failed", ready=False)
    assert world.settled() == ["a"]


@pytest.mark.parametrize("gang", ["", "ring"])
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_pod_that_finishes_while_its_deletion_waits_frees_its_place(limit: dict[str, Any], gang: str) -> None:
    """That of its gang as well."""
    world = evicting(*job("done", hold="later", gang=gang), *job("a", hold="later"), rule(), **limit)
    world.edit(world.pod("done"), deleting=True, grace_ends=NOW)
    world.settle()
    world.edit(world.pod("done"), phase="Succeeded", ready=False)
    world.settle()
    world.edit(world.pod("a"), hold=None)
    assert world.settled() == ["a"]
