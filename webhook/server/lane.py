"""The queue of large and costly reviews, so that others need not wait for them.

Large bodies are received one at a time, and such reviews are judged one at a time in a thread beside the loop. It gives
way after a tenth of a millisecond, so other reviews are answered between its steps. A queue has to end somewhere: a
review that has waited past its deadline, or comes when too much is waiting, is shed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from itertools import count
from typing import Final, TypeVar

from aiohttp import StreamReader

from webhook.admission.context import Budget, OutOfTime, OutOfTurn
from webhook.expressions.selectors.selector import COMPILE_STEPS, Compiling, compile_selector
from webhook.flowcontrol.workqueue import REVIEW_SECONDS, TimeSlice
from webhook.patches.patch_reach import REACH_SECONDS
from webhook.server.review_state import ReviewState

_T = TypeVar("_T")
_SWITCH_SECONDS: Final = 0.0001
"""How long the thread may keep the interpreter while others want it; Python's own 5 ms are a review's whole time."""
_WORK_SECONDS: Final = 0.001
"""How long the thread works between two rests."""
_REST_SECONDS: Final = 0.0005
"""What a small review takes on the loop: one that waits is answered in one rest, not bit by bit in turns with the
thread."""
_TURN_SECONDS: Final = 0.01
"""How long a body keeps its turn, whether data arrives or not: a slow client delays each other body by no more. Two
megabytes take as long; a larger one stands in the queue several times."""
_TRICKLE_BYTES: Final = 4096
"""What is no more than this at a time costs the loop little. A body that has stalled gets that without a turn."""


class Reason(StrEnum):
    """Why a review was not judged."""

    DEADLINE = "deadline"
    CROWDED = "crowded"
    OVERSIZE = "oversize"


ANSWERS: Final = {
    Reason.DEADLINE: (504, "time ran out in phase queue, before the review was judged: try again"),
    Reason.CROWDED: (429, "too many large reviews at a time: try again, or send less"),
    Reason.OVERSIZE: (413, "the review is too large to be judged: send a smaller object"),
}


class Shed(Exception):  # noqa: N818 -- an answer, not a fault
    """A review that will not be judged; `head` is the part of its body that was read."""

    def __init__(self, reason: Reason, head: bytes = b"") -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.head = head


class Lane:
    """A thread for large reviews, and the queue before it."""

    def __init__(self, name: str, limit_bytes: int) -> None:
        """`limit_bytes` is for all bodies that wait or are judged at a time; the thread has the `name`."""
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._rested = 0.0
        self._free = asyncio.Lock()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def rest(self) -> None:
        """Called by work that has come to the end of a step."""
        now = time.monotonic()
        if now - self._rested > _WORK_SECONDS:
            time.sleep(_REST_SECONDS)
            self._rested = time.monotonic()

    async def run(self, work: Callable[[], _T], *, size_bytes: int, seconds: float) -> _T:
        """The result of `work`, which must begin within `seconds`. Raises Shed, and what `work` raises."""
        if self._bytes + size_bytes > self._limit_bytes:
            raise Shed(Reason.CROWDED)
        self._bytes += size_bytes
        try:
            try:
                async with asyncio.timeout(seconds):
                    await self._free.acquire()
            except TimeoutError:
                raise Shed(Reason.DEADLINE) from None
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, _giving_way, work)
            finally:
                self._free.release()
        finally:
            self._bytes -= size_bytes


class Turn:
    """One large body's turn to be received, which ends soon and has to be waited for again.

    Bytes that wait for their turn stay in the buffers of their connection, so that the loop decrypts those of one body
    between two small reviews, and not those of all. A body that trickles in is out of the queue once it has stalled,
    until it comes in earnest: otherwise a byte now and then would take the turn of others.
    """

    def __init__(self, turns: asyncio.Lock) -> None:
        """`turns` is the one of all bodies; asyncio's lock serves them in the order in which they came."""
        self._turns = turns
        self._has_turn = False
        self._until = 0.0
        self._trickles = False

    async def chunk(self, content: StreamReader) -> bytes:
        """What comes next; empty at the body's end. Raises what the reader raises."""
        now = asyncio.get_running_loop().time
        if self._has_turn and now() >= self._until:
            self.end()
        if not self._has_turn and not self._trickles:
            await self._turns.acquire()
            self._has_turn = True
            self._until = now() + _TURN_SECONDS
        if self._has_turn:
            try:
                async with asyncio.timeout_at(self._until):
                    return await content.readany()
            except TimeoutError:
                self.end()
        chunk = await content.readany()
        self._trickles = len(chunk) <= _TRICKLE_BYTES
        return chunk

    def end(self) -> None:
        """Lets the next one in."""
        if self._has_turn:
            self._has_turn = False
            self._turns.release()


class _SwitchInterval:
    """Python's switch interval, which is one for all threads: short while any lane works."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working = 0
        self._before = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if not self._working:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(_SWITCH_SECONDS)
            self._working += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._working -= 1
            if not self._working:
                sys.setswitchinterval(self._before)


_short_switches: Final = _SwitchInterval()


def _giving_way(work: Callable[[], _T]) -> _T:
    with _short_switches:
        return work()


_LOOKS_MOST: Final = 4
"""A thousand steps, or about a millisecond: what takes more is compiled in the lane, since many may come at a time."""
SLICES: Final = "resourceslices"
SELECTING: Final = frozenset({"devicetaintrules", "resourceslicepatches", SLICES})
"""Resources whose reviews compile selectors, and ask them about devices."""
STRETCH_SECONDS: Final = 0.02
"""How long such a review may hold the loop by that in the end. Nothing else is answered meanwhile."""


def turn_of(budget: Budget, resource: str, *, on_loop: bool) -> Compiling:
    """In which a review compiles. Ends with OutOfTime or OutOfTurn when it is time for that."""
    selectors = budget.selectors = budget.selectors or Compiling()
    if not on_loop:
        # Those of a slice are of all patches that are stored.
        steps = math.inf if resource == SLICES else COMPILE_STEPS
        return selectors.turn(partial(budget.check, "selectors"), steps)
    go_on, looks = budget.lasting(STRETCH_SECONDS), count(1)

    def look() -> None:
        if budget.hurried and next(looks) > _LOOKS_MOST:
            raise OutOfTurn
        if not go_on():
            raise OutOfTime("selectors")

    return selectors.turn(look)


async def work_ahead(
    budget: Budget,
    state: ReviewState,
    matching: asyncio.Lock,
    in_lane: Callable[[Callable[[], None]], Awaitable[None]],
) -> bool:
    """Do what has ended a turn; return whether another may come further. `matching`: held to go on with filters."""
    expression = "" if budget.selectors is None else budget.selectors.expression
    if expression:

        def work() -> None:
            with contextlib.suppress(OutOfTime), turn_of(budget, "", on_loop=False):
                compile_selector(expression)

        await in_lane(work)
        return True
    budget.hurried = False
    patient = budget.lasting(REACH_SECONDS)
    timeslice, more = TimeSlice(REVIEW_SECONDS), matching.locked()
    # What is found is for all who ask, so one of them at a time is enough.
    async with matching:
        while patient() and state.match_filters():
            more = True
            await timeslice.pause()
    return more and patient()
