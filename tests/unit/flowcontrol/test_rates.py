"""Waits: they double, have an end, differ between replicas, and heed the server."""

from __future__ import annotations

import time

import pytest

from webhook.flowcontrol import rates
from webhook.flowcontrol.rates import Backoff


def test_waits_double_up_to_the_most_and_begin_again() -> None:
    backoff = Backoff(0.5, 30.0, lambda: 0.0)
    assert [backoff.next_seconds() for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert backoff.failures == 8
    backoff.reset()
    assert backoff.next_seconds() == 0.5


def test_waits_are_cut_by_up_to_half() -> None:
    numbers = iter([0.0, 0.5, 0.999])
    backoff = Backoff(10.0, 10.0, lambda: next(numbers))
    assert [backoff.next_seconds() for _ in range(3)] == pytest.approx([10.0, 7.5, 5.005])


@pytest.mark.parametrize(("asked", "waited"), [(0.0, 0.5), (0.1, 0.5), (7.0, 7.0), (9999.0, 30.0)])
def test_server_may_ask_for_more_within_bounds(asked: float, waited: float) -> None:
    assert Backoff(0.5, 30.0, lambda: 0.0).next_seconds(asked) == waited


def test_wait_stays_a_number_after_very_many_failures() -> None:
    backoff = Backoff(0.5, 30.0, lambda: 0.5)
    backoff.failures = 10**6
    assert backoff.next_seconds() == 22.5


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux has a clock that counts suspended seconds")
def test_seconds_are_those_since_the_machine_was_started() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= rates.boottime_seconds() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_seconds_are_monotonic_where_there_is_no_such_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_BOOTTIME", None)
    before = time.monotonic()
    assert before <= rates.boottime_seconds() <= time.monotonic()
