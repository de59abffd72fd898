"""Work that is too much for one turn of the loop: pods to be looked at anew, and pauses in between.

One taint may hit every pod of a cluster. Leases are renewed, probes answered and watches read by the same loop, so
what takes long is done in slices of a few milliseconds.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SLICE_SECONDS: Final = 0.005


class Slices:
    """Says when work has had the loop for long enough. Several tasks may share one: together they get one slice."""

    def __init__(self, clock: Callable[[], float], seconds: float = SLICE_SECONDS) -> None:
        """`clock` gives any seconds."""
        self._clock = clock
        self._seconds = seconds
        self._began = clock()
        self._waiting = 0

    @property
    def paused(self) -> bool:
        """Whether somebody has more to do, and only waits for the loop."""
        return self._waiting > 0

    def begin(self) -> None:
        """A slice begins now."""
        self._began = self._clock()

    @property
    def over(self) -> bool:
        """Whether it is time to let others have the loop."""
        return self._clock() - self._began >= self._seconds

    async def pause(self) -> bool:
        """Lets others have the loop if it is time to; gives whether it was."""
        if not self.over:
            return False
        self._waiting += 1
        try:
            await asyncio.sleep(0)
        finally:
            self._waiting -= 1
        self.begin()
        return True


class Backlog:
    """Things to be looked at anew, each once, the last first.

    Many that are neighbours, as whoever adds them has them, are in memory as well: it pays to take them together.
    """

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Iterable[str]) -> None:
        """Also these."""
        self._keys.update(dict.fromkeys(keys))

    def take(self, most: int) -> list[str]:
        """Some of them, which are in it no longer."""
        return [self._keys.popitem()[0] for _ in range(min(most, len(self._keys)))]
