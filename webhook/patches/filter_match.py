"""Which devices are published, and what one filter selects of them, pool by pool. Patches with that filter share it."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from webhook.api.messages import counted
from webhook.api.rules import DeviceSelector
from webhook.api.slices import DeviceClassSelectors
from webhook.expressions.selectors.selector import Compiling
from webhook.inventory.pools import PoolId, names_pool
from webhook.inventory.targets import DeviceId
from webhook.patches.covering import Cover, DeviceNameSet, cover_of
from webhook.patches.expansion import has_only_names
from webhook.patches.filters import CannotFilterError, CompilesSelectors, FilterTests, Found, tests_of

NO_DEVICES: Final[DeviceNameSet] = frozenset()
EXAMPLES_MAX: Final = 3
"""Devices that are named in an Event or a condition."""


class Fleet:
    """Which devices each pool has. Pools with the same devices share one set."""

    def __init__(self) -> None:
        self._published: dict[str, dict[str, DeviceNameSet]] = defaultdict(dict)
        self._shapes: dict[str, Counter[DeviceNameSet]] = defaultdict(Counter)
        self._sets: dict[DeviceNameSet, DeviceNameSet] = {}

    def of(self, pool: PoolId) -> DeviceNameSet:
        """Return the devices of a pool; none of one that is not known."""
        driver, name = pool
        return self._published[driver].get(name, NO_DEVICES) if driver in self._published else NO_DEVICES

    def put(self, pool: PoolId, names: DeviceNameSet | None) -> bool:
        """Note the devices of a pool, or that it is gone; return whether that is new."""
        driver, name = pool
        known = self._published[driver].get(name)
        if known == names:
            return False
        shapes = self._shapes[driver]
        if known is not None:
            shapes[known] -= 1
            if not shapes[known]:
                del shapes[known]
        if names is None:
            del self._published[driver][name]
        else:
            shared = self._sets.setdefault(names, names)
            self._published[driver][name] = shared
            shapes[shared] += 1
        if not self._published[driver]:
            del self._published[driver], self._shapes[driver]
        return True

    def forget_unused(self) -> None:
        """Drop sets of devices that no pool has any more."""
        self._sets = {each: each for shapes in self._shapes.values() for each in shapes}

    def named(self, selector: DeviceSelector) -> Iterator[tuple[PoolId, DeviceNameSet]]:
        """Yield the pools with devices that have the names in a selector, and which these are."""
        drivers = [selector.driver] if selector.driver is not None else sorted(self._published)
        for driver in drivers:
            pools = self._published.get(driver, {})
            found = pools.items() if selector.pool is None else [(selector.pool, pools.get(selector.pool, NO_DEVICES))]
            for name, devices in found:
                own = devices if selector.device is None else devices & {selector.device}
                if own:
                    yield (driver, name), own

    def cover(self, driver: str, wanted: Mapping[str, DeviceNameSet]) -> Cover:
        """Return the fewest selectors for devices of a driver, given by pool."""
        return cover_of(driver, self._published[driver], self._shapes[driver], wanted)


_DEVICES_AT_ONCE: Final = 8
"""Usual selectors take 20 µs for a device, and none more than a millisecond or two. A filter with several counts the
device as often."""


class FilterMatch:
    """One filter, and the devices that it selects."""

    def __init__(self, selector: DeviceSelector, compiles: CompilesSelectors) -> None:
        self.selector = selector
        self.patches: set[str] = set()
        """The patches that have this filter."""
        self.unusable = ""
        """Why it selects nothing at all; empty if it can be judged."""
        self.version = 0
        """Counts up when the class changes, so that what was found meanwhile is not used."""
        self.plain = has_only_names(selector)
        self.tests = FilterTests((), _DEVICES_AT_ONCE)
        self._compiles = compiles
        self._selected: dict[PoolId, DeviceNameSet] = {}
        self._faults: dict[PoolId, tuple[SelectorFaults, ...]] = {}

    def compile(self, classes: Mapping[str, DeviceClassSelectors], compiling: Compiling | None = None) -> bool:
        """Read the class and the selectors; return whether something else may be selected than before.

        `compiling` has what other filters share with this one.
        """
        before, known = (self.unusable, self._expressions), {each.expression: each.test for each in self.tests.placed}
        try:
            with (compiling or Compiling()).turn():
                tests = tests_of(self.selector, classes, lambda text: known.get(text) or self._compiles(text))
            self.tests, self.unusable = FilterTests(tests, _DEVICES_AT_ONCE), ""
        except CannotFilterError as error:
            self.tests, self.unusable = FilterTests((), _DEVICES_AT_ONCE), str(error)
        if self.version and before == (self.unusable, self._expressions):
            return False
        self.version += 1
        return True

    @property
    def _expressions(self) -> list[tuple[str, str]]:
        return [(each.where, each.expression) for each in self.tests.placed]

    def concerns(self, pool: PoolId) -> bool:
        """Tell whether it may select devices of a pool, by its names and the driver of its first selector."""
        return names_pool(self.selector, pool) and self.tests.concern(pool[0])

    # --- what it selects -------------------------------------------------------------------------

    def selected_in(self, pool: PoolId, fleet: Fleet) -> DeviceNameSet:
        """Return the devices that it selects in a pool, by name."""
        if self.unusable:
            return NO_DEVICES
        if not self.plain:
            return self._selected.get(pool, NO_DEVICES)
        if not self.concerns(pool):
            return NO_DEVICES
        device, names = self.selector.device, fleet.of(pool)
        return names if device is None else names & {device}

    def selected(self, fleet: Fleet) -> Iterator[tuple[PoolId, DeviceNameSet]]:
        """Yield all pools where it selects devices, and which."""
        if self.unusable:
            return iter(())
        return fleet.named(self.selector) if self.plain else iter(list(self._selected.items()))

    @property
    def faults(self) -> tuple[SelectorFaults, ...]:
        """The devices that it leaves out because a selector failed on them."""
        return () if self.unusable else summed_faults([each for found in self._faults.values() for each in found])

    def put(self, pool: PoolId, found: Found) -> tuple[bool, bool]:
        """Note the devices that it selects of a pool; return whether these are others, and whether the faults are."""
        names, faults = found.names, _faults_in(pool, found.failed) if found.failed else ()
        other = self._selected.get(pool, NO_DEVICES) != names
        other_faults = self._faults.get(pool, ()) != faults
        if other:
            self._selected.pop(pool, None)
            if names:
                self._selected[pool] = names
        if other_faults:
            self._faults.pop(pool, None)
            if faults:
                self._faults[pool] = faults
        return other, other_faults

    def known(self) -> set[PoolId]:
        """Return the pools for which something is kept."""
        return self._selected.keys() | self._faults.keys()


class FaultExample(NamedTuple):
    """A device on which a selector failed, and how."""

    device: DeviceId
    detail: str


class SelectorFaults(NamedTuple):
    """The devices that one selector of a filter failed on. `where` is the selector, as in a PatchFault."""

    where: str
    devices: int
    """How many."""
    examples: tuple[FaultExample, ...]
    """The first few, by device."""

    def __str__(self) -> str:
        shown = ", ".join([f"{device} ({detail})" for device, detail in self.examples])
        more = self.devices - len(self.examples)
        return f"{self.where} fails on {counted(self.devices, 'device')}: {shown}{f' and {more} more' if more else ''}"


def _faults_in(pool: PoolId, failed: Mapping[tuple[str, str], Sequence[str]]) -> tuple[SelectorFaults, ...]:
    found: list[SelectorFaults] = []
    for (where, detail), names in failed.items():
        first = [FaultExample(DeviceId(*pool, each), detail) for each in heapq.nsmallest(EXAMPLES_MAX, names)]
        found.append(SelectorFaults(where, len(names), tuple(first)))
    return summed_faults(found)


def summed_faults(faults: Iterable[SelectorFaults]) -> tuple[SelectorFaults, ...]:
    """Return those of several pools together, by selector."""
    counts: dict[str, int] = {}
    examples: dict[str, list[FaultExample]] = {}
    for each in faults:
        counts[each.where] = counts.get(each.where, 0) + each.devices
        known = examples.setdefault(each.where, [])
        known[:] = heapq.nsmallest(EXAMPLES_MAX, [*known, *each.examples])
    return tuple([SelectorFaults(where, counts[where], tuple(examples[where])) for where in sorted(counts)])


class FaultNotes:
    """What the last Event of each patch and selector said."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, str]] = {}

    def due(self, uid: str, faults: Sequence[SelectorFaults]) -> list[str]:
        """Return the texts of Events that are due for a patch, by its uid, now that these are all of its faults."""
        before = self._said.pop(uid, {})
        now = {each.where: str(each) for each in faults}
        if now:
            self._said[uid] = now
        return [text for where, text in now.items() if before.get(where) != text]
