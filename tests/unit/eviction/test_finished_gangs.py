"""A pod of a gang that finishes while its deletion waits for a finalizer takes no place, as any other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW
from tests.unit.eviction.objects import rule
from tests.unit.eviction.test_finished_pods import LIMITS, job
from tests.unit.eviction.world import evicting


@pytest.mark.parametrize("gang", ["", "ring"])
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
def test_pod_that_finishes_frees_the_place_of_its_gang(limit: dict[str, Any], gang: str) -> None:
    world = evicting(*job("done", hold="later", gang=gang), *job("a", hold="later"), rule(), **limit)
    world.edit(world.pod("done"), deleting=True, grace_ends=NOW)
    world.settle()
    world.edit(world.pod("done"), phase="Succeeded", ready=False)
    world.settle()
    world.edit(world.pod("a"), hold=None)
    assert world.settled() == ["a"]
