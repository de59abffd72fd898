"""Edits of a waiting pod after which it is exempt, or is left to complete, and edits that take this back."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, owned, pod, rule, using
from tests.unit.eviction.world import CHANGED, FREE, Budget, World, evicting
from webhook.api.claims import Consumer
from webhook.api.pods import Owner, PodClaim
from webhook.eviction.modes import Mode
from webhook.eviction.pod_plan import Unit
from webhook.policy.model import EvictionProfile

BY_DAEMON_SET: Final = {"owner": Owner("DaemonSet", "rs", "uid-rs")}
COMPLETES: Final = {"completes": True}
PATIENT: Final = structs.replace(FREE, wait_for_completion_seconds=100.0)


def give_up_if_it_spins(world: World) -> list[Unit]:
    """Fails a test whose worker tries pods without end; returns the units that it tries, as they come."""
    tried = list[Unit]()
    evict = world.worker.evict

    async def counted(unit: Unit) -> None:
        tried.append(unit)
        assert len(tried) < 5, "tried again and again"
        await evict(unit)

    world.worker.evict = counted  # type: ignore[method-assign]
    return tried


@pytest.mark.parametrize(
    ("edit", "profile"), [(BY_DAEMON_SET, FREE), (COMPLETES, PATIENT)], ids=["exempt", "completes"]
)
def test_pod_goes_that_an_edit_exempted_only_for_a_while(edit: dict[str, Any], profile: EvictionProfile) -> None:
    world = World(Mode.REPLACEMENT, profile)
    budget = Budget()
    world.add(claim("a"), owned("a"))
    world.add_budget(budget)
    world.add(rule())
    world.advance(20)
    before = world.pod("a")
    world.edit(before, **edit)
    world.advance(10)
    world.change(world.pod("a"), before)
    world.advance(10)
    budget.allows_at = 0
    world.worker.observe_budget("ml", "0")
    assert world.after(10) == ["a"]


def test_pod_that_an_edit_exempts_keeps_no_other_of_its_claim() -> None:
    world = evicting()
    users = tuple([Consumer("", "pods", name, f"uid-{name}") for name in "ab"])
    shared = (PodClaim("s-claim"),)
    world.add(claim("s", consumers=users, owner=""), pod("a", claims=shared), owned("b", claims=shared))
    world.trusted = False
    world.add(rule())
    world.advance(1)
    world.edit(world.pod("b"), **BY_DAEMON_SET)
    world.trusted = True
    give_up_if_it_spins(world)
    assert world.after(1) == ["a"]


def test_pod_waits_for_one_of_its_gang_that_an_edit_has_complete() -> None:
    world = World(Mode.REPLACEMENT, PATIENT)
    world.add(*using("a", "b", on="gpu-{}", gang="train"))
    world.trusted = False
    world.add(rule())
    world.advance(1)
    world.edit(world.pod("b"), **COMPLETES)
    world.trusted = True
    give_up_if_it_spins(world)
    assert world.after(90) == []
    assert world.after(20) == ["a", "b"]


def test_pod_that_is_known_as_it_is_waits_for_one_of_its_gang_that_is_not() -> None:
    """Both requests meet newer pods; by then the watch has shown one of these, and shows the other later."""
    world = evicting()
    world.add(*using("a", "b", on="gpu-{}", gang="train"))
    for name in "ab":
        written(world, name, "1")
    world.cluster.while_connecting.append(lambda: written(world, "a", "2"))
    world.cluster.answers.extend([CHANGED, CHANGED])
    tried = give_up_if_it_spins(world)
    world.add(rule())
    world.advance(10)
    assert (world.evicted, len(tried)) == ([], 1)
    written(world, "b", "2")
    assert sorted(world.after(1)) == ["a", "b"]


def written(world: World, name: str, version: str) -> None:
    """The watch shows a pod in another version."""
    known = world.pod(name)
    world.edit(known, meta=structs.replace(known.meta, resource_version=version))
