"""How long a caller waits, out of the query of its request."""

from __future__ import annotations

import re
from typing import Final

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
