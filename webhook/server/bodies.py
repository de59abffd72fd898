"""Bodies of reviews as they arrive: how much of one is kept, for how long it is waited for, and why it is given up.

Bodies that come together with their header never get here.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Final, NoReturn, cast

from aiohttp import StreamReader, web

from webhook.admission.review import HEAD_BYTES, request_in
from webhook.server.lane import Reason, Shed, Turn
from webhook.server.listener import Connection
from webhook.server.responses import CLIENT_GONE, RequestRefused
from webhook.server.settings import ReviewSettings

log = logging.getLogger(__name__)

_THROWN_AWAY_SHARE: Final = 3
"""How many times the limit of a body is read of one that is not kept."""


@dataclass(slots=True)
class _Arrival:
    """What has arrived of one body and is kept."""

    chunks: list[bytes] = field(default_factory=list)
    given_up: Reason | None = None
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

    def give_up(self, why: Reason) -> None:
        """Keeps the beginning alone."""
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
        """The whole body of a review that must be answered within `seconds`.

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
            why, head = arrival.given_up or Reason.DEADLINE, arrival.head
            if request_in(head) is not None:
                raise Shed(why, head) from None
            if why is Reason.OVERSIZE:
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
                    arrival.give_up(Reason.OVERSIZE if oversize else Reason.CROWDED)
                    self.buffered_bytes -= size
                    size = 0
                    turn.end()
                    if oversize:
                        await self._shed_oversize(content, arrival)
                    await self._throw_away(content)
                    raise Shed(Reason.CROWDED, arrival.head)
            return b"".join(arrival.chunks)
        finally:
            turn.end()
            self.buffered_bytes -= size

    async def _shed_oversize(self, content: StreamReader, arrival: _Arrival) -> NoReturn:
        """Of a body over the limit no more than its beginning is kept.

        Raises Shed, RequestRefused where the beginning has no uid, and TimeoutError where it does not come soon.
        """
        arrival.give_up(Reason.OVERSIZE)
        async with asyncio.timeout(self._settings.beginning_seconds):
            while len(arrival.head) < HEAD_BYTES and (chunk := await content.readany()):
                arrival.chunks.append(chunk[:HEAD_BYTES])
        head = arrival.head
        if request_in(head) is None:
            raise self.too_large()
        await self._throw_away(content)
        raise Shed(Reason.OVERSIZE, head)

    async def _throw_away(self, content: StreamReader) -> None:
        """The rest of a body that there is no room for: a caller that still sends would not see the answer.

        No API server sends as much as is read here at most. The connection ends with an answer before the body's end.
        """
        left = _THROWN_AWAY_SHARE * self._settings.body_limit_bytes
        while left > 0 and (chunk := await content.readany()):
            left -= len(chunk)

    def too_large(self) -> RequestRefused:
        """For a body over the limit that cannot be answered by uid."""
        mebibytes = self._settings.body_limit_bytes / 1024 / 1024
        return RequestRefused(413, f"the body must not be larger than {mebibytes:g} MiB")
