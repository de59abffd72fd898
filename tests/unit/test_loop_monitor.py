"""Who was held up knows less than it believes, until it has read what came meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.cluster.peer import run, until
from webhook.runtime import CATCH_UP_SECONDS, STALL_SECONDS, LoopMonitor


class Held:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.monitor = LoopMonitor(lambda: self.seconds)

    def pass_by(self, seconds: float) -> bool:
        """Whether the monitor is steady after so long without a beat."""
        self.seconds += seconds
        return self.monitor.steady


@pytest.fixture
def held() -> Held:
    return Held()


def test_a_process_that_has_its_turn_is_steady(held: Held) -> None:
    for _ in range(5):
        assert held.pass_by(STALL_SECONDS - 0.1)
        held.monitor._beat()
        assert held.monitor.steady


def test_held_up_shows_before_the_next_beat_and_for_a_while_after_it(held: Held) -> None:
    assert not held.pass_by(STALL_SECONDS)
    held.monitor._beat()
    assert not held.monitor.steady
    assert not held.pass_by(CATCH_UP_SECONDS - 0.1)
    assert held.pass_by(0.1)


def test_two_seconds_are_a_stall(held: Held) -> None:
    assert held.pass_by(1.9)
    assert not held.pass_by(0.1)


def test_held_up_is_logged_once_with_its_seconds(held: Held, caplog: pytest.LogCaptureFixture) -> None:
    held.pass_by(30.0)
    held.monitor._beat()
    held.monitor._beat()
    [record] = caplog.records
    assert (record.message, record.__dict__["delaySeconds"]) == ("event loop blocked", 30.0)


def test_it_beats_while_the_loop_runs(held: Held) -> None:
    async def test() -> None:
        beating = asyncio.create_task(held.monitor.run())
        held.seconds += STALL_SECONDS
        await until(lambda: held.monitor._beat_at == held.seconds, "a beat")
        beating.cancel()
        await asyncio.wait([beating])

    run(test())
