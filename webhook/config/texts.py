"""Parsers of flag values, for all verbs: text in, value out, or ValueError saying what would be valid."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path as FilePath
from typing import Final

from webhook.api.meta import NamespacedName, parse_time
from webhook.certificates.settings import CIPHER_SUITES, TLS13_CIPHER_SUITES
from webhook.server.settings import Address
from webhook.validation.formats import dns1123_label, dns1123_subdomain

_HIGHEST_PORT: Final = 65535
_LONGEST_DELAY_SECONDS: Final = 3600.0
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"", "0", "false", "no", "off"})
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SHORTEST_LEAF: Final = timedelta(seconds=10)
_LONGEST_CA: Final = timedelta(days=3653)
_MOST_COUNT: Final = 10_000
_LONGEST_WAIT_SECONDS: Final = 24 * 3600.0


def as_text(text: str) -> str:
    """Any text."""
    return text


def as_file(text: str) -> FilePath:
    """A path, which is not opened here."""
    if not text:
        raise ValueError("must be a path")
    return FilePath(text)


def as_switch(text: str) -> bool:
    """Yes or no."""
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("must be true or false")


def as_port(text: str) -> int:
    """A TCP port; 0 is any free one."""
    if not text.isascii() or not text.isdigit() or int(text) > _HIGHEST_PORT:
        raise ValueError(f"must be between 0 and {_HIGHEST_PORT}")
    return int(text)


def as_address(text: str) -> Address | None:
    """`host:port`, `:port` for every interface, `[::1]:port`; `0` for none, as in controller-runtime."""
    if text == "0":
        return None
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port or (":" in host and not bracketed):
        raise ValueError('must be "host:port", ":port", "[address]:port", or "0" for none')
    return Address(host=host[1:-1] if bracketed else host, port=as_port(port))


def as_namespaced(text: str) -> NamespacedName:
    """`namespace/name`."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise ValueError('must be "namespace/name"')
    return NamespacedName(namespace, name)


def as_host_names(text: str) -> tuple[str, ...]:
    """DNS names and IP addresses, separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        try:
            ip_address(name)
        except ValueError:
            if dns1123_subdomain(name):
                raise ValueError("must be DNS names and IP addresses, separated by commas") from None
    return names


def as_names(text: str) -> tuple[str, ...]:
    """Names of any kind, separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError("must be names, separated by commas")
    return names


def as_cipher_suites(text: str) -> tuple[str, ...]:
    """Cipher suites by the names that Kubernetes' flags use, separated by commas."""
    names = as_names(text)
    known = (*TLS13_CIPHER_SUITES, *CIPHER_SUITES)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{unknown[0]} is not among the supported suites: {', '.join(known)}")
    return names


def as_object_name(text: str) -> str:
    """The name of an object."""
    if dns1123_subdomain(text):
        raise ValueError("must be the name of an object")
    return text


def as_namespace(text: str) -> str:
    """The name of a namespace."""
    if dns1123_label(text):
        raise ValueError("must be the name of a namespace")
    return text


def as_service(text: str) -> NamespacedName:
    """`namespace/name` of a Service."""
    service = as_namespaced(text)
    if any("." in part or dns1123_subdomain(part) for part in service):
        raise ValueError('must be "namespace/name" of a Service')
    return service


def as_lifetime(text: str) -> timedelta:
    """A whole number with a unit."""
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text, re.ASCII)
    lifetime = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else timedelta()
    if not _SHORTEST_LEAF <= lifetime <= _LONGEST_CA:
        raise ValueError('must be a whole number with a unit, such as "90m", "24h" or "365d", from 10s to ten years')
    return lifetime


def as_interval(text: str) -> timedelta | None:
    """A whole number with a unit; None for `0`, which means never."""
    return None if text == "0" else as_lifetime(text)


def as_seconds(text: str) -> float:
    """A number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_DELAY_SECONDS:
        raise ValueError(f"must be a number of seconds between 0 and {_LONGEST_DELAY_SECONDS:g}")
    return seconds


def as_rate(text: str) -> float:
    """A rate a second; 0 for no limit."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not math.isfinite(rate):
        raise ValueError("must be a number; 0 for no limit")
    return rate


def as_count(text: str) -> int:
    """A whole number above zero."""
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _MOST_COUNT:
        raise ValueError(f"must be between 1 and {_MOST_COUNT}")
    return int(text)


def as_limit(text: str) -> int:
    """How many lines are shown at most; 0 for all."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError("must be a whole number; 0 for all")
    return int(text)


def as_wait(text: str) -> float:
    """Seconds to wait at most."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_WAIT_SECONDS:
        raise ValueError("must be a number of seconds, at most a day")
    return seconds


_YEARS: Final = (1970, 9000)


def as_time(text: str) -> datetime:
    """Read an RFC 3339 time, in UTC and whole seconds; refuse years to which no span can be added."""
    time = parse_time(text)
    if time is None:
        raise ValueError('must be a time like "2026-01-31T12:00:00Z" (RFC 3339)')
    if not _YEARS[0] <= time.year <= _YEARS[1]:
        raise ValueError(f"must be a time between {_YEARS[0]} and {_YEARS[1]}")
    return time


def as_group(text: str) -> str:
    """The name of a group of users."""
    if not text:
        raise ValueError("must be the name of a group")
    return text


def as_labels(text: str) -> dict[str, str]:
    """`key=value,...`; empty for none."""
    labels: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError("must be labels such as tier=production,team=ml")
        labels[key] = value
    return labels


def as_class_drivers(text: str) -> tuple[str, frozenset[str]]:
    """`name=driver,...`: a device class and the drivers behind it."""
    name, equals, drivers = text.partition("=")
    found = frozenset(filter(None, drivers.split(",")))
    if not equals or not name or not found:
        raise ValueError("must be a class and its drivers, such as gpu=gpu.example.com")
    return name, found


def as_pattern(text: str) -> re.Pattern[str]:
    """A regular expression of Python."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from None
