"""Which requests use an HTTP proxy: HTTPS_PROXY, HTTP_PROXY and NO_PROXY as Go's httpproxy reads them.

kubectl and every controller read them that way, so one environment has one meaning. Python's own `proxy_bypass` knows
neither networks nor ports, and takes `all_proxy`, which Go does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from yarl import URL

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network


_SUPPORTED: Final = frozenset({"http", "https"})


class UnknownProxy(ValueError):  # noqa: N818 -- it says what it is
    """A proxy that cannot be used; the text says why, without the password that may stand in its URL."""


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
