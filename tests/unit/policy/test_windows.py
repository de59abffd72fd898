"""When windows are open, also where clocks change; and which schedules and zones there are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import NOW
from tests.costs import calls_of
from tests.tables import table
from webhook.policy.model import EvictionProfile, EvictionWindow
from webhook.policy.windows import (
    ALWAYS,
    Leaving,
    OpeningHours,
    fit_texts,
    has_windows,
    is_zone,
    local_text,
    minutes_text,
    schedule_fault,
    state_of,
    windows_text,
)

if TYPE_CHECKING:
    from webhook.policy.windows import WindowState

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def window(schedule: str, minutes: float = 60, zone: str = "UTC") -> EvictionWindow:
    return EvictionWindow(schedule, minutes * 60, zone)


def at(text: str, *windows: EvictionWindow) -> WindowState:
    return OpeningHours(windows).at(utc(text))


def openings(start: str, days: float, *windows: EvictionWindow) -> list[tuple[str, str]]:
    """From when until when the windows are open, in UTC, one change after the other."""
    hours, now, end, found = OpeningHours(windows), utc(start), utc(start) + timedelta(days=days), []
    while now < end:
        state = hours.at(now)
        assert state.until is not None
        if state.open:
            assert state.since is not None
            found.append((f"{state.since:%d %H:%M}", f"{state.until:%d %H:%M}"))
        now = state.until
    return found


# --- clocks that do not change ------------------------------------------------------------------


def test_window_is_open_from_its_start_until_before_its_end() -> None:
    nightly = window("0 22 * * *", 60)
    closed = at("2026-06-01T21:59:59.999", nightly)
    assert (closed.open, closed.since, closed.until, closed.zone) == (False, None, utc("2026-06-01T22:00"), "UTC")
    opened = at("2026-06-01T22:00", nightly)
    assert opened == (True, utc("2026-06-01T22:00"), utc("2026-06-01T23:00"), "")
    assert at("2026-06-01T22:59:59.999", nightly).open
    assert at("2026-06-01T23:00", nightly) == (False, None, utc("2026-06-02T22:00"), "UTC")


def test_without_windows_it_is_always_open() -> None:
    assert state_of((), utc("2026-06-01T12:00")) is ALWAYS
    assert ALWAYS == (True, None, None, "")


def test_answer_holds_until_the_next_change_also_if_the_clock_is_set_back() -> None:
    hours = OpeningHours([window("0 22 * * *", 60)])
    assert hours.at(utc("2026-06-01T22:30")).open
    first = hours.at(utc("2026-06-01T22:30"))
    assert hours.at(utc("2026-06-01T22:30")) is first
    assert hours.at(utc("2026-06-01T22:59")) is first
    assert not hours.at(utc("2026-06-01T23:00")).open
    assert hours.at(utc("2026-06-01T22:59")).open
    assert not hours.at(utc("2026-06-01T21:00")).open
    assert state_of((window("0 22 * * *", 60),), utc("2026-06-01T22:30")).open


def test_windows_that_overlap_or_touch_are_one() -> None:
    two = window("0 22 * * *", 120), window("0 0 * * *", 60)
    assert openings("2026-06-01T12:00", 2, *two) == [("01 22:00", "02 01:00"), ("02 22:00", "03 01:00")]
    assert at("2026-06-02T00:30", *two).since == utc("2026-06-01T22:00")
    apart = window("0 22 * * *", 119), window("0 0 * * *", 60)
    assert openings("2026-06-01T12:00", 1, *apart) == [("01 22:00", "01 23:59"), ("02 00:00", "02 01:00")]
    inside = window("0 22 * * *", 180), window("0 23 * * *", 60)
    assert openings("2026-06-01T12:00", 1, *inside) == [("01 22:00", "02 01:00")]
    with_itself = window("0,30 22 * * *", 60)
    assert openings("2026-06-01T12:00", 1, with_itself) == [("01 22:00", "01 23:30")]


def test_windows_without_a_gap_are_open_as_far_as_they_are_looked_at() -> None:
    """The end of that is no change: then the answer is found again."""
    state = at("2026-06-01T12:30:30", window("0 * * * *"))
    assert state.open
    assert state.until == utc("2026-06-04T04:00")
    assert state.since == utc("2026-05-29T21:00")


FOREVER = (True, utc("2001-01-01T00:00"), None, "")


@table(
    "schedule, minutes, zone, gapless",
    {
        "every minute": ("* * * * *", 1, BERLIN, True),
        "every minute, in other words": ("*/1 * * * *", 1, BERLIN, True),
        "every five minutes": ("*/5 * * * *", 5, LORD_HOWE, True),
        "shorter than the step": ("*/5 * * * *", 4, "UTC", False),
        "every half hour": ("*/30 * * * *", 30, LORD_HOWE, True),
        "clocks may change by half an hour": ("*/20 * * * *", 20, LORD_HOWE, False),
        "more than half an hour": ("*/40 * * * *", 40, "UTC", False),
        "every hour": ("0 * * * *", 60, LORD_HOWE, False),
        "one minute": ("1 * * * *", 1, "UTC", False),
        "a range": ("0-59 * * * *", 1, "UTC", False),
        "not every hour": ("* 1-23 * * *", 1, "UTC", False),
        "not every day": ("* * 2-31 * *", 1, "UTC", False),
        "not every month": ("* * * 2-12 *", 1, "UTC", False),
        "not every day of the week": ("* * * * 1-6", 1, "UTC", False),
    },
)
def test_windows_that_begin_every_few_minutes_never_close(
    schedule: str, minutes: float, zone: str, *, gapless: bool
) -> None:
    assert (at("2026-06-01T12:30:30", window(schedule, minutes, zone)) == FOREVER) is gapless
    rare = window("0 0 1 1 *")
    assert (at("2026-06-01T12:30:30", rare, window(schedule, minutes, zone)) == FOREVER) is gapless


def test_of_windows_with_one_schedule_the_longest_counts() -> None:
    for lengths in ((60, 120, 90), (120, 60, 90)):
        hours = OpeningHours([window("0 22 * * *", minutes, BERLIN) for minutes in lengths])
        assert hours.at(utc("2026-06-01T20:30")).until == utc("2026-06-01T22:00")
    both = window("0 22 * * *", 60, BERLIN), window("0 22 * * *", 30, NEW_YORK)
    assert openings("2026-06-01T12:00", 1, *both) == [("01 20:00", "01 21:00"), ("02 02:00", "02 02:30")]


@pytest.mark.parametrize("day", ["2026-06-28T12:30", "2026-03-28T12:30", "2026-10-25T12:30"])
def test_windows_with_a_start_each_minute_cost_as_little_near_a_change_of_clocks(day: str) -> None:
    """The last ones end at the full hour, and begin a minute after it."""
    dense = window("1-59 * * * *", 1, BERLIN)
    cost = calls_of(lambda hours: hours.at(utc(day)), lambda: OpeningHours([dense]))
    assert cost == calls_of(lambda hours: hours.at(utc("2026-06-01T12:30")), lambda: OpeningHours([dense]))
    many = [window("1-59 * * * *", 1 + number / 60, BERLIN) for number in range(16)]
    assert calls_of(lambda hours: hours.at(utc(day)), lambda: OpeningHours(many)) < 2 * cost


def test_window_of_another_zone_opens_next() -> None:
    two = window("0 3 * * *", 60, BERLIN), window("0 2 * * *", 60, NEW_YORK)
    state = at("2026-06-01T12:00", *two)
    assert (state.open, state.until, state.zone) == (False, utc("2026-06-02T01:00"), BERLIN)
    assert at("2026-06-02T03:00", *two)[2:] == (utc("2026-06-02T06:00"), NEW_YORK)


def test_schedule_goes_by_local_days() -> None:
    fridays = window("0 23 * * 5", 60, NEW_YORK)
    assert at("2026-06-05T00:00", fridays).until == utc("2026-06-06T03:00")
    first = window("30 0 1 * *", 60, LORD_HOWE)
    assert at("2026-05-20T00:00", first).until == utc("2026-05-31T14:00")


def test_rare_start_is_found_years_ahead() -> None:
    assert at("2026-06-01T00:00", window("0 12 29 2 *", 60)).until == utc("2028-02-29T12:00")


# --- clocks that change -------------------------------------------------------------------------

SKIPPED = "clocks go forward over the start"
TWICE = "the start comes twice"


@table(
    "day, schedule, minutes, zone, expected",
    {
        f"Berlin: {SKIPPED}": ("2026-03-28T12:00", "30 2 * * *", 60, BERLIN, [("29 01:00", "29 02:00")]),
        "Berlin: gap begins": ("2026-03-28T12:00", "0 2 * * *", 60, BERLIN, [("29 01:00", "29 02:00")]),
        "Berlin: gap ends": ("2026-03-28T12:00", "0 3 * * *", 60, BERLIN, [("29 01:00", "29 02:00")]),
        "Berlin: over the gap": ("2026-03-28T12:00", "59 1 * * *", 2, BERLIN, [("29 00:59", "29 01:01")]),
        f"Berlin: {TWICE}": ("2026-10-24T12:00", "30 2 * * *", 60, BERLIN, [("25 00:30", "25 01:30")]),
        "Berlin: after both": ("2026-10-24T12:00", "0 3 * * *", 60, BERLIN, [("25 02:00", "25 03:00")]),
        "Berlin: eight real hours": ("2026-10-24T22:00", "0 22 * * *", 480, BERLIN, [("24 20:00", "25 04:00")]),
        f"New York: {SKIPPED}": ("2026-03-08T00:00", "30 2 * * *", 30, NEW_YORK, [("08 07:00", "08 07:30")]),
        f"New York: {TWICE}": ("2026-11-01T00:00", "30 1 * * *", 30, NEW_YORK, [("01 05:30", "01 06:00")]),
        f"Lord Howe: {SKIPPED}": ("2026-10-03T00:00", "15 2 * * *", 15, LORD_HOWE, [("03 15:30", "03 15:45")]),
        f"Lord Howe: {TWICE}": ("2026-04-04T00:00", "45 1 * * *", 15, LORD_HOWE, [("04 14:45", "04 15:00")]),
        "UTC": ("2026-03-29T00:00", "30 2 * * *", 30, "UTC", [("29 02:30", "29 03:00")]),
    },
)
def test_window_where_clocks_change(
    day: str, schedule: str, minutes: int, zone: str, expected: list[tuple[str, str]]
) -> None:
    assert openings(day, 23 / 24, window(schedule, minutes, zone)) == expected


def test_every_hour_is_every_hour_where_clocks_change() -> None:
    """A schedule of every hour also has the second of two; a skipped one moves onto the next and adds nothing."""
    hourly = window("10 * * * *", 5, BERLIN)
    back = [start for start, _ in openings("2026-10-24T23:00", 5 / 24, hourly)]
    assert back == ["24 23:10", "25 00:10", "25 01:10", "25 02:10", "25 03:10"]
    forward = [start for start, _ in openings("2026-03-28T23:00", 4 / 24, hourly)]
    assert forward == ["28 23:10", "29 00:10", "29 01:00", "29 01:10", "29 02:10"]


def test_no_start_of_the_hour_that_comes_twice_is_passed_over() -> None:
    """The second ten past two is later than the first ten to three."""
    hours = window("10,50 * * * *", 5, BERLIN)
    starts = [start for start, _ in openings("2026-10-24T23:55", 3 / 24, hours)]
    assert starts == ["25 00:10", "25 00:50", "25 01:10", "25 01:50", "25 02:10", "25 02:50"]
    assert at("2026-10-25T00:55", hours).until == utc("2026-10-25T01:10")
    assert at("2026-10-25T00:20", hours).until == utc("2026-10-25T00:50")
    assert at("2026-10-25T01:12", hours) == (True, utc("2026-10-25T01:10"), utc("2026-10-25T01:15"), "")


def test_window_of_the_first_of_two_hours_goes_on_in_the_second() -> None:
    late = window("50 * * * *", 20, BERLIN)
    assert at("2026-10-25T01:05", late) == (True, utc("2026-10-25T00:50"), utc("2026-10-25T01:10"), "")


def test_day_that_a_zone_skipped() -> None:
    """Samoa had no 30 December 2011: what was to begin on it begins with the day after."""
    state = at("2011-12-29T12:00", window("0 12 30 12 *", 60, "Pacific/Apia"))
    assert state.until == utc("2011-12-30T10:00")


# --- words --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "fault"),
    [
        ("0 22 * * 1-5", None),
        ("0 22 * * MON-FRI", None),
        ("*/15 0-6 1,15 * *", None),
        ("0 0 L * *", None),
        ("0 0 31 * *", None),
        ("0 0 29 2 *", None),
        ("0 0 29 2 */7", None),
        ("0 0 31 2,4,6 *", "never fires"),
        ("0 0 30 2 *", "never fires"),
        ("0 0 32 * *", "bad day-of-month"),
        ("0 0 0 2 *", "bad day-of-month"),
        ("60 0 * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 0 * 13 *", "bad month"),
        ("0 0 * * 8", "bad day-of-week"),
        ("0 0 * *", "must have five fields: minute, hour, day of month, month, day of week"),
        ("0 0 0 * * *", "must have five fields: minute, hour, day of month, month, day of week"),
        ("@daily", "must have five fields: minute, hour, day of month, month, day of week"),
    ],
)
def test_fault_of_a_schedule(schedule: str, fault: str | None) -> None:
    assert schedule_fault(schedule) == fault


@pytest.mark.parametrize(
    ("name", "known"),
    [("UTC", True), (BERLIN, True), ("Europe/Bonn", False), ("", False), ("../etc/passwd", False), ("Europe", False)],
)
def test_zones_are_those_of_the_database(name: str, *, known: bool) -> None:
    assert is_zone(name) is known


@pytest.mark.parametrize(
    ("zone", "text"),
    [(BERLIN, "2026-06-01T22:00:00+02:00"), ("UTC", "2026-06-01T20:00:00+00:00"), ("", "2026-06-01T20:00:00+00:00")],
)
def test_local_text(zone: str, text: str) -> None:
    assert local_text(utc("2026-06-01T20:00:00.9"), zone) == text


# --- what pods wait for -------------------------------------------------------------------------

NIGHTLY = EvictionWindow("0 22 * * *", 30 * 60.0, BERLIN)
OPENS = "2026-06-01T22:00:00+02:00 (Europe/Berlin)"


def texts(pods: int, hours: float = 0, **fields: Any) -> list[str]:
    """What is said on Monday noon, in UTC, of pods of one profile that a taint evicts some hours later."""
    return of_dues({round(hours * 3600): pods}, **fields)


def of_dues(pods: dict[int, int], **fields: Any) -> list[str]:
    profile = EvictionProfile(**{"windows": (NIGHTLY,), **fields})
    return list(fit_texts([EvictionProfile(), profile], Leaving({1: pods}, NOW)))


def test_pods_wait_for_the_window_that_opens_next() -> None:
    assert texts(5) == [f"5 pods wait for the window that opens at {OPENS}"]
    assert texts(1) == [f"1 pod waits for the window that opens at {OPENS}"]
    assert texts(5, 8) == []
    assert texts(5, 8.5) == ["5 pods wait for the window that opens at 2026-06-02T22:00:00+02:00 (Europe/Berlin)"]


def test_pods_wait_for_the_window_after_they_are_due() -> None:
    """By the time that they tolerate the taint, and by the grace of the profile."""
    tomorrow = "the window that opens at 2026-06-02T22:00:00+02:00 (Europe/Berlin)"
    assert of_dues({0: 2, 3600: 3, 9 * 3600: 4}) == [
        f"5 pods wait for the window that opens at {OPENS}",
        f"4 pods wait for {tomorrow}",
    ]
    assert texts(5, grace_seconds=8 * 3600 + 1799.0) == []
    assert texts(5, grace_seconds=8 * 3600 + 1800.0) == [f"5 pods wait for {tomorrow}"]
    assert texts(5, 8, grace_seconds=1800.0) == [f"5 pods wait for {tomorrow}"]


def test_of_many_windows_the_first_are_named_and_the_others_counted() -> None:
    day = 86400
    waits = [
        f"2 pods wait for the window that opens at 2026-06-0{date}T22:00:00+02:00 (Europe/Berlin)" for date in "123"
    ]
    assert of_dues({number * day: 2 for number in range(3)}) == waits
    assert of_dues({number * day: 2 for number in range(4)})[3:] == ["2 more pods wait for a window that opens later"]
    assert of_dues({0: 2, day: 2, 2 * day: 2, 3 * day: 1})[3:] == ["1 more pod waits for a window that opens later"]
    assert of_dues({number * day: 2 for number in range(6)})[3:] == ["6 more pods wait for a window that opens later"]


def test_pods_that_are_due_at_the_end_of_the_calendar_wait_for_no_window() -> None:
    assert of_dues({0: 1, 251_621_900_000: 5, 2**62: 7}) == [f"1 pod waits for the window that opens at {OPENS}"]


def test_windows_that_never_close_and_those_that_never_open_again() -> None:
    assert texts(100_000, windows=(EvictionWindow("* * * * *", 60.0),)) == []
    last = (EvictionWindow("0 0 29 2 *", 60.0),)
    assert of_dues({251_530_000_000: 1}, windows=last) == []


@pytest.mark.parametrize(("dues", "checks"), [(20, 2), (21, 3)])
def test_time_is_checked_while_many_due_times_are_looked_at(dues: int, checks: int) -> None:
    seen: list[int] = []
    leaving = Leaving({0: dict.fromkeys(range(dues), 1)}, NOW)
    list(fit_texts([EvictionProfile(windows=(NIGHTLY,))], leaving, lambda: seen.append(1)))
    assert len(seen) == checks


def test_profiles_without_windows_and_pods_that_are_skipped() -> None:
    profiles = [EvictionProfile(), EvictionProfile(skips=True, windows=(NIGHTLY,)), EvictionProfile(windows=(NIGHTLY,))]
    said = list(fit_texts(profiles, Leaving({2: {0: 3}, 0: {0: 10_000}, 1: {0: 1, 5: 2}}, NOW)))
    assert said == [
        "the worker leaves 3 pods alone (action: skip)",
        f"3 pods wait for the window that opens at {OPENS}",
    ]
    assert has_windows(profiles[1:2])
    assert has_windows(profiles[2:])
    assert not has_windows(profiles[:1])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 min"),
        (59, "0 min"),
        (60, "1 min"),
        (119, "1 min"),
        (7200, "120 min"),
        (7260, "2 h 1 min"),
        (8 * 3600, "8 h"),
    ],
)
def test_minutes_text(seconds: float, text: str) -> None:
    assert minutes_text(seconds) == text


def test_windows_text() -> None:
    profile = EvictionProfile(windows=(NIGHTLY, EvictionWindow("0 0 * * 0", 86400.0)))
    assert windows_text(profile) == "0 22 * * * for 30 min (Europe/Berlin); 0 0 * * 0 for 24 h (UTC)"
