"""Stages: started in order, stopped in reverse, ended together; and whether the event loop keeps up.

It builds nothing and does not know what it runs.

Each stage has a task group. Work that fails, or that returns although it should go on, ends the process: the supervisor
(Kubernetes, systemd) restarts it, and half a program is worse than none.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import logging
import math
import resource
import signal
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

import uvloop

from webhook.telemetry.logs import switch_verbose

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence

log = logging.getLogger(__name__)

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)
_STDERR: Final = 2
_LAG_SECONDS: Final = 0.25
"""Between two measurements of the loop's lag, and between two beats."""
STALL_SECONDS: Final = 2.0
"""A gap between two beats that counts as a stall: longer than any single step of the worker."""
CATCH_UP_SECONDS: Final = 1.0
"""How long after a stall everything received meanwhile has been read for certain."""
_OPEN_FILES: Final = 65536
"""As many as we ask for: what containers start with may be 1024, less than the connections that a listener allows."""


async def _nothing() -> None:
    """Do nothing, for stages that need no start or no stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Something that runs between a start and a stop."""

    name: str
    """For the log."""
    work: Callable[[], Coroutine[Any, Any, None]] | None = None
    """A task that runs as long as the stage: begun before `start`, cancelled after `stop`."""
    start: Callable[[], Awaitable[object]] = _nothing
    """Returns once the next stage may rely on this one."""
    stop: Callable[[], Awaitable[None]] = _nothing
    """Returns once nothing relies on this stage any more. Not called if `start` failed."""


def side_by_side(stages: Iterable[Stage]) -> list[Stage]:
    """Return the same stages, with the work of all begun before the start of any is waited for.

    One that cannot go on then does not keep the others from doing their part, and from saying what they lack.
    """
    given = list(stages)
    begun = [replace(stage, start=_nothing) for stage in given]
    return [*begun, *(Stage(name=f"{stage.name} waited for", start=stage.start) for stage in given)]


class EndedEarly(RuntimeError):  # noqa: N818 -- it says what happened
    """Work came to an end that was meant to go on until it is cancelled."""


class Stages:
    """Runs stages from the first start to the last stop."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages
        self._stopping = asyncio.Event()
        self._started = False
        self._hurried = False

    def stop(self) -> None:
        """Begin the orderly end."""
        self._stopping.set()

    async def run(self) -> None:
        """Start the stages in order, wait for `stop` or a signal, stop them in reverse.

        What a stage raised comes out in an exception group, after the others have stopped.
        """
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, self._signalled, number, task)
        for number, answer in _LOOKING.items():
            loop.add_signal_handler(number, answer)
        try:
            async with contextlib.AsyncExitStack() as stack:
                for stage in self._stages:
                    await stack.enter_async_context(_running(stage))
                self._started = True
                await self._stopping.wait()
        except asyncio.CancelledError:
            if not self._hurried:
                raise
            task.uncancel()
        finally:
            for number in (*_ENDING, *_LOOKING):
                loop.remove_signal_handler(number)
        log.info("stopped")

    def _signalled(self, number: signal.Signals, task: asyncio.Task[None]) -> None:
        """Stop in order on the first signal; cut waiting short on a second, or on one before everything runs."""
        self._hurried = self._stopping.is_set() or not self._started
        log.info("stopping", extra={"signal": signal.Signals(number).name, "hurry": self._hurried})
        self.stop()
        if self._hurried:
            task.cancel()


def _hung_up() -> None:
    """Log that there is nothing to reload: SIGHUP asks daemons for that, and by default ends the process."""
    log.info("nothing to reload: policy, certificates and keys are reloaded automatically", extra={"signal": "SIGHUP"})


def _switched() -> None:
    log.info("log level switched", extra={"signal": "SIGUSR2", "verbose": switch_verbose()})


_LOOKING: Final = {signal.SIGHUP: _hung_up, signal.SIGUSR2: _switched}
"""Signals that end nothing."""


@contextlib.asynccontextmanager
async def _running(stage: Stage) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_for_ever(stage)) if stage.work else None
        await stage.start()
        log.debug("stage started", extra={"stage": stage.name})
        try:
            yield
        finally:
            await stage.stop()
            log.debug("stage stopped", extra={"stage": stage.name})
        if task:
            task.cancel()


async def _for_ever(stage: Stage) -> None:
    assert stage.work is not None
    await stage.work()
    raise EndedEarly(f"{stage.name} ended by itself")


def run(stages: Stages) -> None:
    """Run stages on a loop of their own (uvloop: half the time per request that asyncio's own loop takes).

    SIGUSR1 writes every thread's stack to stderr, also while the loop is stuck.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _OPEN_FILES:  # less than 0 is no limit; macOS then has one of its own
        with contextlib.suppress(ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _OPEN_FILES) if hard >= 0 else _OPEN_FILES, hard))
    faulthandler.register(signal.SIGUSR1, file=_STDERR)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(stages.run())


def lag_stage(observe: Callable[[float], None]) -> Stage:
    """Make a stage that reports, four times a second, by how many seconds the event loop was late.

    All reviews run on this loop, so each of them is late by as much.
    """

    async def measure() -> None:
        while True:
            due = time.monotonic() + _LAG_SECONDS
            await asyncio.sleep(_LAG_SECONDS)
            observe(max(time.monotonic() - due, 0.0))

    return Stage(name="loop lag", work=measure)


class LoopMonitor:
    """Beats while the event loop runs; a missing beat is a stall, after which caches are older than they look.

    A container may be frozen, a machine suspended, or the loop blocked. A process that resumes first runs the timers
    that expired meanwhile, and reads only then what its watches have received, or that they were closed. Until it has
    read that, it must not evict.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds that only go forward, from any origin."""
        self._clock = clock
        self._beat_at = clock()
        self._stalled_until = -math.inf

    @property
    def steady(self) -> bool:
        """Whether there was no stall just now. It is false right after one, even before the next beat."""
        now = self._clock()
        return now - self._beat_at < STALL_SECONDS and now - self._stalled_until >= CATCH_UP_SECONDS

    async def run(self) -> NoReturn:
        """Beat until it is cancelled."""
        while True:
            self._beat()
            await asyncio.sleep(_LAG_SECONDS)

    def _beat(self) -> None:
        now = self._clock()
        seconds = now - self._beat_at
        if seconds >= STALL_SECONDS:
            self._stalled_until = now
            log.warning("event loop blocked", extra={"delaySeconds": round(seconds, 3)})
        self._beat_at = now


def causes(error: BaseException) -> list[BaseException]:
    """Return what is at the bottom of nested exception groups."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for inner in error.exceptions for cause in causes(inner)]
    return [error]


def settle_memory() -> None:
    """Exclude objects that start-up left from garbage collection, and run it less often.

    Reviews create almost no cycles, so the collector mostly walks live objects: measured as 1 to 3 us of a small review
    and 15 us of a large one. Eviction plans come by the ten thousand and have no cycles; with Python's own thresholds
    the collector would walk all of them several times, and block the loop for 0.1 to 0.2 s each time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
