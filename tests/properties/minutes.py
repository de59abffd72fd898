"""The minutes in which windows are open, found by a walk from minute to minute: slow, and too simple to be wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
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
    """The minutes in which one of the windows is open that has begun in one of `count` from `first` on, in UTC."""
    found: set[datetime] = set()
    for window in windows:
        walls = _walls(window.zone, first, count)
        length, left = int(window.duration_seconds // 60), 0
        for number in range(count + length):
            if number < count and _begins(window.schedule, walls[number]):
                left = length
            if left:
                found.add(first + number * MINUTE)
                left -= 1
    return found


class Wall(NamedTuple):
    """What clocks show in a minute."""

    now: datetime
    skipped: tuple[datetime, ...]
    """The minutes before it that they never showed."""


@lru_cache(maxsize=256)
def _walls(zone: str, first: datetime, count: int) -> list[Wall]:
    found = []
    before = (first - MINUTE).astimezone(ZoneInfo(zone))
    for number in range(count):
        now = (first + number * MINUTE).astimezone(ZoneInfo(zone))
        skipped, step = [], before.replace(tzinfo=None) + MINUTE
        while step < now.replace(tzinfo=None):
            skipped.append(step)
            step += MINUTE
        found.append(Wall(now, tuple(skipped)))
        before = now
    return found


def _begins(schedule: str, wall: Wall) -> bool:
    """Whether the clocks show a time of the schedule in this minute, or have just skipped one."""
    again = wall.now.fold == 1 and not schedule.split()[1].startswith("*")
    if _is_named(schedule, wall.now) and not again:
        return True
    return any(_is_named(schedule, skipped) for skipped in wall.skipped)


def _is_named(schedule: str, wall: datetime) -> bool:
    minutes, hours, weekdays = _fields(schedule)
    return wall.minute in minutes and wall.hour in hours and wall.isoweekday() % 7 in weekdays


@lru_cache(maxsize=1024)
def _fields(schedule: str) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    minute, hour, _, _, weekday = schedule.split()
    return _numbers(minute, 60), _numbers(hour, 24), _numbers(weekday, 7)


def _numbers(field: str, most: int) -> frozenset[int]:
    """The numbers that a field names; as simple as the fields above."""
    if field == "*":
        return frozenset(range(most))
    if field.startswith("*/"):
        return frozenset(range(0, most, int(field[2:])))
    if "-" in field:
        first, last = map(int, field.split("-"))
        return frozenset(range(first, last + 1))
    return frozenset(map(int, field.split(",")))
