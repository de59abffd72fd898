"""Requests that only a lease holder may make: they are checked when their body is written, and not before.

Between a check in the worker and the first byte on the connection, a process may wait for a connection, or be stopped
and go on after its lease has ended. What is left of that here is the time from this check to the write to the kernel;
only the API server could close it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp.payload import BytesPayload

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.abc import AbstractStreamWriter


class NotSent(Exception):  # noqa: N818 -- it says what happened
    """Nothing of the request was sent, because this process must not make it any more."""

    def __str__(self) -> str:
        return "not sent, because this process no longer holds the lease"


class FencedBody(BytesPayload):
    """The body of a request, with which aiohttp sends the headers."""

    def __init__(self, data: bytes, permitted: Callable[[], bool]) -> None:
        super().__init__(data)
        self._permitted = permitted

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Writes headers and body. Raises NotSent."""
        if not self._permitted():
            raise NotSent
        await super().write_with_length(writer, content_length)
