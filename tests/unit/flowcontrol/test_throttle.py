"""Requests that come too fast wait; a server that asks for quiet gets it."""

from __future__ import annotations

import pytest

from webhook.flowcontrol.loop import Throttle


def test_throttle_lets_a_burst_through_and_then_one_after_the_other() -> None:
    clock = [50.0]
    throttle = Throttle(10, 3, lambda: clock[0])
    assert [throttle.delay_seconds() for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    clock[0] += 0.3
    assert throttle.delay_seconds() == pytest.approx(0)
    clock[0] += 100
    assert [throttle.delay_seconds() for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_throttle_without_a_rate_never_waits() -> None:
    throttle = Throttle(0, 1, lambda: 5.0)
    assert {throttle.delay_seconds() for _ in range(1000)} == {0.0}


def test_throttle_waits_as_long_as_the_server_asks() -> None:
    throttle = Throttle(0, 1, lambda: 5.0)
    throttle.pause(7)
    assert throttle.delay_seconds() == pytest.approx(7)
