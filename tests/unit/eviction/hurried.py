"""The worker's own tasks on an event loop whose time passes at once when nothing is left to do."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import selectors
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any

from tests.unit.eviction.world import Clock, World
from tests.unit.running import running


class _Selector(selectors.SelectSelector):
    """Waits for nothing, and counts how long it should have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("every task waits for another one")
        # Each turn takes a nanosecond, or a wait that rounding leaves to the end of another one would never be over.
        self.passed += max(timeout, 1e-9)
        return super().select(0)


class HurriedLoop(asyncio.SelectorEventLoop):
    """A loop for tasks that wait for timers and for each other, and for no socket."""

    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._waits.passed


class LoopClock(Clock):
    """Both clocks by the time of the running loop; a test sets the wall clock by moving `wall`."""

    def now(self) -> datetime:
        return self.wall + timedelta(seconds=self.passed())

    def seconds(self) -> float:
        return 1000.0 + self.passed()

    def passed(self) -> float:
        return asyncio.get_running_loop().time()


def hurry(test: Coroutine[Any, Any, None]) -> None:
    """Runs a test on such a loop. Its world has a LoopClock, and is made while the loop runs."""
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        runner.run(test)


def by(
    runner: Callable[[Coroutine[Any, Any, None]], None],
) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """A test that is run by this."""

    def run_by(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **fields: Any) -> None:
            runner(test(*args, **fields))

        return run

    return run_by


hurried = by(hurry)
looped = by(asyncio.run)
"""On a loop as it is, for a test that counts turns, or looks at the time."""


def at_work(world: World) -> contextlib.AbstractAsyncContextManager[None]:
    """The worker runs meanwhile."""
    return running(world.worker.run())
