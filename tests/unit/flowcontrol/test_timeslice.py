"""Long work lets others have the loop."""

from __future__ import annotations

import asyncio

import pytest

from webhook.flowcontrol.workqueue import TimeSlice


@pytest.mark.parametrize(("taken_seconds", "pauses"), [(0.0004, 0), (0.0011, 1)])
def test_long_work_lets_others_have_the_loop(taken_seconds: float, pauses: int) -> None:
    async def test() -> None:
        now, others = [50.0], 0

        async def other() -> None:
            nonlocal others
            others += 1

        timeslice = TimeSlice(0.001, clock=lambda: now[0])
        task = asyncio.ensure_future(other())
        now[0] += taken_seconds
        assert await timeslice.pause() is bool(pauses)
        assert others == pauses
        await task

    asyncio.run(test())


def test_tasks_that_share_a_time_slice_take_turns_with_others() -> None:
    now = [0.0]
    timeslice = TimeSlice(1.0, lambda: now[0])
    order: list[str] = []

    async def work(name: str) -> None:
        for _ in range(4):
            now[0] += 0.5
            order.append(name)
            await timeslice.pause()

    async def test() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(work("a"))
            group.create_task(work("b"))
            group.create_task(other())

    async def other() -> None:
        assert timeslice.paused
        order.append("other")

    asyncio.run(test())
    assert order[:4] == ["a", "a", "b", "other"]
    assert sorted(order) == ["a"] * 4 + ["b"] * 4 + ["other"]
    assert not timeslice.paused
