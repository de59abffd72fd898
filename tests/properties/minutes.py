"""The minutes in which windows are open, found by a walk from minute to minute: slow, and too simple to be wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from webhook.policy.model import EvictionWindow

if TYPE_CHECKING:
    from collections.abc import Iterable

ZONES: Final = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")
CHANGES: Final = tuple(
    datetime.fromisoformat(text).replace(tzinfo=UTC)
    for text in (
        *("2026-03-29T01:00", "2026-10-25T01:00"),  # Berlin
        *("2026-03-08T07:00", "2026-11-01T06:00"),  # New York
        *("2026-04-04T15:00", "2026-10-03T15:30"),  # Lord Howe, by half an hour
    )
)
"""When clocks change in one of the zones."""
MINUTE: Final = timedelta(minutes=1)
_MINUTES: Final = ("0", "30", "15,45", "*/20", "*", "7", "59")
_HOURS: Final = ("*", "2", "1,3", "1-2", "22", "*/2", "0")
_DAYS: Final = ("*", "0", "6", "1-5", "4")
WINDOWS: Final = st.builds(
    EvictionWindow,
    st.builds("{} {} * * {}".format, st.sampled_from(_MINUTES), st.sampled_from(_HOURS), st.sampled_from(_DAYS)),
    st.sampled_from([1, 10, 45, 60, 61, 90, 480, 1500]).map(lambda minutes: minutes * 60.0),
    st.sampled_from(ZONES),
)
"""Windows with schedules that the walk can read."""


def open_minutes(windows: Iterable[EvictionWindow], first: datetime, count: int) -> set[datetime]:
    """The minutes in which one of the windows is open that has begun among these or after; `first` in UTC."""
    found: set[datetime] = set()
    for window in windows:
        length = int(window.duration_seconds // 60)
        for number in range(count):
            minute = first + number * MINUTE
            if _begins(window, minute):
                found.update([minute + more * MINUTE for more in range(length)])
    return found


def _begins(window: EvictionWindow, minute: datetime) -> bool:
    """Whether the clocks show a time of the schedule in this minute, or have just skipped one."""
    zone = ZoneInfo(window.zone)
    wall, before = minute.astimezone(zone), (minute - MINUTE).astimezone(zone)
    again = wall.fold == 1 and not window.schedule.split()[1].startswith("*")
    if _is_named(window.schedule, wall) and not again:
        return True
    skipped = before.replace(tzinfo=None) + MINUTE
    while skipped < wall.replace(tzinfo=None):
        if _is_named(window.schedule, skipped):
            return True
        skipped += MINUTE
    return False


def _is_named(schedule: str, wall: datetime) -> bool:
    minute, hour, _, _, weekday = schedule.split()
    named = wall.minute in _numbers(minute, 60) and wall.hour in _numbers(hour, 24)
    return named and wall.isoweekday() % 7 in _numbers(weekday, 7)


def _numbers(field: str, most: int) -> set[int]:
    """The numbers that a field names; as simple as the fields above."""
    if field == "*":
        return set(range(most))
    if field.startswith("*/"):
        return set(range(0, most, int(field[2:])))
    if "-" in field:
        first, last = map(int, field.split("-"))
        return set(range(first, last + 1))
    return set(map(int, field.split(",")))
