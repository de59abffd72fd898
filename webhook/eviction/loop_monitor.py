"""Detects stalls of the event loop, after which the caches are older than they look.

A container may be frozen, a machine suspended, or the loop blocked. A process that resumes first runs the timers that
expired meanwhile, and reads only then what its watches have received, or that they were closed. Until it has read that,
it must not evict.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final, NoReturn

log = logging.getLogger(__name__)

_BEAT_SECONDS: Final = 0.25
STALL_SECONDS: Final = 2.0
"""A gap between two beats that counts as a stall: longer than any single step of the worker."""
CATCH_UP_SECONDS: Final = 1.0
"""How long after a stall everything received meanwhile has been read for certain."""


class LoopMonitor:
    """Beats while the event loop runs; a missing beat is a stall."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds that only go forward, from any origin."""
        self._clock = clock
        self._beat_at = clock()
        self._stalled_until = -math.inf

    @property
    def steady(self) -> bool:
        """Whether there was no stall just now. It is false right after one, even before the next beat."""
        now = self._clock()
        return now - self._beat_at < STALL_SECONDS and now - self._stalled_until >= CATCH_UP_SECONDS

    async def run(self) -> NoReturn:
        """Beats until it is cancelled."""
        while True:
            self._beat()
            await asyncio.sleep(_BEAT_SECONDS)

    def _beat(self) -> None:
        now = self._clock()
        seconds = now - self._beat_at
        if seconds >= STALL_SECONDS:
            self._stalled_until = now
            log.warning("event loop blocked", extra={"delaySeconds": round(seconds, 3)})
        self._beat_at = now
