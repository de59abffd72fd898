"""Values of flags, for all verbs: parsers, which raise ValueError with what would be right, and our own namespace."""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path as FilePath
from typing import Final

from webhook.api.meta import YEARS, NamespacedName, parse_time
from webhook.api.names import OWN_NAMESPACE, POLICY_NAME
from webhook.certificates.settings import CIPHER_SUITES, TLS13_CIPHER_SUITES
from webhook.server.settings import Address
from webhook.validation.formats import dns1123_label, dns1123_subdomain

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"", "0", "false", "no", "off"})
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SHORTEST_LEAF: Final = timedelta(seconds=10)
_LONGEST_CA: Final = timedelta(days=3653)
VARIABLES: Final = ("DEVICE_TAINT_WEBHOOK_NAMESPACE", "POD_NAMESPACE")
"""Our own namespace, in this order. The manifests set the second by the downward API."""
ACCOUNT_FILE: Final = FilePath("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Mounted with a service account's token (kubernetes.io/docs/tasks/run-application/access-api-from-pod)."""


def own_namespace(environment: Mapping[str, str] | None = None, account_file: FilePath = ACCOUNT_FILE) -> str:
    """Return the first that is set: the two VARIABLES, the service account's file, that of the shipped manifests.

    Never raises: a file that cannot be read counts as empty.
    """
    variables = os.environ if environment is None else environment
    for name in VARIABLES:
        if variables.get(name):
            return variables[name]
    try:
        mounted = account_file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        mounted = ""
    return mounted or OWN_NAMESPACE


def policy_config_map(namespace: str) -> NamespacedName:
    """Return where an installation in the namespace has its policy."""
    return NamespacedName(namespace, POLICY_NAME)


def _whole(words: str, least: int = 0, most: float = math.inf) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 100 and least <= int(text) <= most):
            raise ValueError(f"must be {words}")
        return int(text)

    return parse


def _number(words: str, least: float = -math.inf, most: float = math.inf) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and least <= number <= most):
            raise ValueError(f"must be {words}")
        return number

    return parse


as_port: Final = _whole("between 0 and 65535", most=65535)  # 0 is any free one
as_count: Final = _whole("between 1 and 10000", 1, 10_000)
as_limit_or_all: Final = _whole("a whole number; 0 for all")
as_rate: Final = _number("a number; 0 for no limit")  # per second
as_seconds: Final = _number("a number of seconds between 0 and 3600", 0, 3600)
as_wait: Final = _number("a number of seconds, at most a day", 0, 24 * 3600)


def as_switch(text: str) -> bool:
    """Read yes or no."""
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError("must be true or false")
    return text.lower() in _TRUE


def as_lifetime(text: str) -> timedelta:
    """Read a whole number with a unit."""
    match = re.fullmatch(r"([0-9]{1,9})([smhd])", text, re.ASCII)
    lifetime = timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else timedelta()
    if not _SHORTEST_LEAF <= lifetime <= _LONGEST_CA:
        raise ValueError('must be a whole number with a unit, such as "90m", "24h" or "365d", from 10s to ten years')
    return lifetime


def as_interval(text: str) -> timedelta | None:
    """Read a whole number with a unit; None for `0`, which means never."""
    return None if text == "0" else as_lifetime(text)


def as_time(text: str) -> datetime:
    """Read an RFC 3339 time, in UTC and whole seconds; refuse years to which no span can be added."""
    time = parse_time(text)
    if time is None:
        raise ValueError('must be a time like "2026-01-31T12:00:00Z" (RFC 3339)')
    if not YEARS[0] <= time.year <= YEARS[1]:
        raise ValueError(f"must be a time between {YEARS[0]} and {YEARS[1]}")
    return time


def _named(words: str, faults: Callable[[str], Sequence[str] | bool]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if faults(text):
            raise ValueError(f"must be the name of {words}")
        return text

    return parse


as_object_name: Final = _named("an object", dns1123_subdomain)
as_namespace: Final = _named("a namespace", dns1123_label)
as_group: Final = _named("a group", operator.not_)


def as_namespaces(text: str) -> tuple[str, ...]:
    """Read names of namespaces, separated by commas; empty for none."""
    return tuple(as_namespace(name) for name in text.split(",") if text)


def as_namespaced(text: str) -> NamespacedName:
    """Read `namespace/name`."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise ValueError('must be "namespace/name"')
    return NamespacedName(namespace, name)


def as_service(text: str) -> NamespacedName:
    """Read `namespace/name` of a Service."""
    service = as_namespaced(text)
    if any("." in part or dns1123_subdomain(part) for part in service):
        raise ValueError('must be "namespace/name" of a Service')
    return service


def as_names(text: str) -> tuple[str, ...]:
    """Read names of any kind, separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError("must be names, separated by commas")
    return names


def as_host_names(text: str) -> tuple[str, ...]:
    """Read DNS names and IP addresses, separated by commas."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        try:
            ip_address(name)
        except ValueError:
            if dns1123_subdomain(name):
                raise ValueError("must be DNS names and IP addresses, separated by commas") from None
    return names


def as_cipher_suites(text: str) -> tuple[str, ...]:
    """Read cipher suites by the names that Kubernetes' flags use, separated by commas."""
    names = as_names(text)
    known = (*TLS13_CIPHER_SUITES, *CIPHER_SUITES)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{unknown[0]} is not among the supported suites: {', '.join(known)}")
    return names


def as_file(text: str) -> FilePath:
    """Read a path, which is not opened here."""
    if not text:
        raise ValueError("must be a path")
    return FilePath(text)


def as_address(text: str) -> Address | None:
    """Read `host:port`, `:port` for every interface, `[::1]:port`; `0` for none, as in controller-runtime."""
    if text == "0":
        return None
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port or (":" in host and not bracketed):
        raise ValueError('must be "host:port", ":port", "[address]:port", or "0" for none')
    return Address(host=host[1:-1] if bracketed else host, port=as_port(port))


def as_labels(text: str) -> dict[str, str]:
    """Read `key=value,...`; empty for none."""
    labels: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise ValueError("must be labels such as tier=production,team=ml")
        labels[key] = value
    return labels


def as_class_drivers(text: str) -> tuple[str, frozenset[str]]:
    """Read `name=driver,...`: a device class and the drivers behind it."""
    name, equals, drivers = text.partition("=")
    found = frozenset(filter(None, drivers.split(",")))
    if not equals or not name or not found:
        raise ValueError("must be a class and its drivers, such as gpu=gpu.example.com")
    return name, found


def as_pattern(text: str) -> re.Pattern[str]:
    """Read a regular expression of Python."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from None
