"""Requests that only a lease holder may make, or that may be wanted no longer: checked when their body is written.

Between a check in the worker and the first byte on the connection, a process may wait for a connection, or be stopped
and go on after its lease has ended, or after a person has put a pod on hold. What is left of that here is the time from
this check to the write to the kernel; only the API server could close it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp.payload import BytesPayload

from webhook.cluster.client.errors import NotSent

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.abc import AbstractStreamWriter


def always() -> bool:
    """For requests that nothing can stop."""
    return True


class FencedBody(BytesPayload):
    """The body of a request, with which aiohttp sends the headers."""

    def __init__(self, data: bytes, permitted: Callable[[], bool], wanted: Callable[[], bool] = always) -> None:
        super().__init__(data)
        self._permitted = permitted
        self._wanted = wanted

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Writes headers and body. Raises NotSent."""
        if not self._permitted():
            raise NotSent("not sent, because this process no longer holds the lease")
        if not self._wanted():
            raise NotSent("not sent, because it is not wanted any more")
        await super().write_with_length(writer, content_length)
