"""What a call says of its caller: names in its certificate, how long it waits, its trace. No decision depends on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_SHOWN_NAMES: Final = 3
_SHOWN_CHARACTERS: Final = 64


class WrongName(Exception):  # noqa: N818 -- it says what the certificate has
    """The client has a certificate of the right CA, but it is not the certificate of an API server."""


def check_names(certificate: Mapping[str, Any] | None, names: frozenset[str]) -> None:
    """Check that a certificate, as `SSLSocket.getpeercert` gives it, has one of the names. Raises WrongName."""
    found = _names_in(certificate or {})
    if names.isdisjoint(found):
        raise WrongName(_refusal(found))


def _names_in(certificate: Mapping[str, Any]) -> list[str]:
    """Common names and DNS names. Asked for each review, so a list: a generator takes twice the time."""
    found = [text for each in certificate.get("subject", ()) for kind, text in each if kind == "commonName"]
    if "subjectAltName" in certificate:
        found += [text for kind, text in certificate["subjectAltName"] if kind == "DNS"]
    return found


def _refusal(found: list[str]) -> str:
    names = ", ".join(ascii(name[:_SHOWN_CHARACTERS]) for name in found[:_SHOWN_NAMES]) or "no name"
    return f"the client certificate is for {names}, which is not in --client-names: only API servers send reviews here"


# --- how long it waits ----------------------------------------------------------------------------

# Go's time.Duration as its String() prints it: the API server sends `timeout=10s`.
_DURATION: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?(?:h|m|s|ms|us|µs|ns))+", re.ASCII)
_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?)(h|ms|us|µs|ns|m|s)", re.ASCII)
_UNIT_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def timeout_seconds(query: str) -> float | None:
    """How long the caller waits, or None if the query does not say."""
    for parameter in query.split("&"):
        name, _, value = parameter.partition("=")
        if name == "timeout":
            return duration_seconds(value)
    return None


def duration_seconds(text: str) -> float | None:
    """A duration as Go writes it, or None if it is not a positive one."""
    if len(text) > 32 or not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(text)) or None


# --- the trace that it belongs to, for log lines; nothing is traced or sent here -------------------
# API servers send the header as W3C Trace Context defines it (https://www.w3.org/TR/trace-context/#traceparent-header);
# the fields have the names that OpenTelemetry gives them in logs
# (https://opentelemetry.io/docs/specs/otel/compatibility/logging_trace_context/).

TRACEPARENT: Final = "traceparent"
_VERSION_0: Final = "00"
# Later versions may add fields behind a dash; version ff is not one.
_HEADER: Final = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def trace_fields(header: str) -> dict[str, str]:
    """`trace_id`, `span_id` and `trace_flags`, in lower-case hexadecimal; nothing if the header is not valid."""
    found = _HEADER.fullmatch(header.strip(" \t"))
    if found is None or (found[1] == _VERSION_0 and found[5]):
        return {}
    return {"trace_id": found[2], "span_id": found[3], "trace_flags": found[4]}
