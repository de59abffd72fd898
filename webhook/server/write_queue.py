"""Answers that are written together, after all requests of an iteration of the event loop are judged."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import Transport
    from collections.abc import Callable

log = logging.getLogger(__name__)

QUEUED_ANSWER_BYTES: Final = 16 * 1024
"""The largest answer that is queued: one TLS record. A larger one may have to wait for its client."""
_QUEUED_BYTES: Final = 256 * 1024
"""Of all answers in a queue, as one client may have sent all of their requests."""
_WAIT_SECONDS: Final = 0.002
"""After which an answer is written as soon as the next one is known. Sixteen small reviews take half as long."""


class WriteQueue:
    """Answers of one listener that are complete and not yet written. One event loop calls it.

    To write an answer is other work than to judge a review. With each done for all requests of an iteration, the
    processor's caches and branch predictors stay warm (ADR 32). Where reviews are few, or each takes long, answers are
    written at once.
    """

    __slots__ = ("_clock", "_flushed_at", "_requests", "_size_bytes", "_waiting")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: list[tuple[Transport, bytes]] = []
        self._size_bytes = 0
        self._flushed_at = -math.inf
        self._requests = 0

    def expect(self, requests: int) -> None:
        """Counts requests that were read: until they are handled, answers wait for theirs."""
        self._requests += requests

    def handled(self, requests: int = 1) -> None:
        """Counts requests that are being answered, or never will be."""
        # One that aiohttp found behind an upgrade that was declined was not counted.
        self._requests = max(0, self._requests - requests)

    def put(self, transport: Transport, answer: bytes) -> None:
        """Writes an answer: now, with those that wait, or when the requests that were read with it are handled."""
        if not self._requests and not self._waiting:
            transport.write(answer)
            return
        self._waiting.append((transport, answer))
        self._size_bytes += len(answer)
        if not self._requests or self._size_bytes > _QUEUED_BYTES or self._clock() - self._flushed_at > _WAIT_SECONDS:
            self.flush()
        elif len(self._waiting) == 1:
            # For what is left then: a request may wait behind another one of its connection.
            asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Writes what is queued, now: before anything else is written to a connection, and before one is closed."""
        waiting, self._waiting, self._size_bytes = self._waiting, [], 0
        for transport, answer in waiting:
            if transport.is_closing():  # the client is gone
                continue
            try:
                transport.write(answer)
            except Exception:  # the others must get their answers all the same
                log.exception("answer not written")
                transport.abort()
        if waiting:
            self._flushed_at = self._clock()
