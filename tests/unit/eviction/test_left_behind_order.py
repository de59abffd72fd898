"""The rest of a gang that has lost a member keeps its turn, however often its requests fail."""

from __future__ import annotations

import pytest

from tests.unit.eviction.objects import rule, using
from tests.unit.eviction.world import EVICTED, FAILED, evicting


@pytest.mark.parametrize("errors", [1, 2, 3])
def test_rest_of_a_gang_goes_before_pods_of_higher_priority_after_errors(errors: int) -> None:
    answers = [EVICTED, *[FAILED] * errors]
    world = evicting(*using("gang-a", "gang-b", gang="ring"), rate=1.0, burst=1, lingering=True, answers=answers)
    world.add(*using(*[f"single-{number:02}" for number in range(30)], priority=1000), rule())
    assert "gang-b" in world.after(15)
