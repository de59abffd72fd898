"""Items that are written in the background: adding one never waits, and what is too much is dropped."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")


class WriteBehind(Generic[T]):
    """A bounded buffer in front of one writer, as client-go has one in front of its Events."""

    def __init__(
        self, write: Callable[[T], Awaitable[None]], *, most: int, on_dropped: Callable[[int], None] = lambda _: None
    ) -> None:
        """`most`: items that may wait. `on_dropped` is called with the number of items dropped."""
        self._write = write
        self._most = most
        self._on_dropped = on_dropped
        self._added = asyncio.Event()
        self.waiting: deque[T] = deque()
        """Oldest first; the one being written is not among them."""

    def add(self, item: T) -> None:
        """Queues the item, or drops it if too many wait."""
        if len(self.waiting) >= self._most:
            self._on_dropped(1)
            return
        self.waiting.append(item)
        self._added.set()

    async def run(self) -> NoReturn:
        """Writes items in order until it is cancelled."""
        while True:
            await self._drain()
            self._added.clear()
            await self._added.wait()

    async def finish(self, seconds: float) -> int:
        """Writes what waits, after `run` was cancelled. Drops what is left after `seconds`; returns how many."""
        try:
            async with asyncio.timeout(seconds):
                await self._drain()
        except TimeoutError:
            dropped = len(self.waiting)
            self.waiting.clear()
            self._on_dropped(dropped)
            return dropped
        return 0

    async def _drain(self) -> None:
        while self.waiting:
            item = self.waiting.popleft()
            try:
                await self._write(item)
            except asyncio.CancelledError:
                self.waiting.appendleft(item)  # it may have been written: better twice than not at all
                raise
