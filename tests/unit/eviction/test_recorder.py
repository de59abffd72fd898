"""Events that wait, and what becomes of them at the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.unit.eviction.world import FREE, World
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Note, PodRef
from webhook.eviction.recorder import Teller

if TYPE_CHECKING:
    import pytest

DROPPED: Final = "device_taint_webhook_eviction_events_dropped_total"


def notes(count: int) -> list[Note]:
    return [Note(PodRef("ml", f"pod-{number}", ""), "Evicted", "Evict", "") for number in range(count)]


def dropped(world: World) -> float | None:
    return world.deps.metrics._registry.get_sample_value(DROPPED)


def test_events_that_wait_at_the_end_are_written() -> None:
    """Also the one that was being written, once more: whether it came to be nobody knows."""

    async def test() -> None:
        world = World(Mode.REPLACEMENT, FREE)
        teller, begun, waits = Teller(world.deps), asyncio.Event(), asyncio.Event()
        written, tell = world.cluster.notes, world.cluster.tell

        async def slow(note: Note) -> None:
            if len(written) == 1:
                begun.set()
                await waits.wait()
            await tell(note)

        world.cluster.tell = slow  # type: ignore[method-assign]
        for note in notes(5):
            teller.tell(note)
        task = asyncio.create_task(teller.run())
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(written) == 1
        waits.set()
        await teller.finish()
        assert written == notes(5)
        assert dropped(world) == 0

    asyncio.run(test())


def test_events_that_take_too_long_at_the_end_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        world = World(Mode.REPLACEMENT, FREE, last_notes_seconds=0.01)
        teller, tell = Teller(world.deps), world.cluster.tell

        async def stuck(note: Note) -> None:
            await asyncio.Event().wait()
            await tell(note)

        world.cluster.tell = stuck  # type: ignore[method-assign]
        for note in notes(3):
            teller.tell(note)
        await teller.finish()
        assert dropped(world) == 3
        [record] = caplog.records
        assert (record.message, record.count) == ("events not written", 3)  # type: ignore[attr-defined]
        await teller.finish()

    asyncio.run(test())


def test_events_beyond_the_most_are_dropped_and_counted() -> None:
    world = World(Mode.REPLACEMENT, FREE, notes_most=2)
    teller = Teller(world.deps)
    for note in notes(5):
        teller.tell(note)
    asyncio.run(teller.finish())
    assert world.cluster.notes == notes(2)
    assert dropped(world) == 3
