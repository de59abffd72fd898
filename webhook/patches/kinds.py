"""Devices that are alike in what a filter reads of them: its selectors have the same answer for all of them.

Every device has an attribute of its own, such as its serial number, so devices are hardly ever equal as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from typing import Final, NamedTuple

from webhook.expressions.selectors.selector import EvaluationError, Reads
from webhook.patches.device_selectors import SharedSelectors
from webhook.patches.published import PublishedDevice

KINDS_MOST: Final = 65_536
"""Kinds that are remembered, some 30 MB; further devices are asked one by one."""
READS_MOST: Final = 16
"""Different things to read by which devices are told apart. Filters that read yet other things ask each device."""
_DEVICES_AT_ONCE: Final = 64
"""To find the kind of a device takes some 20 µs, most of it for the values that selectors see."""


class Group(NamedTuple):
    """Devices of a pool of which one is asked for all. `kind` is None if the answer cannot be used again."""

    kind: int | None
    names: tuple[str, ...]


class Shape(NamedTuple):
    """The devices of a pool by kind. Pools that are alike share one shape; `number` is None if it is not shared."""

    number: int | None
    groups: tuple[Group, ...]


def each_alone(names: Iterable[str]) -> Shape:
    """Return the shape with which every device is asked."""
    return Shape(None, tuple([Group(None, (name,)) for name in names]))


class Kinds:
    """Numbers for kinds of devices and for shapes of pools. A number is never used twice."""

    def __init__(self, selectors: SharedSelectors) -> None:
        self._selectors = selectors
        self._kinds: dict[tuple[object, ...], int] = {}
        self._shapes: dict[tuple[Group, ...], Shape] = {}
        self._reads: set[Reads] = set()
        self._last = 0

    def forget(self) -> bool:
        """Let all numbers go; return whether there were any."""
        had = bool(self._reads)
        self._kinds, self._shapes, self._reads = {}, {}, set()
        return had

    def shape_of(self, reads: Reads | None, devices: Mapping[str, PublishedDevice]) -> Generator[None, None, Shape]:
        """Find the shape of a pool; pauses after each few devices."""
        if reads is None or (reads not in self._reads and len(self._reads) >= READS_MOST):
            return each_alone(devices)
        self._reads.add(reads)
        by_kind: dict[int, list[str]] = defaultdict(list)
        for at, (name, device) in enumerate(devices.items(), 1):
            kind = self._kind_of(reads, device)
            if kind is None:
                return each_alone(devices)
            by_kind[kind].append(name)
            if not at % _DEVICES_AT_ONCE:
                yield
        groups = tuple([Group(kind, tuple(names)) for kind, names in by_kind.items()])
        shape = self._shapes.get(groups)
        if shape is None:
            self._last += 1
            shape = self._shapes[groups] = Shape(self._last, groups)
        return shape

    def _kind_of(self, reads: Reads, device: PublishedDevice) -> int | None:
        """Return the number of a kind; None if it is new, and enough are remembered."""
        # Selectors fail on a device with an attribute that has no value, even if they do not read it.
        try:
            _ = self._selectors.seen(device).variables
            fault = ""
        except EvaluationError as error:
            fault = str(error)
        # `repr` tells 1, 1.0 and True apart, which are one key.
        read = [
            repr((device.attributes if field == "attributes" else device.capacity).get(name)) for field, name in reads
        ]
        key = reads, device.address.driver, device.allow_multiple_allocations, fault, *read
        kind = self._kinds.get(key)
        if kind is None and len(self._kinds) < KINDS_MOST:
            self._last += 1
            kind = self._kinds[key] = self._last
        return kind
