"""Items that are written in the background."""

from __future__ import annotations

import asyncio

from webhook.flowcontrol.loop import WriteBehind


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
