"""Coroutines against a real API server, with time enough for it to come back on a busy machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import uvloop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_TEST_SECONDS = 900.0
_POLL_SECONDS = 0.01


async def until(condition: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    """Polls until the condition holds."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 -- any state, not only those that somebody announces
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


def run(test: Coroutine[Any, Any, None]) -> None:
    """Runs a test on the loop that the product runs on, and fails it if it hangs."""

    async def bounded() -> None:
        async with asyncio.timeout(_TEST_SECONDS):
            await test

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())
