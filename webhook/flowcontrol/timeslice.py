"""Cooperative yielding for long work: reviews, probes, watches and leases share its event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

SLICE_SECONDS: Final = 0.005
"""For a daemon that evicts: a probe or a lease waits for one slice, and not for 100,000 pods."""
REVIEW_SECONDS: Final = 0.001
"""For a daemon that answers reviews: about what a large one takes."""


class TimeSlice:
    """Measures how long work has held the event loop. Tasks may share one: together they get one slice."""

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
        """A slice begins now."""
        self._began = self._clock()

    async def pause(self) -> bool:
        """Yields to other tasks if the slice is over; returns whether it did. Call it after each small step."""
        if not self.over:
            return False
        self._waiting += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._waiting -= 1
        self.begin()
        return True
