"""Which window pods wait for, in words. It is Monday noon, in UTC."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW
from webhook.policy.model import EvictionProfile, EvictionWindow
from webhook.policy.windows import Leaving, fit_texts, has_windows, minutes_text, windows_text

BERLIN = "Europe/Berlin"
NIGHTLY = EvictionWindow("0 22 * * *", 30 * 60.0, BERLIN)
OPENS = "2026-06-01T22:00:00+02:00 (Europe/Berlin)"


def texts(pods: int, hours: float = 0, **fields: Any) -> list[str]:
    """What is said of pods of one profile with the window that a taint evicts some hours after noon."""
    return of_dues({round(hours * 3600): pods}, **fields)


def of_dues(pods: dict[int, int], **fields: Any) -> list[str]:
    profile = EvictionProfile(**{"windows": (NIGHTLY,), **fields})
    return list(fit_texts([EvictionProfile(), profile], Leaving({1: pods}, NOW)))


# --- words --------------------------------------------------------------------------------------


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
