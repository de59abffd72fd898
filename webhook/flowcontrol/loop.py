"""What runs in the background: writes that nothing waits for, requests in their turn, faults that last."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, NoReturn, TypeVar

T = TypeVar("T")


async def together(*loops: Coroutine[Any, Any, NoReturn]) -> NoReturn:
    """Run loops until they are cancelled, or one fails."""
    async with asyncio.TaskGroup() as group:
        for each in loops:
            group.create_task(each)
    raise AssertionError("loops do not return")


class Again(NamedTuple):
    """When to look again."""

    after: float | None = None
    """In how many seconds after the pause; None: only once woken."""
    pause: float = 0.0
    """Seconds without a look, even if woken."""


class Loop:
    """A task that looks at once, and again when it is woken or it is time.

    A wake during a look or a pause cuts neither short, and means one look more.
    """

    def __init__(self, look: Callable[[], Awaitable[Again]]) -> None:
        self._look = look
        self._woken = asyncio.Event()

    @property
    def woken(self) -> bool:
        """Whether it was woken since the present look began."""
        return self._woken.is_set()

    def wake(self) -> None:
        """Look again, as something may have changed."""
        self._woken.set()

    async def run(self) -> NoReturn:
        """Look until it is cancelled."""
        while True:
            self._woken.clear()
            after, pause = await self._look()
            if pause:
                await asyncio.sleep(pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(after):
                    await self._woken.wait()


class WriteBehind(Generic[T]):
    """A bounded buffer in front of one writer, as client-go has one in front of its Events."""

    def __init__(
        self, write: Callable[[T], Awaitable[None]], *, most: int, on_dropped: Callable[[int], None] = lambda _: None
    ) -> None:
        """`most`: items that may wait. `on_dropped` is called with the number of items dropped."""
        self._write = write
        self._most = most
        self._on_dropped = on_dropped
        self._loop = Loop(self._drain)
        self.waiting: deque[T] = deque()
        """Oldest first; the one being written is not among them."""

    def add(self, item: T) -> None:
        """Queue the item, or drop it if too many wait."""
        if len(self.waiting) >= self._most:
            self._on_dropped(1)
            return
        self.waiting.append(item)
        self._loop.wake()

    async def run(self) -> NoReturn:
        """Write items in order until it is cancelled."""
        await self._loop.run()

    async def finish(self, seconds: float) -> int:
        """Write what waits, after `run` was cancelled. Drop what is left after `seconds`, and return how many."""
        try:
            async with asyncio.timeout(seconds):
                await self._drain()
        except TimeoutError:
            dropped = len(self.waiting)
            self.waiting.clear()
            self._on_dropped(dropped)
            return dropped
        return 0

    async def _drain(self) -> Again:
        while self.waiting:
            item = self.waiting.popleft()
            try:
                await self._write(item)
            except asyncio.CancelledError:
                self.waiting.appendleft(item)  # it may have been written: better twice than not at all
                raise
        return Again()


_PAUSE_MOST_SECONDS: Final = 30.0


class Throttle:
    """A limit on requests per second, after a burst; those that come too fast wait in the order in which they come."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        """`per_second`: zero or less is no limit. `burst`: requests that may come at once after a quiet time."""
        self._interval = 1.0 / per_second if per_second > 0 else 0.0
        self._ahead = self._interval * max(burst - 1, 0)
        self._clock = clock
        self._next = clock() - self._ahead

    def delay_seconds(self) -> float:
        """Count a request that comes now, and return how long it has to wait."""
        now = self._clock()
        at = max(self._next, now - self._ahead)
        self._next = at + self._interval
        return max(at - now, 0.0)

    async def wait(self, requests: int = 1) -> None:
        """Wait until that many requests may be made, and count them."""
        delay = max(self.delay_seconds() for _ in range(requests))
        if delay:
            await asyncio.sleep(delay)

    def pause(self, seconds: float) -> None:
        """Allow no request for `seconds` (at most 30), and no burst afterwards."""
        self._next = max(self._next, self._clock() + min(seconds, _PAUSE_MOST_SECONDS))


_AGAIN_SECONDS: Final = 300.0
"""A fault that lasts is logged again this often."""


class LastingFault:
    """A fault that lasts over many attempts: logged when it begins, when it changes, and every five minutes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns monotonic seconds."""
        self._clock = clock
        self._since = 0.0
        self._logged_at = 0.0
        self.text = ""
        """The error of the last attempt; empty after a success."""
        self.attempts = 0
        """Failed attempts in a row."""

    def failed(self, text: str) -> bool:
        """Count a failed attempt, and return whether to log it."""
        now = self._clock()
        if not self.attempts:
            self._since = now
        due = text != self.text or not self.attempts or now - self._logged_at >= _AGAIN_SECONDS
        self.attempts += 1
        self.text = text
        if due:
            self._logged_at = now
        return due

    def ended(self) -> None:
        """End the fault: an attempt succeeded."""
        self.attempts, self.text = 0, ""

    @property
    def fields(self) -> dict[str, float]:
        """For the log line: the number of failed attempts, and the seconds since the first."""
        return {"attempt": self.attempts, "sinceSeconds": round(self._clock() - self._since, 1)}


class Sampled:
    """A limit of one logged event in each interval, with the number of events since the last logged one."""

    def __init__(self, every_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_seconds = every_seconds
        self._clock = clock
        self._logged_at: float | None = None
        self._times = 0

    def take(self) -> int:
        """Count an event. Return 0 if it is not to be logged, else the number of events since the last logged one."""
        now = self._clock()
        self._times += 1
        if self._logged_at is not None and now - self._logged_at < self._every_seconds:
            return 0
        times, self._times, self._logged_at = self._times, 0, now
        return times
