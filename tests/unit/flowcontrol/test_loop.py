"""A loop looks when it is woken and when it is time; `loop_times.txt` has those of the daemons."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.unit.eviction.hurried import hurry
from tests.unit.running import running
from webhook.flowcontrol.loop import Again, Loop, together

if TYPE_CHECKING:
    from collections.abc import Sequence


def looks(again: Again, wakes: Sequence[float], *, look_seconds: float = 0.0) -> list[float]:
    """When a loop looks in ten seconds in which it is woken at those times."""
    found: list[float] = []

    async def test() -> None:
        now = asyncio.get_running_loop().time

        async def look() -> Again:
            found.append(round(now(), 3))
            await asyncio.sleep(look_seconds)
            assert loop.woken == any(found[-1] < each < now() for each in wakes)
            return again

        loop = Loop(look)
        async with running(loop.run()):
            for at in wakes:
                asyncio.get_running_loop().call_at(at, loop.wake)
            await asyncio.sleep(10)

    hurry(test())
    return found


@pytest.mark.parametrize(
    ("again", "wakes", "seen"),
    [
        (Again(), [], [0]),
        (Again(), [3, 5], [0, 3, 5]),
        (Again(4), [], [0, 4, 8]),
        (Again(4), [1], [0, 1, 5, 9]),
        (Again(None, 2), [1, 1.5, 7], [0, 2, 7]),
        (Again(1, 2), [], [0, 3, 6, 9]),
        (Again(0, 4), [2], [0, 4, 8]),
    ],
)
def test_loop_looks_when_woken_but_not_in_a_pause(again: Again, wakes: list[float], seen: list[float]) -> None:
    assert looks(again, wakes) == seen


def test_wakes_during_a_look_mean_one_more() -> None:
    assert looks(Again(), [1, 2, 2.5], look_seconds=3) == [0, 3]


def test_first_loop_that_fails_ends_the_others() -> None:
    async def fail() -> NoReturn:
        await asyncio.sleep(1)
        raise RuntimeError("no")

    async def wait() -> NoReturn:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)
        raise AssertionError

    ended: list[bool] = []
    with pytest.RaisesGroup(RuntimeError):
        hurry(together(wait(), fail()))
    assert ended == [True]
