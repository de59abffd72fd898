"""The fewest selectors for given devices."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, product
from typing import TYPE_CHECKING

import pytest

from tests.costs import calls_of
from tests.unit.patches.patched import DRIVER, at, pools_of, slice_of
from webhook.api.rules import DeviceSelector
from webhook.inventory.pools import selects
from webhook.patches.covering import _fewest_lines, cover_of, covering_selectors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.inventory.pools import Pools
    from webhook.inventory.targets import DeviceId


def fleet(*pools: str) -> Pools:
    """Pools p0, p1, ... with a device for each letter."""
    return pools_of(*[slice_of(*devices, pool=f"p{number}") for number, devices in enumerate(pools)])


def covered(pools: Pools, *cells: str) -> list[str]:
    """The selectors for devices such as 0a, device a of pool p0; shown as 0*, *a, 0a and **."""
    found = covering_selectors(pools, [at(cell[1], f"p{cell[0]}") for cell in cells])
    assert {each.driver for each in found} <= {DRIVER}
    return [f"{(each.pool or '*')[-1]}{each.device or '*'}" for each in found]


@pytest.mark.parametrize(
    ("pools", "cells", "selectors"),
    [
        pytest.param(["ab", "ab"], [], [], id="nothing"),
        pytest.param(["ab", "ab"], ["0a", "0b", "1a", "1b"], ["**"], id="the driver"),
        pytest.param(["a"], ["0a"], ["**"], id="the only device"),
        pytest.param(["ab", "ab"], ["0a", "0b"], ["0*"], id="a pool"),
        pytest.param(["ab", "ab"], ["0b", "1b"], ["*b"], id="a name in each pool"),
        pytest.param(["ab", "a"], ["0b"], ["*b"], id="a name in the only pool that has it"),
        pytest.param(["ab", "ab"], ["1a"], ["1a"], id="one device"),
        pytest.param(["ab", "ab"], ["0a", "1b"], ["0a", "1b"], id="two devices"),
        pytest.param(["abc", "abc"], ["0a", "0b", "0c", "1a"], ["0*", "*a"], id="a pool and a name"),
        pytest.param(["abc", "abc"], ["0a", "0b", "1a"], ["*a", "0b"], id="a name and a device"),
        pytest.param(["abc", "abc", "abc"], ["0a", "0b", "0c", "1a"], ["0*", "1a"], id="a pool and a device"),
        pytest.param(["ab", "ab", "c"], ["0a", "0b", "1a", "1b"], ["0*", "1*"], id="two pools, or two names"),
        pytest.param(["abc", "abc", "d"], ["0a", "0b", "0c", "1a", "1b", "1c"], ["0*", "1*"], id="fewer pools"),
        pytest.param(["ab", "ab", "ab", "c"], ["0a", "0b", "1a", "1b", "2a", "2b"], ["*a", "*b"], id="fewer names"),
    ],
)
def test_fewest_selectors(pools: list[str], cells: list[str], selectors: list[str]) -> None:
    found = covered(fleet(*pools), *cells)
    assert (found, len(found)) == (selectors, len(selectors))
    assert covered(fleet(*pools), *reversed(cells)) == found


def test_drivers_are_covered_apart() -> None:
    """No selector is without driver, even where all devices of the cluster are wanted."""
    pools = pools_of(slice_of("a"), slice_of("a", driver="b.example"), slice_of("a", "b", driver="c.example"))
    wanted = [at("a"), at("a", driver="b.example"), at("a", driver="c.example")]
    assert covering_selectors(pools, wanted) == (
        DeviceSelector("b.example"),
        DeviceSelector("c.example", device="a"),
        DeviceSelector(DRIVER),
    )


def _smallest(pools: Pools, everything: Iterable[DeviceId], wanted: set[DeviceId]) -> int:
    """By trying all sets of selectors that name the driver."""
    names = [(pool, device) for pool in (None, "p0", "p1", "p2") for device in (None, *"abc")]
    reach = [frozenset(each for each in everything if selects(DeviceSelector(DRIVER, *name), *each)) for name in names]
    fitting = [each for each in dict.fromkeys(reach) if each and each <= wanted]
    for count in range(len(wanted) + 1):
        if any(frozenset().union(*chosen) == wanted for chosen in combinations(fitting, count)):
            return count
    raise AssertionError(pools)


def test_no_smaller_set_of_selectors_would_do() -> None:
    cells = [f"{pool}{device}" for pool, device in product("012", "abc")]
    chance = random.Random(5)
    for _ in range(150):
        there = [cell for cell in cells if chance.random() < 0.9]
        rows = ["".join(cell[1] for cell in there if cell[0] == pool) for pool in "012"]
        pools = fleet(*rows)
        wanted = [cell for cell in there if chance.random() < 0.75]
        addresses = {at(cell[1], f"p{cell[0]}") for cell in wanted}
        everything = [at(cell[1], f"p{cell[0]}") for cell in there]
        found = covering_selectors(pools, addresses)
        hit = {each for each in everything if any(selects(selector, *each) for selector in found)}
        assert hit == addresses, (there, wanted)
        assert len(found) == _smallest(pools, everything, addresses), (there, wanted)


def test_work_grows_with_the_number_of_devices_and_no_faster() -> None:
    """Names or pools, whichever are fewer, are looked at once a pass over the devices."""

    def calls(pools: int) -> int:
        def given() -> tuple[Pools, list[DeviceId]]:
            others = [slice_of("other", pool="elsewhere")]
            same = [slice_of("a", "b", "c", "d", pool=f"p{number}") for number in range(pools)]
            return pools_of(*others, *same), [at(each, f"p{n}") for n in range(pools) for each in "abcd"]

        return calls_of(lambda work: covering_selectors(*work), given)

    few, many = calls(50), calls(200)
    assert many < 6 * few


@pytest.mark.parametrize("alike", [1, 2, 3, 4, 9])
def test_alike_pools_are_covered_by_the_fewest_lines(alike: int) -> None:
    """As many pools as names, fewer, and more; beside pools that are wanted in part, and one that is not wanted."""
    names = "abc"
    pools = fleet(*[names] * alike, "xy", "xz", "w")
    cells = [f"{pool}{device}" for pool in range(alike) for device in names]
    found = covered(pools, *cells)
    assert len(found) == min(alike, len(names))
    assert found == ([f"{pool}*" for pool in range(alike)] if alike <= len(names) else ["*a", "*b", "*c"])
    with_part = covered(pools, *cells, f"{alike}x")
    assert len(with_part) == len(found) + 1


def test_cover_counts_what_it_would_list() -> None:
    chance = random.Random(3)
    for _ in range(100):
        published = {f"p{n}": frozenset(chance.sample("abcd", chance.randint(0, 4))) for n in range(5)}
        wanted = {pool: frozenset(each for each in names if chance.random() < 0.7) for pool, names in published.items()}
        cover = cover_of(DRIVER, published, Counter(published.values()), wanted)
        selectors = list(cover.selectors())
        assert cover.needed == len(selectors) == len(set(selectors))
        hit = {
            (pool, device)
            for pool, names in published.items()
            for device in names
            if any(selects(each, DRIVER, pool, device) for each in selectors)
        }
        assert hit == {(pool, device) for pool, names in wanted.items() for device in names}
        left_out = {pool: names for pool, names in wanted.items() if names}
        assert cover_of(DRIVER, published, Counter(published.values()), left_out) == cover


def test_fewest_lines_through_any_cells() -> None:
    """All tables of up to five rows and columns that come up, against all choices of lines."""
    chance = random.Random(8)
    for _ in range(300):
        rows, columns = chance.randint(1, 5), chance.randint(1, 5)
        cells = [(f"r{r}", f"c{c}") for r in range(rows) for c in range(columns) if chance.random() < 0.5]
        crossing: dict[str, list[str]] = {}
        for row, column in cells:
            crossing.setdefault(row, []).append(column)
        chosen_rows, chosen_columns = _fewest_lines(crossing)
        assert all(row in chosen_rows or column in chosen_columns for row, column in cells)
        assert len(chosen_rows) + len(chosen_columns) == _fewest_by_trying(cells)


def _fewest_by_trying(cells: list[tuple[str, str]]) -> int:
    lines = sorted({line for cell in cells for line in cell})
    for count in range(len(lines) + 1):
        if any(all(set(cell) & set(chosen) for cell in cells) for chosen in combinations(lines, count)):
            return count
    raise AssertionError(cells)
