"""The fewest selectors that select given devices of a driver and no other published device.

A selector names the driver, and a pool, a device or both. Laid out as a table, with a row for each pool and a column
for each device name, selectors are rows, columns and single cells. A row or column may be used if all of it is wanted.
Where it has a cell that nothing but itself or a single selector covers, using it is never worse. What is left are cells
in a usable row and in a usable column: the fewest lines through all of them are as many as the greatest number of cells
no two of which share a line (König's theorem), which is found by augmenting paths.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from webhook.api.rules import DeviceSelector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from webhook.inventory.pools import Pools
    from webhook.inventory.published import DeviceId

_Cell = tuple[str, str]
"""Pool and device."""


def covering_selectors(pools: Pools, devices: Iterable[DeviceId]) -> tuple[DeviceSelector, ...]:
    """The fewest that select these devices, which are published, and none else; drivers, and then widths, in order.

    Each names its driver, so that no device of another driver is ever selected.
    """
    wanted: dict[str, set[_Cell]] = defaultdict(set)
    for address in devices:
        wanted[address.driver].add((address.pool, address.device))
    return tuple([each for driver in sorted(wanted) for each in _of_driver(pools, driver, wanted[driver])])


def _of_driver(pools: Pools, driver: str, cells: set[_Cell]) -> Iterator[DeviceSelector]:
    if len(cells) == pools.device_count(driver):
        yield DeviceSelector(driver)
        return
    rows, columns = _whole_lines(pools, driver, cells)
    forced_rows = {pool for pool, device in cells if pool in rows and device not in columns}
    forced_columns = {device for pool, device in cells if device in columns and pool not in rows}
    crossing: dict[str, list[str]] = defaultdict(list)
    for pool, device in sorted(cells):
        if pool in rows and device in columns and pool not in forced_rows and device not in forced_columns:
            crossing[pool].append(device)
    more_rows, more_columns = _fewest_lines(crossing)
    chosen_rows, chosen_columns = forced_rows | more_rows, forced_columns | more_columns
    for pool in sorted(chosen_rows):
        yield DeviceSelector(driver, pool)
    for device in sorted(chosen_columns):
        yield DeviceSelector(driver, device=device)
    for pool, device in sorted(cells):
        if pool not in chosen_rows and device not in chosen_columns:
            yield DeviceSelector(driver, pool, device)


def _whole_lines(pools: Pools, driver: str, cells: set[_Cell]) -> tuple[set[str], set[str]]:
    """The pools all of whose devices are wanted, and the device names that are wanted in each pool that has them."""
    partial_rows: set[str] = set()
    partial_columns: set[str] = set()
    for (_, name), pool in pools.selected(driver, None):
        for device in pool.devices:
            if (name, device) not in cells:
                partial_rows.add(name)
                partial_columns.add(device)
    rows = {pool for pool, _ in cells if pool not in partial_rows}
    return rows, {device for _, device in cells if device not in partial_columns}


def _fewest_lines(crossing: Mapping[str, Sequence[str]]) -> tuple[set[str], set[str]]:
    """The fewest rows and columns through all cells, given as the columns of each row: a minimum vertex cover."""
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
    """Matches one more row with a column, if that can be done by moving others; breadth first, so without recursion."""
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
    """Along the path back: each row takes the column by which it was left, and frees the one that it had."""
    had = {row: column for column, row in row_of.items()}
    column: str | None = free
    while column is not None:
        row = came_from[column]
        row_of[column] = row
        column = had.get(row)
