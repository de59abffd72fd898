"""How long the place of an evicted pod counts as empty for its owner."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, owned, rule, tolerates
from tests.unit.eviction.world import FREE, World
from webhook.eviction.modes import Mode


@pytest.mark.parametrize("ready", [True, False])
def test_pods_of_other_namespaces_neither_hold_up_an_owner_nor_replace_its_pods(ready: bool) -> None:  # noqa: FBT001
    """Anybody may name the uid of an owner in another namespace."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, per_owner_unavailable=1))
    stranger = owned("stranger", namespace="other", phase="Running" if ready else "Pending")
    world.add(claim("a"), owned("a"), claim("b"), owned("b"), stranger)
    world.cluster.lingering = True
    world.add(rule())
    world.advance(1)
    assert len(world.evicted) == 1
    if ready:
        world.add(owned("another", namespace="other"))
    else:
        world.advance(60)
        world.remove(world.pod(world.evicted[0]))
    world.advance(30)
    assert len(world.evicted) == (1 if ready else 2)


def test_each_evicted_pod_counts_as_missing_for_five_seconds() -> None:
    """L1: of two pods evicted at 0 s and 4 s the second one is missing until 9 s, and not until the first is not."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, per_owner_unavailable=2))
    for number, seconds in enumerate((0, 4, 5, 5, 60, 60)):
        name = f"web-{number}"
        world.add(claim(name, tolerates(seconds), devices=(name,)), owned(name))
    world.add(rule())
    world.advance(30)
    times = [seconds for _, _, seconds in world.cluster.calls]
    assert times == pytest.approx([0, 4, 5, 9], abs=0.01)
