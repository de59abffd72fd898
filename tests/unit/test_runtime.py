"""Stages: order of start and stop, signals, and what happens when a part fails."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from webhook import runtime
from webhook.runtime import EndedEarly, Stage, Stages, causes, side_by_side


class Recorder:
    """Stages that write down what happens to them."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def stage(self, name: str, **parts: Any) -> Stage:
        return Stage(
            name=name,
            work=parts["work"] if "work" in parts else self._work(name),
            start=self._noting(f"{name} started", parts.get("start")),
            stop=self._noting(f"{name} stopped", parts.get("stop")),
        )

    def _noting(self, event: str, also: Callable[[], Awaitable[None]] | None) -> Callable[[], Awaitable[None]]:
        async def note() -> None:
            self.events.append(event)
            if also is not None:
                await also()

        return note

    def _work(self, name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def work() -> None:
            try:
                await forever()
            except asyncio.CancelledError:
                self.events.append(f"{name} cancelled")
                raise

        return work


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


def signalling(*numbers: signal.Signals) -> Callable[[], Awaitable[None]]:
    async def send() -> None:
        for number in numbers:
            os.kill(os.getpid(), number)

    return send


def run(*stages: Stage) -> None:
    """Runs stages on a real loop; a test that hangs fails."""
    asyncio.run(asyncio.wait_for(Stages(stages).run(), 60))


IN_ORDER = ["a started", "b started"]
BACKWARDS = ["b stopped", "b cancelled", "a stopped", "a cancelled"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stages_stop_in_reverse_after_a_signal(number: signal.Signals) -> None:
    recorder = Recorder()
    run(recorder.stage("a"), recorder.stage("b"), Stage(name="signal", start=signalling(number)))
    assert recorder.events == IN_ORDER + BACKWARDS


def test_stop_can_be_asked_for_from_inside() -> None:
    recorder = Recorder()
    all_stages: list[Stages] = []

    async def stop() -> None:
        await asyncio.sleep(0)  # the work of the stages has begun by then
        all_stages[0].stop()

    all_stages.append(Stages([recorder.stage("a"), recorder.stage("b"), Stage(name="stop", start=stop)]))
    asyncio.run(asyncio.wait_for(all_stages[0].run(), 60))
    assert recorder.events == IN_ORDER + BACKWARDS


def test_signal_while_a_stage_is_starting_ends_the_wait() -> None:
    async def never_ready() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await forever()

    recorder = Recorder()
    run(recorder.stage("a"), recorder.stage("b", start=never_ready))
    assert recorder.events == ["a started", "b started", "b cancelled", "a stopped", "a cancelled"]


def test_second_signal_ends_a_slow_stop() -> None:
    async def slow() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await forever()

    recorder = Recorder()
    run(recorder.stage("a"), recorder.stage("b", stop=slow), Stage(name="signal", start=signalling(signal.SIGTERM)))
    assert recorder.events == IN_ORDER + BACKWARDS


def test_stage_that_cannot_start_stops_those_before_it() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)  # the stage's work has begun by then
        raise OSError("address in use")

    recorder = Recorder()
    with pytest.raises(ExceptionGroup) as raised:
        run(recorder.stage("a"), recorder.stage("b", start=fail))
    assert [str(cause) for cause in causes(raised.value)] == ["address in use"]
    assert recorder.events == ["a started", "b started", "b cancelled", "a stopped", "a cancelled"]


def test_work_that_fails_ends_the_process_in_order() -> None:
    everything = asyncio.Event()

    async def fail() -> None:
        await everything.wait()
        raise ValueError("broken")

    async def tell() -> None:
        everything.set()

    recorder = Recorder()
    with pytest.raises(ExceptionGroup) as raised:
        run(recorder.stage("a", work=fail), recorder.stage("b", start=tell))
    assert [str(cause) for cause in causes(raised.value)] == ["broken"]
    assert recorder.events == [*IN_ORDER, "b stopped", "b cancelled", "a stopped"]


def test_work_that_ends_by_itself_ends_the_process() -> None:
    async def end() -> None: ...

    with pytest.raises(ExceptionGroup) as raised:
        run(Stage(name="a", work=end))
    [cause] = causes(raised.value)
    assert (type(cause), str(cause)) == (EndedEarly, "a ended by itself")


def test_cancelling_from_outside_is_not_swallowed() -> None:
    async def scenario() -> None:
        running = asyncio.create_task(Stages([Stage(name="a")]).run())
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(scenario())


def test_side_by_side_all_work_begins_before_any_start_is_waited_for() -> None:
    """M0: the first waits for what the second one does."""
    done = asyncio.Event()
    events: list[str] = []

    async def finish() -> None:
        done.set()
        await asyncio.Event().wait()

    async def first() -> None:
        await done.wait()
        events.append("first")

    async def second() -> None:
        events.append("second")

    async def idle() -> None:
        await asyncio.Event().wait()

    stages = [Stage(name="a", work=idle, start=first), Stage(name="b", work=finish, start=second)]
    run(*side_by_side(stages), Stage(name="end", start=signalling(signal.SIGTERM)))
    assert events == ["first", "second"]


def test_stages_run_on_a_quick_loop() -> None:
    seen: list[str] = []

    async def look() -> None:
        seen.append(type(asyncio.get_running_loop()).__module__)
        os.kill(os.getpid(), signal.SIGTERM)

    runtime.run(Stages([Stage(name="look", start=look)]))
    assert seen == ["uvloop"]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)


def test_signal_handlers_are_given_back() -> None:
    before = [signal.getsignal(number) for number in HANDLED]
    run(Stage(name="signal", start=signalling(signal.SIGTERM)))
    assert [signal.getsignal(number) for number in HANDLED] == before


def test_hang_up_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """M18: by default SIGHUP ends a process at once, and reviews with it."""
    caplog.set_level(logging.INFO, "webhook")
    recorder = Recorder()

    async def hang_up() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(60):
            while not caplog.records:  # noqa: ASYNC110 -- the handler runs when the loop comes to it
                await asyncio.sleep(0)
        recorder.events.append("still here")
        os.kill(os.getpid(), signal.SIGTERM)

    run(recorder.stage("a"), Stage(name="hang up", start=hang_up))
    assert recorder.events == ["a started", "still here", "a stopped", "a cancelled"]
    assert caplog.records[0].message.startswith("nothing to reload: ")


def test_log_level_is_switched_at_run_time(caplog: pytest.LogCaptureFixture) -> None:
    """M18."""
    caplog.set_level(logging.INFO, "webhook")
    ours = logging.getLogger("webhook")
    levels = []

    async def switch() -> None:
        for _ in range(2):
            before = ours.level
            os.kill(os.getpid(), signal.SIGUSR2)
            async with asyncio.timeout(60):
                while ours.level == before:  # noqa: ASYNC110 -- the handler runs when the loop comes to it
                    await asyncio.sleep(0)
            levels.append(ours.level)
        os.kill(os.getpid(), signal.SIGTERM)

    run(Stage(name="switch", start=switch))
    assert levels == [logging.DEBUG, logging.INFO]


def test_loop_that_is_held_up_is_late_by_as_much() -> None:
    """M18: what each review has to wait for."""
    lags: list[float] = []

    async def hold_up() -> None:
        async with asyncio.timeout(60):
            while not lags:  # noqa: ASYNC110 -- the first measurement, of a loop that goes on
                await asyncio.sleep(0.01)
            lags.clear()
            until = time.monotonic() + 0.8
            while time.monotonic() < until:
                pass
            while not lags:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    run(runtime.lag_stage(lags.append), Stage(name="hold up", start=hold_up))
    assert 0.4 < lags[0] < 10
