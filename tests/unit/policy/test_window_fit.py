"""Which window pods wait for, and whether it is long enough, in words. It is Monday noon, in UTC."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import NOW
from webhook.policy.model import EvictionProfile, EvictionWindow
from webhook.policy.window_fit import (
    Leaving,
    fit_texts,
    has_windows,
    minutes_text,
    needed_seconds,
    windows_text,
)

BERLIN = "Europe/Berlin"
NIGHTLY = EvictionWindow("0 22 * * *", 30 * 60.0, BERLIN)
OPENS = "2026-06-01T22:00:00+02:00 (Europe/Berlin)"
TEN_A_MINUTE: dict[str, Any] = {"rate": 1, "burst": 10, "max_per_minute": 10}


def texts(pods: int, hours: float = 0, rate: float | None = None, *, more: bool = False, **fields: Any) -> list[str]:
    """What is said of pods of one profile with the window that a taint evicts some hours after noon."""
    return of_dues({round(hours * 3600): pods}, rate, more=more, **fields)


def of_dues(pods: dict[int, int], rate: float | None = None, *, more: bool = False, **fields: Any) -> list[str]:
    profile = EvictionProfile(**{"windows": (NIGHTLY,), **fields})
    return list(fit_texts([EvictionProfile(), profile], Leaving({1: pods}, NOW, rate, more)))


# --- words --------------------------------------------------------------------------------------


def test_pods_wait_for_the_window_that_opens_next() -> None:
    assert texts(5) == [f"5 pods wait for the window that opens at {OPENS}"]
    assert texts(1) == [f"1 pod waits for the window that opens at {OPENS}"]
    assert texts(5, 8) == []
    assert texts(5, 8.5) == ["5 pods wait for the window that opens at 2026-06-02T22:00:00+02:00 (Europe/Berlin)"]


def test_window_that_is_too_short_is_said_to_be() -> None:
    short = "evicting 421 pods needs 42 min at 10 a minute"
    assert texts(421, **TEN_A_MINUTE)[1:] == [f"{short}; the window is 30 min"]
    assert not Leaving({}, NOW).more
    least = "evicting 421 pods needs at least 42 min at 10 a minute"
    assert texts(421, more=True, **TEN_A_MINUTE)[1:] == [f"{least}; the window is 30 min"]
    assert texts(421, 8, **TEN_A_MINUTE) == [f"{short}; the window closes 30 min after they are due"]
    assert texts(421, 8.25, **TEN_A_MINUTE) == [f"{short}; the window closes 15 min after they are due"]
    opened = {**TEN_A_MINUTE, "windows": (EvictionWindow("45 11 * * *", 30 * 60.0),)}
    assert texts(421, **opened) == [f"{short}; the window is open for another 15 min"]


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


def test_pods_of_one_window_are_counted_together() -> None:
    """Those that wait for it, and those that become due in it; the first to go has the whole of it."""
    both = of_dues({8 * 3600 + 600: 300, 0: 121}, **TEN_A_MINUTE)
    assert both[1:] == ["evicting 421 pods needs 42 min at 10 a minute; the window is 30 min"]
    apart = of_dues({0: 300, 9 * 3600: 300}, **TEN_A_MINUTE)
    assert len(apart) == 2


def test_of_many_windows_the_first_are_named_and_the_others_counted() -> None:
    day = 86400
    waits = [
        f"2 pods wait for the window that opens at 2026-06-0{date}T22:00:00+02:00 (Europe/Berlin)" for date in "123"
    ]
    assert of_dues({number * day: 2 for number in range(3)}) == waits
    assert of_dues({number * day: 2 for number in range(4)})[3:] == ["2 more pods wait for a window that opens later"]
    assert of_dues({0: 2, day: 2, 2 * day: 2, 3 * day: 1})[3:] == ["1 more pod waits for a window that opens later"]
    assert of_dues({number * day: 2 for number in range(6)})[3:] == ["6 more pods wait for a window that opens later"]
    fault = "evicting 301 pods needs 30 min at 10 a minute; the window is 30 min"
    assert of_dues({number * day: 301 for number in range(3)}, **TEN_A_MINUTE)[3:] == [fault] * 3
    four = of_dues({number * day: 301 for number in range(4)}, **TEN_A_MINUTE)
    assert four[4:] == [fault] * 3 + ["1 later window is too short as well"]
    five = of_dues({number * day: 301 for number in range(5)}, **TEN_A_MINUTE)
    assert five[4:] == [fault] * 3 + ["2 later windows are too short as well"]
    six = of_dues({number * day: 301 for number in range(6)}, **TEN_A_MINUTE)
    assert six[4:] == [fault] * 3 + ["3 later windows are too short as well"]


def test_pods_that_are_due_at_the_end_of_the_calendar_wait_for_no_window() -> None:
    assert of_dues({0: 1, 251_621_900_000: 5, 2**62: 7}) == [f"1 pod waits for the window that opens at {OPENS}"]


def test_windows_that_never_close_and_those_that_never_open_again() -> None:
    assert texts(100_000, windows=(EvictionWindow("* * * * *", 60.0),), **TEN_A_MINUTE) == []
    last = (EvictionWindow("0 0 29 2 *", 60.0),)
    assert of_dues({251_530_000_000: 1}, windows=last) == []


@pytest.mark.parametrize(("dues", "checks"), [(20, 2), (21, 3)])
def test_time_is_checked_while_many_due_times_are_looked_at(dues: int, checks: int) -> None:
    seen: list[int] = []
    leaving = Leaving({0: dict.fromkeys(range(dues), 1)}, NOW)
    list(fit_texts([EvictionProfile(windows=(NIGHTLY,))], leaving, lambda: seen.append(1)))
    assert len(seen) == checks


@pytest.mark.parametrize(("pods", "fits"), [(300, True), (301, False)])
def test_last_pod_must_go_before_the_window_closes(pods: int, *, fits: bool) -> None:
    assert (len(texts(pods, **TEN_A_MINUTE)) == 1) is fits
    assert (len(texts(pods, 8, **TEN_A_MINUTE)) == 0) is fits


def test_rate_of_the_rule_itself_counts_instead() -> None:
    [text] = texts(5000, 8, rate=1)
    assert text == "evicting 5000 pods needs 84 min at 60 a minute; the window closes 30 min after they are due"
    assert texts(1810, 8, rate=1) != []
    assert texts(1809, 8, rate=1) == []


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
    ("pods", "own", "fields", "expected"),
    [
        pytest.param(1, None, {}, (0, 600), id="one"),
        pytest.param(10, None, {}, (0, 600), id="the burst"),
        pytest.param(30, None, {}, (2, 600), id="more than the burst"),
        pytest.param(30, None, {"rate": 0.5, "burst": 20}, (20, 30), id="a slow rate"),
        pytest.param(30, 2.0, {"rate": 0.5, "burst": 20}, (10, 120), id="the rule's own rate, with its burst"),
        pytest.param(30, None, {"max_per_minute": 10}, (120, 10), id="most in a minute"),
        pytest.param(31, None, {"max_per_minute": 10}, (180, 10), id="one more"),
        pytest.param(70, None, {"max_per_minute": 60, "rate": 0.5}, (120, 30), id="the rate is slower"),
        pytest.param(0, None, {"max_per_minute": 60}, (0, 600), id="none"),
    ],
)
def test_time_that_rates_need(
    pods: int, own: float | None, fields: dict[str, Any], expected: tuple[float, float]
) -> None:
    assert needed_seconds(EvictionProfile(**fields), pods, own) == expected


@pytest.mark.parametrize(
    ("seconds", "down", "up"),
    [
        (0, "0 min", "0 min"),
        (59, "0 min", "1 min"),
        (60, "1 min", "1 min"),
        (119, "1 min", "2 min"),
        (7200, "120 min", "120 min"),
        (7201, "120 min", "2 h 1 min"),
        (8 * 3600, "8 h", "8 h"),
    ],
)
def test_minutes_text(seconds: float, down: str, up: str) -> None:
    assert (minutes_text(seconds), minutes_text(seconds, up=True)) == (down, up)


def test_windows_text() -> None:
    profile = EvictionProfile(windows=(NIGHTLY, EvictionWindow("0 0 * * 0", 86400.0)))
    assert windows_text(profile) == "0 22 * * * for 30 min (Europe/Berlin); 0 0 * * 0 for 24 h (UTC)"
