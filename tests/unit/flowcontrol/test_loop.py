"""Loops, lasting faults, throttles and what is written behind; `loop_times.txt` has the loops of the daemons."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.unit.eviction.hurried import hurry
from tests.unit.running import running
from webhook.flowcontrol.loop import Again, LastingFault, Loop, Sampled, Throttle, WriteBehind, together

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


async def never() -> None:
    await asyncio.Event().wait()


def test_items_beyond_the_most_are_dropped_and_counted() -> None:
    async def test() -> None:
        written: list[int] = []
        dropped: list[int] = []

        async def write(item: int) -> None:
            written.append(item)

        buffer = WriteBehind(write, most=2, on_dropped=dropped.append)
        for item in range(4):
            buffer.add(item)
        assert await buffer.finish(60) == 0
        assert (written, dropped) == ([0, 1], [1, 1])

    asyncio.run(test())


def test_item_whose_writing_was_cancelled_is_written_again_and_first() -> None:
    async def test() -> None:
        written: list[int] = []
        begun = asyncio.Event()

        async def write(item: int) -> None:
            written.append(item)
            if not begun.is_set():
                begun.set()
                await never()

        buffer = WriteBehind(write, most=3)
        for item in range(3):
            buffer.add(item)
        running = asyncio.create_task(buffer.run())
        await begun.wait()
        running.cancel()
        await asyncio.wait([running])
        await buffer.finish(60)
        assert written == [0, 0, 1, 2]

    asyncio.run(test())


def test_what_cannot_be_written_in_time_is_dropped_and_counted() -> None:
    async def test() -> None:
        dropped: list[int] = []
        buffer: WriteBehind[int] = WriteBehind(lambda _: never(), most=3, on_dropped=dropped.append)
        for item in range(3):
            buffer.add(item)
        assert await buffer.finish(0.01) == 3
        assert (dropped, list(buffer.waiting)) == ([3], [])
        assert await buffer.finish(0.01) == 0

    asyncio.run(test())
