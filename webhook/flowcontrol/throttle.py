"""A limit on the rate of requests to one server, first come, first served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

_PAUSE_MOST_SECONDS: Final = 30.0


class Throttle:
    """Limits requests per second, after a burst; those that come too fast wait in the order in which they come."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`per_second`: zero or less is no limit. `burst`: requests that may come at once after a quiet time."""
        self._interval = 1.0 / per_second if per_second > 0 else 0.0
        self._ahead = self._interval * max(burst - 1, 0)
        self._clock = clock
        self._next = clock() - self._ahead

    def delay_seconds(self) -> float:
        """How long the request that comes now has to wait, in seconds; it is counted."""
        now = self._clock()
        at = max(self._next, now - self._ahead)
        self._next = at + self._interval
        return max(at - now, 0.0)

    async def wait(self, requests: int = 1) -> None:
        """Returns once that many requests may be made; they count."""
        delay = max(self.delay_seconds() for _ in range(requests))
        if delay:
            await asyncio.sleep(delay)

    def pause(self, seconds: float) -> None:
        """No request for `seconds` (at most 30), and no burst afterwards."""
        self._next = max(self._next, self._clock() + min(seconds, _PAUSE_MOST_SECONDS))
