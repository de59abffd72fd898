"""Which devices filters with a class or CEL select, remembered pool by pool for as long as a pool stays as it is.

To ask every device of a large cluster takes longer than a review may, so a question may end before it has an answer.
What was found by then is kept; `step` goes on with it, and the next question has less left to do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from webhook.api.rules import DeviceSelector
from webhook.api.slices import DeviceClassSelectors
from webhook.inventory.pools import Pool, PoolId, Pools, names_pool
from webhook.patches.filters import FilterTests, PlacedTest, SharedSelectors, each_alone, placed_expressions, tests_of
from webhook.patches.published import published_by_slice

FILTERS_MOST: Final = 1000
"""Filters that are remembered; the one that was asked about longest ago is forgotten first."""
POOLS_MOST: Final = 128_000
"""Pools that are remembered, counted for each filter: 64 filters of 2,000 pools each, some 60 MB. A pool counts once
more for every DEVICES_OF_POOL devices that are selected of it."""
DEVICES_OF_POOL: Final = 16
DEVICES_AT_ONCE: Final = 4
"""Usual selectors take some 50 microseconds for a device, with all that is made for it, and none more than a
millisecond or two. A filter with several counts the device as often, from the start again with each slice."""
CHARACTERS_MOST: Final = 64 * 1024
"""Of all selectors that are remembered; what is compiled of them takes up to 50 MB."""


class FilterMemo:
    """Filters, and what they select. One owner; nothing waits here."""

    def __init__(self) -> None:
        self._filters: OrderedDict[tuple[DeviceSelector, tuple[str, ...]], _Matched] = OrderedDict()
        self._selectors = SharedSelectors()
        self._rest: Iterator[bool] | None = None
        """The work that `step` goes on with."""

    def selected(
        self,
        selector: DeviceSelector,
        classes: Mapping[str, DeviceClassSelectors],
        pools: Pools,
        go_on: Callable[[], bool],
        wanted: Collection[PoolId] | None = None,
    ) -> Mapping[PoolId, frozenset[str]] | None:
        """Return the devices that the filter selects, by pool; None if `go_on` said no before all were asked.

        `wanted`: the pools in question, if not all are. Raises: CannotFilterError, and what `go_on` raises.
        """
        key = selector, tuple([each for _, each in placed_expressions(selector, classes)])
        matched = self._filters.get(key)
        if matched is None:
            matched = _Matched(selector, tests_of(selector, classes, self._selectors.make()), self._selectors.forget)
            self._filters[key] = matched
        self._filters.move_to_end(key)
        self._rest = None
        self._selectors.forget()  # of a pool that `step` was at, and that may be another by now
        work = matched.work(pools, wanted)
        try:
            while go_on():
                if next(work, None) is None:
                    return matched.found(wanted)
            return None
        finally:
            self._selectors.forget()
            self._forget()

    def _forget(self) -> None:
        """Forget all but so much, and never what was asked about last."""
        pools = sum([each.remembered for each in self._filters.values()])
        characters = sum([len(text) for _, expressions in self._filters for text in expressions])
        while len(self._filters) > 1 and (
            len(self._filters) > FILTERS_MOST or pools > POOLS_MOST or characters > CHARACTERS_MOST
        ):
            (_, expressions), oldest = self._filters.popitem(last=False)
            pools -= oldest.remembered
            characters -= sum(map(len, expressions))

    def step(self, pools: Pools) -> bool:
        """Go on a little with what the last question has left, or another; return whether there was anything."""
        if self._rest is None:
            matched = next((each for each in reversed(self._filters.values()) if not each.complete), None)
            if matched is None:
                return False
            self._rest = matched.work(pools, None)
        if next(self._rest, None) is None:
            self._rest = None
        return True


class _Matched:
    """One filter. `complete`: nothing is left to do."""

    def __init__(self, selector: DeviceSelector, tests: tuple[PlacedTest, ...], forget: Callable[[], None]) -> None:
        self._selector = selector
        self._tests = FilterTests(tests, DEVICES_AT_ONCE)
        self._forget = forget
        self._pools: dict[PoolId, tuple[object, frozenset[str]]] = {}
        self.remembered = 0
        """Pools, as POOLS_MOST counts them."""
        self.complete = False

    def found(self, wanted: Collection[PoolId] | None) -> Mapping[PoolId, frozenset[str]]:
        """Return what it selects in these pools."""
        known = self._pools if wanted is None else [each for each in wanted if each in self._pools]
        return {identity: names for identity in known if (names := self._pools[identity][1])}

    def work(self, pools: Pools, wanted: Collection[PoolId] | None) -> Iterator[bool]:
        """Ask every device of the pools that are not known as they are; a little at each step, until it ends.

        Where only some are `wanted`, the others are left for another time.
        """
        self.complete = False
        selected: Iterable[tuple[PoolId, Pool]] = pools.selected(self._selector.driver, self._selector.pool)
        if wanted is not None:
            named = [each for each in wanted if names_pool(self._selector, each)]
            selected = [(each, pool) for each in named if (pool := pools.get(each)) is not None]
        there = [each for each in selected if self._concerns(*each)]
        asked = self._pools.keys() if wanted is None else self._pools.keys() & set(wanted)
        for identity in asked - {identity for identity, _ in there}:
            self.remembered -= _counted(self._pools.pop(identity)[1])
        for identity, pool in there:
            version, known = pool.version, self._pools.get(identity)
            if known is not None and known[0] is version:
                continue
            names: frozenset[str] = frozenset()
            only = self._selector.device
            for published in published_by_slice(identity, pool):
                yield True
                devices = {each.address.device: each for each in published if only in (None, each.address.device)}
                for found in self._tests.ask(each_alone(devices), devices):
                    if found is None:
                        yield True
                    else:
                        names |= found.names
                self._forget()
            self._pools[identity] = version, names
            self.remembered += _counted(names) - (0 if known is None else _counted(known[1]))
        self.complete = True

    def _concerns(self, identity: PoolId, pool: Pool) -> bool:
        device = self._selector.device
        return self._tests.concern(identity[0]) and (device is None or device in pool.devices)


def _counted(names: Collection[str]) -> int:
    return 1 + len(names) // DEVICES_OF_POOL
