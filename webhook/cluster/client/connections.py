"""What lies under the requests to one API server: sockets, bodies, and errors in the words of curl and kubectl."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp.payload import BytesPayload

from webhook.cluster.client.errors import NotSent

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter


_PROBES: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""A dead watch looks like an idle one, and what it has shown is acted on until a server that vanished is noticed:
after 10 + 3 * 5 s. client-go needs 30 + 15 s (`ReadIdleTimeout` and `PingTimeout` of HTTP/2 in apimachinery)."""
_POLL_SECONDS: Final = 0.005
_CLOSE_SECONDS: Final = 2.0
"""The loop closes a socket within one turn of its other end; this bound is for a loop that is busy."""


class Connections:
    """Makes the sockets of a connector, probed while idle, and knows which are open: all close before the loop does."""

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


_REFUSED: Final = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset",
    errno.EHOSTUNREACH: "no route to host",
    errno.ENETUNREACH: "network is unreachable",
    errno.ETIMEDOUT: "connection timed out",
    errno.EPIPE: "broken pipe",
}


def reason_of(error: aiohttp.ClientError | OSError) -> str:
    """One line: the address, if it was not reached, and what was wrong; no repr of a Python object."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):  # a ClientConnectorError without its os_error
        return f"{_address(error)}: {_certificate(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{_address(error)}: {reason_of_connecting(error.os_error)}"
    if isinstance(error, aiohttp.InvalidURL):
        return f"{error}: not the URL of a server"
    known = _word(error) if isinstance(error, OSError) else ""
    return known or " ".join(str(error).split()) or type(error).__name__


def limit_of(error: TimeoutError, timeout: aiohttp.ClientTimeout) -> str:
    """One line: which limit of a request was reached, in seconds.

    Only lists and watches have a limit of their own for connecting, which holds for each address of the server's name.
    """
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return f"no connection within {timeout.sock_connect:g} s per address"
    if isinstance(error, aiohttp.SocketTimeoutError):
        return f"no data for {timeout.sock_read:g} s"
    return f"no complete answer within {timeout.total:g} s"


def _address(error: aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError) -> str:
    host = f"[{error.host}]" if ":" in error.host else error.host
    return f"{host}:{error.port}"


def reason_of_connecting(error: OSError) -> str:
    """What was wrong when a connection was opened; never empty."""
    if isinstance(error, socket.gaierror):
        return f"no such host ({error.strerror})"
    if isinstance(error, ssl.SSLError):
        return _certificate(error)
    return _word(error) or error.strerror or "no connection"


def _word(error: OSError) -> str:
    if isinstance(error, ConnectionResetError):  # asyncio raises them without a number, too
        return _REFUSED[errno.ECONNRESET]
    return _REFUSED.get(error.errno or 0, "")


def _certificate(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not valid: {error.verify_message}"
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return f"no TLS: {(reason or str(error)).replace('_', ' ').lower()}"


def always() -> bool:
    """For requests that nothing can stop."""
    return True


class FencedBody(BytesPayload):
    """The body of a request that only a lease holder may make, or that may be wanted no longer; headers go with it.

    Between a check in the worker and the first byte on the connection, a process may wait for a connection, or be
    stopped and go on after its lease has ended, or after a person has put a pod on hold. Here only the time
    from this check to the write to the kernel is left; only the API server could close it.
    """

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
