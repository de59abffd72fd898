"""Which window pods wait for, and whether it is long enough, in words. It is Monday noon, in UTC."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.builders import NOW
from webhook.policy.model import EvictionProfile, EvictionWindow, LabelMatch, NamespaceMatch
from webhook.policy.ports import NamespaceFacts
from webhook.policy.window_fit import (
    Leaving,
    PodFacts,
    ProfileGuess,
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
    """What is said of pods of one profile with the window, some hours after noon."""
    profile = EvictionProfile(windows=(NIGHTLY,), **fields)
    start = NOW + timedelta(hours=hours)
    return list(fit_texts([EvictionProfile(), profile], Leaving({1: pods}, start, rate, more)))


# --- words --------------------------------------------------------------------------------------


def test_pods_wait_for_the_window_that_opens_next() -> None:
    assert texts(5) == [f"5 pods wait for the window that opens at {OPENS}"]
    assert texts(1) == [f"1 pod waits for the window that opens at {OPENS}"]
    assert texts(5, 8) == []
    assert texts(5, 8.5) == ["5 pods wait for the window that opens at 2026-06-02T22:00:00+02:00 (Europe/Berlin)"]


def test_window_that_is_too_short_is_said_to_be() -> None:
    assert texts(421, **TEN_A_MINUTE)[1:] == ["needs 42 min at 10 a minute; the window is 30 min"]
    assert not Leaving({}, NOW).more
    assert texts(421, more=True, **TEN_A_MINUTE)[1:] == ["needs at least 42 min at 10 a minute; the window is 30 min"]
    assert texts(421, 8.25, **TEN_A_MINUTE) == ["needs 42 min at 10 a minute; the window is open for another 15 min"]


@pytest.mark.parametrize(("pods", "fits"), [(300, True), (301, False)])
def test_last_pod_must_go_before_the_window_closes(pods: int, *, fits: bool) -> None:
    assert (len(texts(pods, **TEN_A_MINUTE)) == 1) is fits
    assert (len(texts(pods, 8, **TEN_A_MINUTE)) == 0) is fits


def test_rate_of_the_rule_itself_counts_instead() -> None:
    assert texts(5000, 8, rate=1) == ["needs 84 min at 60 a minute; the window is open for another 30 min"]
    assert texts(1810, 8, rate=1) != []
    assert texts(1809, 8, rate=1) == []


def test_profiles_without_windows_and_pods_that_are_skipped() -> None:
    profiles = [EvictionProfile(), EvictionProfile(skips=True, windows=(NIGHTLY,)), EvictionProfile(windows=(NIGHTLY,))]
    said = list(fit_texts(profiles, Leaving({2: 3, 0: 10_000, 1: 1}, NOW)))
    assert said == ["leaves 1 pod alone (action: skip)", f"3 pods wait for the window that opens at {OPENS}"]
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


# --- which profile ------------------------------------------------------------------------------

TRAIN = NamespaceMatch(("train-*",))
TIER = NamespaceMatch(labels=(("tier", "low"),))
LOW = NamespaceFacts("x", {"tier": "low"})
HIGH = NamespaceFacts("x", {"tier": "high"})


@pytest.mark.parametrize(
    ("first", "pod", "expected"),
    [
        pytest.param({"namespaces": TRAIN}, PodFacts("train-1"), 0, id="by the name of the namespace"),
        pytest.param({"namespaces": TRAIN}, PodFacts("web"), 1, id="not by the name of the namespace"),
        pytest.param({"namespaces": TIER}, PodFacts("x", LOW), 0, id="by its labels"),
        pytest.param({"namespaces": TIER}, PodFacts("x", HIGH), 1, id="not by its labels"),
        pytest.param({"namespaces": TIER}, PodFacts("x"), None, id="by labels that are not known"),
        pytest.param({"priority_at_most": 5}, PodFacts("x"), None, id="by a priority that is not known"),
        pytest.param({"priority_at_most": 5}, PodFacts("x", known=True, priority=5), 0, id="by priority"),
        pytest.param({"priority_at_most": 5}, PodFacts("x", known=True, priority=6), 1, id="not by priority"),
        pytest.param({"pod_labels": LabelMatch((("a", "b"),))}, PodFacts("x"), None, id="by labels of the pod"),
        pytest.param(
            {"pod_labels": LabelMatch((("a", "b"),))}, PodFacts("x", known=True, labels={"a": "b"}), 0, id="its labels"
        ),
        pytest.param(
            {"pod_labels": LabelMatch((("a", "b"),))}, PodFacts("x", known=True), 1, id="not by labels of the pod"
        ),
        pytest.param({"device_classes": ("gpu",)}, PodFacts("x", classes={"gpu"}), 0, id="by one of its classes"),
        pytest.param({"device_classes": ("gpu",)}, PodFacts("x", classes={"nic"}), None, id="there may be others"),
        pytest.param({"device_classes": ("gpu",)}, PodFacts("x", known=True, classes={"nic"}), 1, id="not by class"),
        pytest.param(
            {"namespaces": TRAIN, "priority_at_most": 5}, PodFacts("web"), 1, id="one field that does not match"
        ),
        pytest.param(
            {"namespaces": TRAIN, "priority_at_most": 5}, PodFacts("train-1"), None, id="one that is not known"
        ),
    ],
)
def test_profile_of_a_pod_as_far_as_it_is_known(first: dict[str, Any], pod: PodFacts, expected: int | None) -> None:
    assert ProfileGuess([EvictionProfile(**first), EvictionProfile()]).of(pod) == expected
