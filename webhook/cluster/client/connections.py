"""How a server is reached: proxies, sockets, fenced bodies, TLS; and what was wrong, in the words of curl and kubectl.

Which requests use an HTTP proxy is read as Go's httpproxy does: from HTTPS_PROXY, HTTP_PROXY and NO_PROXY. kubectl and
every controller read them that way, so one environment has one meaning. Python's own `proxy_bypass` knows neither
networks nor ports, and takes `all_proxy`, which Go does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import aiohttp
from aiohttp.payload import BytesPayload
from yarl import URL

from webhook.certificates.parsing import Unusable, parsing, trusting_context
from webhook.cluster.client.credentials import Access
from webhook.cluster.client.errors import NoCredentials, NotSent

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

# --- proxies ---------------------------------------------------------------------------------------

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network


_SUPPORTED: Final = frozenset({"http", "https"})


class UnknownProxy(ValueError):  # noqa: N818 -- it says what it is
    """A proxy that cannot be used; the text says why, without the password that may stand in its URL."""


class Proxy(NamedTuple):
    """The proxy of all requests to a server, and the headers that it asks for; without a URL there is none."""

    url: URL | None = None
    headers: Mapping[str, str] | None = None

    @classmethod
    def of(cls, access: Access) -> Self:
        """From the credentials, else from HTTPS_PROXY and NO_PROXY. Raises NoCredentials.

        Left to aiohttp, that would be looked up for each request, in a thread, and ~/.netrc with it; client-go does not
        read that either.
        """
        try:
            if access.proxy is None:
                url = proxy_for(URL(access.server), os.environ)
            else:
                url = proxy_at(access.proxy, "proxy-url") if access.proxy else None
        except UnknownProxy as error:
            raise NoCredentials(str(error)) from None
        if url is None or not url.user:
            return cls(url)
        authorization = aiohttp.encode_basic_auth(url.user, url.password or "")
        return cls(url.with_user(None), {"Proxy-Authorization": authorization})


def proxy_for(server: URL, environment: Mapping[str, str]) -> URL | None:
    """The proxy for requests to a server, from HTTPS_PROXY or HTTP_PROXY by the server's scheme, or None.

    Capital letters come first, as in Go. Raises UnknownProxy.
    """
    text = _variable(environment, f"{server.scheme}_proxy")
    if not text or not server.host or not _goes_by_proxy(server.host, server.port, _variable(environment, "no_proxy")):
        return None
    return proxy_at(text, f"{server.scheme}_proxy".upper())


def proxy_at(text: str, source: str) -> URL:
    """A proxy's URL; without a scheme, the proxy is used over plain HTTP. `source` begins the text of UnknownProxy."""
    try:
        url = URL(text if "://" in text else f"http://{text}")
        usable = url.scheme in _SUPPORTED and bool(url.host)
    except ValueError:
        raise UnknownProxy(f"{source}: not a URL") from None
    if not usable:
        raise UnknownProxy(f"{source}: must be the URL of an HTTP proxy, and its scheme is {url.scheme or 'missing'!r}")
    return url


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name.upper()) or environment.get(name) or ""


@dataclass(frozen=True, slots=True)
class _Exception:
    """One entry of NO_PROXY: a network or a domain, perhaps with a port."""

    network: _Network | None
    domain: str
    """With a dot before it."""
    itself: bool
    """Whether the domain itself matches, and not only names below it."""
    port: str

    def holds(self, host: str, address: _Address | None, port: str) -> bool:
        if self.port and self.port != port:
            return False
        if address is not None or self.network is not None:
            return address is not None and self.network is not None and address in self.network
        return host.endswith(self.domain) or (self.itself and host == self.domain[1:])


def _goes_by_proxy(host: str, port: int | None, no_proxy: str) -> bool:
    host = host.lower()
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    if "*" in entries:
        return False
    exceptions = (_exception(entry) for entry in entries)
    return not any(each is not None and each.holds(host, address, str(port)) for each in exceptions)


def _exception(entry: str) -> _Exception | None:
    """The meaning of an entry; None if it has none."""
    network = _network(entry)
    if network is not None:
        return _Exception(network, "", itself=False, port="")
    host, port = _split_port(entry)
    network = _network(host) if "/" not in host else None
    if network is not None:
        return _Exception(network, "", itself=False, port=port)
    if host.startswith("*."):
        host = host[1:]
    if not host.strip("."):
        return None
    below = host.startswith(".")
    return _Exception(None, host if below else f".{host}", itself=not below, port=port)


def _split_port(entry: str) -> tuple[str, str]:
    """The two parts of `host:port` and `[address]:port`; the port is empty where there is none."""
    host, colon, port = entry.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        host, port = entry, ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, port


def _address(text: str) -> _Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _network(text: str) -> _Network | None:
    """A network, or a single address as one; bits behind the mask are passed over, as in Go."""
    if "/" not in text:
        address = _address(text)
        return None if address is None else ip_network(address)
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


# --- sockets and bodies ----------------------------------------------------------------------------

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
        return f"{_host_and_port(error)}: {_certificate(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{_host_and_port(error)}: {reason_of_connecting(error.os_error)}"
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError):
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


def _host_and_port(error: aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError) -> str:
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


# --- the certificate behind an address -------------------------------------------------------------


class NoHandshake(Exception):  # noqa: N818 -- it says what there is
    """Nothing listens there, or it cannot be reached from here."""


class Untrusted(Exception):  # noqa: N818 -- it says what is wrong
    """The caBundle does not verify the served certificate; the text says why."""


async def certificate_end(host: str, port: int, name: str, bundle: bytes, timeout_seconds: float) -> datetime:
    """The end of the served certificate's validity, if the bundle verifies it for that name.

    Raises NoHandshake and Untrusted.
    """
    try:
        with parsing("the caBundle cannot be read"):
            context = trusting_context(bundle.decode("ascii"))
    except Unusable as error:
        raise Untrusted(str(error)) from None
    try:
        async with asyncio.timeout(timeout_seconds):
            _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    except ssl.SSLCertVerificationError as error:
        raise Untrusted(error.verify_message or str(error)) from None
    except OSError as error:
        late = isinstance(error, TimeoutError) and not error.errno  # the system's own has a number
        raise NoHandshake(f"no answer within {timeout_seconds:g} s" if late else reason_of_connecting(error)) from None
    except ValueError as error:  # a name that no certificate can have
        raise NoHandshake(str(error)) from None
    try:
        peer = writer.get_extra_info("peercert")
        with parsing("the end of the served certificate cannot be read"):
            return datetime.fromtimestamp(ssl.cert_time_to_seconds(peer["notAfter"]), UTC)
    except Unusable as error:
        raise Untrusted(str(error)) from None
    finally:
        writer.transport.abort()  # closing TLS would wait up to 30 s for a server that does not answer
        with contextlib.suppress(OSError):
            await writer.wait_closed()
