"""HTTP answers as bytes, and the Kubernetes Status that says what was wrong with a request.

aiohttp's own Response assembles headers in a map for each answer, a quarter of the whole cost of a small review.
An `Answer` has what aiohttp asks of a response (prepare, write_eof, keep_alive) and three headers. Most are written
together, by a `WriteQueue`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from asyncio import Transport
from collections.abc import Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

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
        """Count requests that were read: until they are handled, answers wait for theirs."""
        self._requests += requests

    def handled(self, requests: int = 1) -> None:
        """Count requests that are being answered, or never will be."""
        # One that aiohttp found behind an upgrade that was declined was not counted.
        self._requests = max(0, self._requests - requests)

    def put(self, transport: Transport, answer: bytes) -> None:
        """Write an answer: now, with those that wait, or when the requests that were read with it are handled."""
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
        """Write what is queued now: before anything else is written to a connection, and before it is closed."""
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


JSON_TYPE: Final = "application/json"
CLIENT_GONE: Final = 499
"""Never sent: the label under which clients are counted that went away in the middle of a body."""
_REASONS: Final = {
    400: "BadRequest",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    429: "TooManyRequests",
    500: "InternalError",
    505: "BadRequest",
}
_STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode() for status in HTTPStatus}
_encoder: Final = msgspec.json.Encoder()


class RequestRefused(Exception):  # noqa: N818 -- not an error of ours
    """The request is no review; `code` and text make the Status."""

    def __init__(self, code: int, message: str, *, allow: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.allow = allow


@lru_cache(maxsize=1)
def _date_line(second: int) -> bytes:
    return f"\r\nDate: {formatdate(second, usegmt=True)}\r\nContent-Type: ".encode()


class Answer:
    """One whole HTTP/1.1 answer. With `keep_alive` false it closes the connection. `write_queue` is its listener's."""

    __slots__ = ("_allow", "_body", "_content_type", "_request", "_status", "keep_alive", "write_queue")

    def __init__(self, body: bytes, *, status: int = 200, content_type: str = JSON_TYPE, allow: str = "") -> None:
        self._body = body
        self._status = status
        self._content_type = content_type
        self._allow = allow
        self._request: web.BaseRequest | None = None
        self.keep_alive = True
        self.write_queue: WriteQueue | None = None

    async def prepare(self, request: web.BaseRequest) -> None:
        """Note the request. aiohttp calls this before the answer is written."""
        self._request = request

    async def write_eof(self) -> None:
        """Queue the answer; write it at once if it is large, or the connection's last, or the client is slow.

        Returns when there is room for the next one. Raises ConnectionResetError if the client is gone.
        """
        request, queue = self._request, self.write_queue
        assert request is not None
        assert queue is not None
        transport = request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        head = self._head()
        # What a POST would have got: the length stays, the body goes.
        data = head if request.method == "HEAD" else head + self._body
        if self.keep_alive and len(data) <= QUEUED_ANSWER_BYTES and not request.protocol.writing_paused:
            queue.put(transport, data)
            return
        queue.flush()
        transport.write(data)
        if request.protocol.writing_paused:
            await request.writer.drain()

    def _head(self) -> bytes:
        optional = f"\r\nAllow: {self._allow}" if self._allow else ""
        if not self.keep_alive:
            optional += "\r\nConnection: close"
        rest = f"{self._content_type}\r\nContent-Length: {len(self._body)}{optional}\r\n\r\n"
        second = int(time.time())  # noqa: TID251 -- the header is wall-clock time, and nothing is decided by it
        return _STATUS_LINES[self._status] + _date_line(second) + rest.encode()


def failure(code: int, message: str, *, allow: str = "") -> Answer:
    """Return a Status (meta/v1) for a request that is no review. `message` says what to do."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS[code],
        "code": code,
    }
    return Answer(_encoder.encode(status), status=code, allow=allow)


def unfitness(method: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
    """Return code and message for a request that cannot be a review, without its body; None if it may be."""
    if method != "POST":
        return 405, "reviews must be sent with POST"
    content_type = headers.get("Content-Type", "")
    if content_type != JSON_TYPE and content_type.partition(";")[0].strip().lower() != JSON_TYPE:
        return 415, f"Content-Type must be {JSON_TYPE}"
    if headers.get("Content-Encoding", "identity") != "identity":
        return 415, "reviews must be sent without Content-Encoding"
    return None
