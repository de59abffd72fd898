"""A work queue with client-go's verbs, for one event loop: delays, no item twice, backoff for each item.

Between `get` and `done` an item belongs to one worker; added meanwhile, it comes once more afterwards. Work that takes
long yields by a `TimeSlice`: reviews, probes, watches and leases share its event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from webhook.flowcontrol.rates import exponential_seconds

K = TypeVar("K", bound="Hashable")

# As client-go's ItemExponentialFailureRateLimiter, but its longest wait is a quarter of an hour.
FIRST_SECONDS: Final = 0.005
MOST_SECONDS: Final = 30.0
_OUTDATED_MOST: Final = 64
"""Outdated delays that are kept beside as many as there are items: fewer are not worth the work."""
SLICE_SECONDS: Final = 0.005
"""For a daemon that evicts: a probe or a lease waits for one slice, and not for 100,000 pods."""
REVIEW_SECONDS: Final = 0.001
"""For a daemon that answers reviews: about what a large one takes."""


class WorkQueue(Generic[K]):
    """Items in the order in which they become ready."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        random: Callable[[], float],
        first_seconds: float = FIRST_SECONDS,
        most_seconds: float = MOST_SECONDS,
    ) -> None:
        """`clock` returns seconds that only go forward, `random` numbers in [0, 1)."""
        self._clock = clock
        self._random = random
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._ready: OrderedDict[K, None] = OrderedDict()  # a dict gets slow if its first key goes again and again
        self._again: set[K] = set()
        self._in_work: set[K] = set()
        self._ready_at: dict[K, float] = {}
        self._later: list[tuple[float, int, K]] = []
        self._count = 0
        self._failures: dict[K, int] = {}
        self._news = asyncio.Event()

    def __len__(self) -> int:
        """Count the items that are ready."""
        return len(self._ready)

    def add(self, item: K) -> None:
        """Make the item ready now."""
        self._undelay(item)
        if item in self._in_work:
            self._again.add(item)
        elif item not in self._ready:
            self._ready[item] = None
            self._news.set()

    def add_after(self, item: K, seconds: float) -> None:
        """Make the item ready in `seconds`, or sooner if it was to be ready sooner."""
        if seconds <= 0:
            self.add(item)
            return
        at = self._clock() + seconds
        if item in self._ready or self._ready_at.get(item, at + 1) <= at:
            return
        self._ready_at[item] = at
        self._count += 1
        heapq.heappush(self._later, (at, self._count, item))
        self._drop_outdated()
        self._news.set()

    def add_rate_limited(self, item: K, at_least_seconds: float = 0.0) -> float:
        """Make it ready after a wait that doubles with each failure, cut by up to half at random; return that wait."""
        failures = self._failures.get(item, 0)
        self._failures[item] = failures + 1
        wait = exponential_seconds(failures, self._first_seconds, self._most_seconds, self._random)
        seconds = max(wait, at_least_seconds)
        self.add_after(item, seconds)
        return seconds

    def comes_again(self, item: K) -> bool:
        """Return whether an item that a worker has was added meanwhile."""
        return item in self._again

    def forget(self, item: K) -> None:
        """Forget its failures: it succeeded."""
        self._failures.pop(item, None)

    def discard(self, item: K) -> None:
        """Drop its delay and its failures: it is needed no longer. An item that is ready comes all the same."""
        self._undelay(item)
        self.forget(item)

    def done(self, item: K) -> None:
        """Take an item back from its worker, which has finished with it."""
        self._in_work.discard(item)
        if item in self._again:
            self._again.discard(item)
            self.add(item)

    async def get(self) -> K:
        """Return the next item, as soon as there is one."""
        while True:
            wait = self._promote()
            if self._ready:
                item, _ = self._ready.popitem(last=False)
                self._in_work.add(item)
                if self._ready:
                    self._news.set()  # for the next worker
                return item
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._news.wait()

    def _promote(self) -> float | None:
        """Move what has become ready; return the seconds until the next item is, None if there is none."""
        now = self._clock()
        while self._later:
            at, _, item = self._later[0]
            if self._ready_at.get(item) != at:
                heapq.heappop(self._later)  # it was added for sooner, or at once
            elif at > now:
                return at - now
            else:
                heapq.heappop(self._later)
                self.add(item)
        return None

    def _undelay(self, item: K) -> None:
        if self._ready_at.pop(item, None) is not None:
            self._drop_outdated()

    def _drop_outdated(self) -> None:
        """Drop delays that do not hold any more, once they are most: their ends may be months away."""
        if len(self._later) > 2 * len(self._ready_at) + _OUTDATED_MOST:
            self._later = [each for each in self._later if self._ready_at.get(each[2]) == each[0]]
            heapq.heapify(self._later)


class TimeSlice:
    """A measure of how long work has held the event loop. Tasks may share one: together they get one slice."""

    def __init__(self, seconds: float = SLICE_SECONDS, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` returns seconds that only go forward."""
        self._seconds = seconds
        self._clock = clock
        self._began = clock()
        self._waiting = 0

    @property
    def paused(self) -> bool:
        """Whether a task has more to do and is waiting for the loop."""
        return self._waiting > 0

    @property
    def over(self) -> bool:
        """Whether it is time to yield."""
        return self._clock() - self._began >= self._seconds

    def begin(self) -> None:
        """Begin a slice now."""
        self._began = self._clock()

    async def pause(self) -> bool:
        """Yield to other tasks if the slice is over; return whether it did. Call it after each small step."""
        if not self.over:
            return False
        self._waiting += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._waiting -= 1
        self.begin()
        return True
