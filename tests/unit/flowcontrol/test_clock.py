"""The clock that goes on while a machine is suspended."""

from __future__ import annotations

import time

import pytest

from webhook.flowcontrol import rates


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux has a clock that counts suspended seconds")
def test_seconds_are_those_since_the_machine_was_started() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= rates.boottime_seconds() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_seconds_are_monotonic_where_there_is_no_such_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "_BOOTTIME", None)
    before = time.monotonic()
    assert before <= rates.boottime_seconds() <= time.monotonic()
