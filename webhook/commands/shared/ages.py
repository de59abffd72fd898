"""Ages as kubectl shows them. Source: k8s.io/apimachinery/pkg/util/duration, HumanDuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY
UNKNOWN: Final = "<unknown>"
_STEPS: Final = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)
"""Below the first number of seconds: the unit, its letter, the smaller unit that is added (0: none), and its letter."""


def age(since: datetime | None, now: datetime) -> str:
    """The time since then: `45s`, `5m30s`, `90m`, `3h20m`, `2d`; `<unknown>` without one."""
    return UNKNOWN if since is None else human_duration(int((now - since).total_seconds()))


def human_duration(seconds: int) -> str:
    """A duration in whole seconds; a clock that is behind by a second does no harm."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    for below, unit, letter, smaller, small_letter in _STEPS:
        if seconds < below:
            rest = seconds % unit // smaller if smaller else 0
            return f"{seconds // unit}{letter}" + (f"{rest}{small_letter}" if rest else "")
    return f"{seconds // _YEAR}y"
