"""Bodies of reviews as they arrive, and the queue of those that are large or costly, so that others need not wait.

Bodies that come together with their header are not received here. Large bodies are received one at a time, and large or
costly reviews are judged one at a time in a thread beside the loop. It gives way after a tenth of a millisecond, so
other reviews are answered between its steps. A queue has to end somewhere: a review that has waited past its deadline,
or comes when too much is waiting, is shed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final, NoReturn, TypeVar, cast

from aiohttp import StreamReader, web

from webhook.admission.context import Budget, OutOfTime, OutOfTurn
from webhook.admission.review import HEAD_BYTES, request_in
from webhook.expressions.selectors.selector import COMPILE_STEPS, Compiling, compile_selector
from webhook.flowcontrol.workqueue import REVIEW_SECONDS, TimeSlice
from webhook.patches.patch_reach import REACH_SECONDS
from webhook.server.listener import Connection
from webhook.server.responses import CLIENT_GONE, RequestRefused
from webhook.server.review_log import Unjudged
from webhook.server.settings import ReviewSettings
from webhook.server.state import ReviewState

log = logging.getLogger(__name__)

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
_LOOKS_MOST: Final = 4
"""A thousand steps, or about a millisecond: what takes more is compiled in the lane, since many may come at a time."""
_SLICES: Final = "resourceslices"
SELECTING: Final = frozenset({"devicetaintrules", "resourceslicepatches", _SLICES})
"""Resources whose reviews compile selectors, and ask them about devices."""
STRETCH_SECONDS: Final = 0.02
"""How long such a review may hold the loop by that in the end. Nothing else is answered meanwhile."""
_THROWN_AWAY_SHARE: Final = 3
"""How many times the limit of a body is read of one that is not kept."""
ANSWERS: Final = {
    Unjudged.DEADLINE: (504, "time ran out in phase queue, before the review was judged: try again"),
    Unjudged.CROWDED: (429, "too many large reviews at a time: try again, or send less"),
    Unjudged.OVERSIZE: (413, "the review is too large to be judged: send a smaller object"),
}


class Shed(Exception):  # noqa: N818 -- an answer, not a fault
    """A review that will not be judged; `head` is the part of its body that was read."""

    def __init__(self, reason: Unjudged, head: bytes) -> None:
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
        """Let others go on. Work calls it at the end of each step."""
        now = time.monotonic()
        if now - self._rested > _WORK_SECONDS:
            time.sleep(_REST_SECONDS)
            self._rested = time.monotonic()

    async def run(self, work: Callable[[], _T], body: bytes, seconds: float) -> _T:
        """Do `work` on a body, which must begin within `seconds`. Raises Shed, and what `work` raises."""
        size_bytes = len(body)
        if self._bytes + size_bytes > self._limit_bytes:
            raise Shed(Unjudged.CROWDED, body[:HEAD_BYTES])
        self._bytes += size_bytes
        try:
            try:
                async with asyncio.timeout(seconds):
                    await self._free.acquire()
            except TimeoutError:
                raise Shed(Unjudged.DEADLINE, body[:HEAD_BYTES]) from None
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
        """Share `turns` with all bodies; asyncio's lock serves them in the order in which they came."""
        self._turns = turns
        self._has_turn = False
        self._until = 0.0
        self._trickles = False

    async def chunk(self, content: StreamReader) -> bytes:
        """Read what comes next; empty at the body's end. Raises what the reader raises."""
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
        """Let the next one in."""
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


def turn_of(budget: Budget, resource: str, *, on_loop: bool) -> Compiling:
    """Give the turn in which a review compiles. It ends with OutOfTime or OutOfTurn when it is time for that."""
    selectors = budget.selectors = budget.selectors or Compiling()
    if not on_loop:
        # Those of a slice are of all patches that are stored.
        steps = math.inf if resource == _SLICES else COMPILE_STEPS
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


@dataclass(slots=True)
class _Arrival:
    """What has arrived of one body and is kept."""

    chunks: list[bytes] = field(default_factory=list)
    given_up: Unjudged | None = None
    """Why only its beginning is kept."""

    @property
    def head(self) -> bytes:
        """Enough of the body to answer it by; what may be megabytes is not put together for that."""
        head = b""
        for chunk in self.chunks:
            head += chunk[: HEAD_BYTES - len(head)]
            if len(head) == HEAD_BYTES:
                break
        return head

    def give_up(self, why: Unjudged) -> None:
        """Keep the beginning alone."""
        self.given_up = why
        self.chunks = [self.head]


class Bodies:
    """Receives bodies within the bounds of `settings`, in bytes and seconds."""

    def __init__(self, settings: ReviewSettings) -> None:
        self._settings = settings
        self._turns = asyncio.Lock()
        self.buffered_bytes = 0
        """Of all bodies that are arriving."""

    async def receive(self, request: web.BaseRequest, seconds: float) -> bytes:
        """Return the whole body of a review that must be answered within `seconds`.

        Raises Shed for a body that is not judged but can be answered, as its beginning has the uid, and RequestRefused
        for any other that is too large, too slow, broken or cut off.
        """
        announced_oversize = (request.content_length or 0) > self._settings.body_limit_bytes
        seconds = min(seconds, self._settings.body_seconds)
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            if announced_oversize:
                raise self.too_large()
            cast("Connection", request.protocol).write(b"HTTP/1.1 100 Continue\r\n\r\n")
        arrival = _Arrival()
        try:
            async with asyncio.timeout(seconds):
                if announced_oversize:
                    await self._shed_oversize(request.content, arrival)
                return await self._read(request.content, arrival)
        except TimeoutError:
            # A body that was given up stays so: to try again, as the answer to a late one says, would not help.
            why, head = arrival.given_up or Unjudged.DEADLINE, arrival.head
            if request_in(head) is not None:
                raise Shed(why, head) from None
            if why is Unjudged.OVERSIZE:
                raise self.too_large() from None
            raise RequestRefused(408, f"the body did not arrive within {seconds:g} s") from None
        except OSError:
            raise RequestRefused(CLIENT_GONE, "the client went away") from None
        except (RequestRefused, Shed):
            raise
        except Exception as error:  # noqa: BLE001 -- the parser has a handful of types for a broken body
            log.debug("malformed request body", extra={"error": str(error)})
            raise RequestRefused(400, "the body does not match its header: check Transfer-Encoding") from None

    async def _read(self, content: StreamReader, arrival: _Arrival) -> bytes:
        settings, size = self._settings, 0
        turn = Turn(self._turns)
        try:
            while chunk := await (turn.chunk(content) if size > settings.large_bytes else content.readany()):
                size += len(chunk)
                self.buffered_bytes += len(chunk)
                arrival.chunks.append(chunk)
                oversize = size > settings.body_limit_bytes
                if oversize or (
                    self.buffered_bytes > settings.buffered_limit_bytes and size > settings.large_claim_bytes
                ):
                    arrival.give_up(Unjudged.OVERSIZE if oversize else Unjudged.CROWDED)
                    self.buffered_bytes -= size
                    size = 0
                    turn.end()
                    if oversize:
                        await self._shed_oversize(content, arrival)
                    await self._throw_away(content)
                    raise Shed(Unjudged.CROWDED, arrival.head)
            return b"".join(arrival.chunks)
        finally:
            turn.end()
            self.buffered_bytes -= size

    async def _shed_oversize(self, content: StreamReader, arrival: _Arrival) -> NoReturn:
        """Keep no more than the beginning of a body over the limit.

        Raises Shed, RequestRefused where the beginning has no uid, and TimeoutError where it does not come soon.
        """
        arrival.give_up(Unjudged.OVERSIZE)
        async with asyncio.timeout(self._settings.beginning_seconds):
            while len(arrival.head) < HEAD_BYTES and (chunk := await content.readany()):
                arrival.chunks.append(chunk[:HEAD_BYTES])
        head = arrival.head
        if request_in(head) is None:
            raise self.too_large()
        await self._throw_away(content)
        raise Shed(Unjudged.OVERSIZE, head)

    async def _throw_away(self, content: StreamReader) -> None:
        """Drop the rest of a body without room: a caller that still sends would not see the answer.

        No API server sends as much as is read here at most. The connection ends with an answer before the body's end.
        """
        left = _THROWN_AWAY_SHARE * self._settings.body_limit_bytes
        while left > 0 and (chunk := await content.readany()):
            left -= len(chunk)

    def too_large(self) -> RequestRefused:
        """Return the refusal of a body over the limit that cannot be answered by uid."""
        mebibytes = self._settings.body_limit_bytes / 1024 / 1024
        return RequestRefused(413, f"the body must not be larger than {mebibytes:g} MiB")
