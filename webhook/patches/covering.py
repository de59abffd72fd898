"""The fewest selectors that select given devices of a driver and no other published device.

Devices that are not published now may have the names as well, so single devices come first while they are few enough.

A selector names the driver, and a pool, a device or both. Laid out as a table, with a row for each pool and a column
for each device name, selectors are rows, columns and single cells. A row or column may be used if all of it is wanted.
Where it has a cell that nothing but itself or a single selector covers, using it is never worse. What is left are cells
in a usable row and in a usable column: the fewest lines through all of them are as many as the greatest number of cells
no two in one line (König's theorem), which is found by augmenting paths.

Clusters have thousands of pools, most of them alike, so pools that have the same devices, and want the same ones,
are looked at once. Of alike rows in a crossing one more than they have columns is enough: if there are more,
the columns are chosen anyway.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from webhook.api.rules import DeviceSelector
from webhook.inventory.pools import Pools
from webhook.inventory.targets import DeviceId

RULES_MAX: Final = 100
"""Rules of one patch, unless the caller sets another ceiling: each is an object that every scheduler looks at."""
DeviceNameSet: TypeAlias = frozenset[str]
"""Names of devices of one pool."""


def covering_selectors(pools: Pools, devices: Iterable[DeviceId]) -> tuple[DeviceSelector, ...]:
    """Return the fewest that select these published devices alone; drivers, and then widths, in order.

    Each names its driver, so that no device of another driver is ever selected.
    """
    wanted: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for address in devices:
        wanted[address.driver][address.pool].add(address.device)
    found: list[DeviceSelector] = []
    for driver in sorted(wanted):
        published = {name: frozenset(pool.devices) for (_, name), pool in pools.selected(driver, None)}
        of_driver = {pool: frozenset(names) for pool, names in wanted[driver].items()}
        found += cover_of(driver, published, Counter(published.values()), of_driver).selectors()
    return tuple(found)


class Cover(NamedTuple):
    """The fewest selectors for devices of one driver."""

    driver: str
    everything: bool
    """The driver alone will do."""
    rows: tuple[str, ...] = ()
    """Whole pools, by name."""
    columns: tuple[str, ...] = ()
    """Device names that are wanted in all pools, by name."""
    rest: tuple[tuple[str, DeviceNameSet], ...] = ()
    """Single devices, by pool."""

    @property
    def needed(self) -> int:
        """How many selectors there are."""
        if self.everything:
            return 1
        return len(self.rows) + len(self.columns) + sum([len(names) for _, names in self.rest])

    def selectors(self) -> Iterator[DeviceSelector]:
        """Yield all of them: pools, device names, single devices; each by name."""
        if self.everything:
            yield DeviceSelector(self.driver)
        for pool in self.rows:
            yield DeviceSelector(self.driver, pool)
        for device in self.columns:
            yield DeviceSelector(self.driver, device=device)
        for pool, names in self.rest:
            for device in sorted(names):
                yield DeviceSelector(self.driver, pool, device)


def each_of(driver: str, wanted: Mapping[str, DeviceNameSet]) -> Cover:
    """Make a selector for each device, given by pool: these select nothing else, whatever is published later."""
    return Cover(driver, everything=False, rest=tuple(sorted(wanted.items())))


def cover_of(
    driver: str,
    published: Mapping[str, DeviceNameSet],
    shapes: Mapping[DeviceNameSet, int],
    wanted: Mapping[str, DeviceNameSet],
) -> Cover:
    """Find the fewest selectors for the devices wanted, by pool; a pool that wants none may be left out.

    `published` are the devices of each pool of the driver, `shapes` how many pools have just these devices.
    """
    groups: dict[tuple[DeviceNameSet, DeviceNameSet], list[str]] = defaultdict(list)
    for pool, names in wanted.items():
        if names:
            groups[published[pool], names].append(pool)
    if groups and sum([len(names) * len(found) for (_, names), found in groups.items()]) == _device_count(shapes):
        return Cover(driver, everything=True)
    whole = _whole_columns(groups, shapes)
    rows = [pool for (names, own), found in groups.items() if own == names and not own <= whole for pool in found]
    columns = {name for (names, own) in groups if own != names for name in own & whole}
    crossing: dict[DeviceNameSet, list[str]] = defaultdict(list)
    for (names, own), found in groups.items():
        if own == names and own <= whole and own - columns:
            crossing[own - columns] += found
    few = {pool: sorted(own) for own, found in crossing.items() for pool in sorted(found)[: len(own) + 1]}
    more_rows, more_columns = _fewest_lines(few)
    chosen, lines = {*rows, *more_rows}, columns | more_columns
    rest = [(pool, own - lines) for (_, own), found in groups.items() if own - lines for pool in found]
    return Cover(
        driver,
        everything=False,
        rows=tuple(sorted(chosen)),
        columns=tuple(sorted(lines)),
        rest=tuple(sorted([each for each in rest if each[0] not in chosen], key=lambda each: each[0])),
    )


def _device_count(shapes: Mapping[DeviceNameSet, int]) -> int:
    return sum([len(names) * count for names, count in shapes.items()])


def _whole_columns(
    groups: Mapping[tuple[DeviceNameSet, DeviceNameSet], Sequence[str]], shapes: Mapping[DeviceNameSet, int]
) -> set[str]:
    """Return the device names that are wanted in each pool that has them."""
    left = Counter(shapes)
    partial: set[str] = set()
    for (names, own), found in groups.items():
        left[names] -= len(found)
        partial |= names - own
    for names, count in left.items():
        if count > 0:
            partial |= names
    return {name for _, own in groups for name in own if name not in partial}


def _fewest_lines(crossing: Mapping[str, Sequence[str]]) -> tuple[set[str], set[str]]:
    """Find the fewest rows and columns through all cells, the columns of each row: a minimum vertex cover."""
    row_of: dict[str, str] = {}
    """The row with which a column is matched."""
    for row in crossing:
        _augment(crossing, row, row_of)
    matched = set(row_of.values())
    reached_rows = {row for row in crossing if row not in matched}
    reached_columns: set[str] = set()
    left = list(reached_rows)
    while left:
        for column in crossing[left.pop()]:
            if column not in reached_columns:
                reached_columns.add(column)
                row = row_of[column]  # else there would be an augmenting path
                if row not in reached_rows:
                    reached_rows.add(row)
                    left.append(row)
    return set(crossing) - reached_rows, reached_columns


def _augment(crossing: Mapping[str, Sequence[str]], start: str, row_of: dict[str, str]) -> None:
    """Match one more row with a column, if that can be done by moving others; breadth first, so without recursion."""
    came_from: dict[str, str] = {}
    """For each column that was reached, the row from which it was."""
    queue = [start]
    for row in queue:
        for column in crossing[row]:
            if column in came_from:
                continue
            came_from[column] = row
            if column in row_of:
                queue.append(row_of[column])
                continue
            _move(column, came_from, row_of)
            return


def _move(free: str, came_from: Mapping[str, str], row_of: dict[str, str]) -> None:
    """Go back along the path: each row takes the column by which it was left, and frees the one that it had."""
    had = {row: column for column, row in row_of.items()}
    column: str | None = free
    while column is not None:
        row = came_from[column]
        row_of[column] = row
        column = had.get(row)
