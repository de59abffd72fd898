"""The sockets under the requests to one API server: probed while idle, and all closed before the loop is."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import aiohttp

_PROBES: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A dead watch looks like an idle one, and what it has shown is acted on until a server that vanished is noticed:
after 10 + 3 * 5 s. client-go needs 30 + 15 s (`ReadIdleTimeout` and `PingTimeout` of HTTP/2 in apimachinery)."""
_POLL_SECONDS: Final = 0.005
_CLOSE_SECONDS: Final = 2.0
"""The loop closes a socket within one turn of its other end; this bound is for a loop that is busy."""


class Connections:
    """Makes the sockets of a connector, and knows which of them are open."""

    def __init__(self) -> None:
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """A socket that is probed when it is silent. Raises OSError."""
        family, kind, protocol, *_ = address
        made = socket.socket(family, kind, protocol)
        self._sockets.add(made)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _PROBES.items():
            if hasattr(socket, option):  # macOS has other names
                made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        return made

    async def close(self) -> None:
        """Breaks off the connections that a closed connector left behind, and returns once they are gone.

        A request that was cancelled leaves its connection to an orderly end of TLS, for which uvloop waits up to
        30 s, and which aiohttp forgets. A loop that is closed meanwhile fails with EBUSY (uvloop issue 471).
        """
        left = [each for each in self._sockets if each.fileno() != -1]
        for each in left:
            with contextlib.suppress(OSError):  # not connected, or no longer
                each.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while any(each.fileno() != -1 for each in left):  # noqa: ASYNC110 -- the loop announces no such event
                    await asyncio.sleep(_POLL_SECONDS)
