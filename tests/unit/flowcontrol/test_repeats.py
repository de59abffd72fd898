"""M7: a fault that lasts is logged when it begins, when it changes, and every five minutes; a crowd of them once."""

from __future__ import annotations

import pytest

from webhook.flowcontrol.loop import LastingFault, Sampled


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_fault_that_lasts_is_logged_every_five_minutes(clock: Clock) -> None:
    fault = LastingFault(clock)
    logged = []
    for second in range(0, 1000, 10):
        clock.now = 1000.0 + second
        if fault.failed("no route"):
            logged.append((second, dict(fault.fields)))
    assert logged == [
        (0, {"attempt": 1, "sinceSeconds": 0.0}),
        (300, {"attempt": 31, "sinceSeconds": 300.0}),
        (600, {"attempt": 61, "sinceSeconds": 600.0}),
        (900, {"attempt": 91, "sinceSeconds": 900.0}),
    ]


def test_fault_that_changes_is_logged_at_once_and_is_still_the_same_outage(clock: Clock) -> None:
    fault = LastingFault(clock)
    assert fault.failed("no route")
    clock.now += 20
    assert fault.failed("refused")
    assert fault.fields == {"attempt": 2, "sinceSeconds": 20.0}
    clock.now += 299
    assert not fault.failed("refused")
    clock.now += 1
    assert fault.failed("refused")


def test_fault_that_comes_back_is_a_new_one(clock: Clock) -> None:
    fault = LastingFault(clock)
    fault.failed("no route")
    clock.now += 5
    fault.ended()
    assert fault.text == ""
    assert fault.failed("no route")
    assert fault.fields == {"attempt": 1, "sinceSeconds": 0.0}


def test_crowd_is_logged_once_in_a_while_with_its_number(clock: Clock) -> None:
    sampled = Sampled(60.0, clock)
    taken = []
    for _ in range(121):
        taken.append(sampled.take())
        clock.now += 1
    assert [number for number in taken if number] == [1, 60, 60]
