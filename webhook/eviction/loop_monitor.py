"""Whether this process has had its turn all the time: what it knows is older than it believes if it was held up.

A container may be frozen, a machine suspended, a loop blocked. Who goes on after that first does what was due
meanwhile, and only then reads what the watches have to say, or that they are gone.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

_BEAT_SECONDS: Final = 0.25
STALL_SECONDS: Final = 2.0
"""A pause between two beats that counts as being held up: longer than anything that we do in one go."""
CATCH_UP_SECONDS: Final = 1.0
"""How long after that everything that has come meanwhile is read for certain."""


class LoopMonitor:
    """Beats while the loop runs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives any seconds."""
        self._clock = clock
        self._beat_at = clock()
        self._stalled_until = -math.inf

    @property
    def steady(self) -> bool:
        """Whether nothing held us up just now; what is asked right after it, before anything else runs, is told so."""
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
