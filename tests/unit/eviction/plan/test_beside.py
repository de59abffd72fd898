"""The plan says of each pod what the worker says, at moments of the 500 random worlds whose course is kept as data."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest

from tests.golden.worlds import History
from tests.unit.eviction.plan.beside import compare
from tests.unit.eviction.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.eviction.plan.beside import Difference

_EVERY: Final = 20
"""Of so many moments at which everything is settled, one is compared."""
_FEW, _ALL = 25, 500


class _Watch:
    def __init__(self) -> None:
        self.settled = self.pods = 0
        self.differences: list[Difference] = []


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Watch]:
    """Compares in every world from here on."""
    found, settle = _Watch(), World.settle

    def settle_and_compare(world: World) -> None:
        settle(world)
        found.settled += 1
        if not found.settled % _EVERY:
            found.pods += len(world.worker.plans.scheduled)
            found.differences += compare(world)

    monkeypatch.setattr(World, "settle", settle_and_compare)
    logging.disable(logging.CRITICAL)
    yield found
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(_FEW), id="few"),
        pytest.param(range(_FEW, _ALL), id="all", marks=[pytest.mark.whole, pytest.mark.slow]),
    ],
)
def test_plan_says_what_the_worker_says(watch: _Watch, seeds: range) -> None:
    for seed in seeds:
        History(seed).play()
        assert not watch.differences, f"seed {seed}"
    assert watch.pods > len(seeds)  # it looked at pods
