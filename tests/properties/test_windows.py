"""Laws of windows: a walk from minute to minute agrees, whatever the schedule, in zones whose clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from webhook.policy.model import EvictionWindow
from webhook.policy.windows import OpeningHours

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC")
CHANGES = (
    *("2026-03-29T01:00", "2026-10-25T01:00"),  # Berlin
    *("2026-03-08T07:00", "2026-11-01T06:00"),  # New York
    *("2026-04-04T15:00", "2026-10-03T15:30"),  # Lord Howe, by half an hour
)
MINUTE = timedelta(minutes=1)
MINUTES = ("0", "30", "15,45", "*/20", "*", "7", "59")
HOURS = ("*", "2", "1,3", "1-2", "22", "*/2", "0")
DAYS = ("*", "0", "6", "1-5", "4")
WINDOWS = st.builds(
    EvictionWindow,
    st.builds("{} {} * * {}".format, st.sampled_from(MINUTES), st.sampled_from(HOURS), st.sampled_from(DAYS)),
    st.sampled_from([1, 10, 45, 60, 61, 90, 480, 1500]).map(lambda minutes: minutes * 60.0),
    st.sampled_from(ZONES),
)


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


def _is_named(schedule: str, wall: datetime) -> bool:
    minute, hour, _, _, weekday = schedule.split()
    named = wall.minute in _numbers(minute, 60) and wall.hour in _numbers(hour, 24)
    return named and wall.isoweekday() % 7 in _numbers(weekday, 7)


def _starts_in(window: EvictionWindow, minute: datetime) -> bool:
    """Whether the window begins at this minute: the clocks show a time of the schedule, or have just skipped one."""
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


@given(st.lists(WINDOWS, min_size=1, max_size=3), st.sampled_from(CHANGES), st.integers(-400, 400), st.data())
def test_windows_agree_with_a_walk_from_minute_to_minute(
    windows: list[EvictionWindow], change: str, offset: int, data: st.DataObject
) -> None:
    now = datetime.fromisoformat(change).replace(tzinfo=UTC) + offset * MINUTE
    first = now - timedelta(days=3)
    minutes = [first + number * MINUTE for number in range(6 * 1440)]
    open_at: set[datetime] = set()
    for window in windows:
        length = int(window.duration_seconds // 60)
        for minute in minutes:
            if _starts_in(window, minute):
                open_at.update([minute + number * MINUTE for number in range(length)])
    hours = OpeningHours(windows)
    for _ in range(4):
        moment = now + timedelta(seconds=data.draw(st.integers(0, 59)))
        state = hours.at(moment)
        assert state.open == (now in open_at)
        until = moment + timedelta(days=1) if state.until is None else state.until
        step = now
        while step < min(until, now + timedelta(days=1)):
            assert (step in open_at) == state.open
            step += MINUTE
        if not state.open and until < now + timedelta(days=1):
            assert until in open_at, "it is closed for as long as it says, and no longer"
        if state.open:
            assert state.since is not None
            assert state.since in open_at
            assert state.since <= moment
        now += data.draw(st.integers(-300, 300)) * MINUTE
