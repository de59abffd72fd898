"""Long work in short pieces: reviews are answered by the same loop."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_SECONDS: Final = 0.001
"""About what a large review takes; whoever waits for the loop waits for one such piece, and not for 100,000 objects."""


class Turns:
    """Says when it is time to let others have the loop."""

    def __init__(self, most_seconds: float = _MOST_SECONDS, clock: Callable[[], float] = time.perf_counter) -> None:
        self._most_seconds = most_seconds
        self._clock = clock
        self._began = clock()

    async def pause(self) -> None:
        """Lets others have the loop if this piece of work took long enough. Call it after each small step."""
        if self._clock() - self._began >= self._most_seconds:
            await asyncio.sleep(0)
            self._began = self._clock()
