"""Why there was no answer, in the words that curl and kubectl use."""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Final

import aiohttp

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
