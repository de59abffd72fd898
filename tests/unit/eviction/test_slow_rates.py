"""Rates so low that the next eviction would come after the end of the calendar."""

from __future__ import annotations

import pytest

from tests.unit.eviction.objects import rule, using
from tests.unit.eviction.world import evicting


@pytest.mark.parametrize("rate", [1e-9, 1e-12, 1e-300, 5e-324])
def test_rate_near_zero_lets_the_burst_go_and_no_more(rate: float) -> None:
    world = evicting(*using("p0", "p1"), rule(), rate=rate, burst=1)
    assert world.after(3600) == ["p0"]
    assert world.sample("pods_waiting", why="rate") == 1
