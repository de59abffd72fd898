"""Events that wait, and what becomes of them at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import pytest

from tests.builders import NOW
from tests.unit.eviction.hurried import looped
from tests.unit.eviction.objects import rule
from tests.unit.eviction.world import World, evicting
from webhook.api.meta import ObjectMeta
from webhook.api.pods import SINGLE, PodGroup
from webhook.eviction.events import EvictionRecorder, PodEventKind
from webhook.eviction.ports import EvictionEvent, PodRef
from webhook.inventory.evictions import Eviction, EvictionReason

POD: Final = PodRef("ml", "pod", "uid-pod")
BECAUSE: Final = Eviction(NOW, (EvictionReason(rule().taint, "rule", "uid-rule"),))
DROPPED: Final = "device_taint_webhook_eviction_events_dropped_total"


def events(count: int) -> list[EvictionEvent]:
    return [EvictionEvent(PodRef("ml", f"pod-{number}", ""), "Evicted", "Evict", "") for number in range(count)]


def dropped(world: World) -> float | None:
    return world.deps.metrics.registry.get_sample_value(DROPPED)


@looped
async def test_events_that_wait_at_the_end_are_written() -> None:
    """Also the one that was being written, once more: whether it came to be nobody knows."""
    world = evicting()
    recorder, begun, waits = EvictionRecorder(world.deps), asyncio.Event(), asyncio.Event()
    written, write = world.cluster.events, world.cluster.write_event

    async def slow(event: EvictionEvent) -> None:
        if len(written) == 1:
            begun.set()
            await waits.wait()
        await write(event)

    world.cluster.write_event = slow  # type: ignore[method-assign]
    for event in events(5):
        recorder.record(event)
    task = asyncio.create_task(recorder.run())
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(written) == 1
    waits.set()
    await recorder.finish()
    assert written == events(5)
    assert dropped(world) == 0


@looped
async def test_events_of_a_worker_that_lost_its_lease_are_dropped_and_counted() -> None:
    world = evicting()
    recorder = EvictionRecorder(world.deps)
    for event in events(3):
        recorder.record(event)
    world.leads = False
    await recorder.finish()
    assert (world.cluster.events, dropped(world)) == ([], 3)


@looped
async def test_events_that_take_too_long_at_the_end_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    world = evicting(flush_seconds=0.01)
    recorder, write = EvictionRecorder(world.deps), world.cluster.write_event

    async def stuck(event: EvictionEvent) -> None:
        await asyncio.Event().wait()
        await write(event)

    world.cluster.write_event = stuck  # type: ignore[method-assign]
    for event in events(3):
        recorder.record(event)
    await recorder.finish()
    assert dropped(world) == 3
    [record] = caplog.records
    assert (record.message, record.count) == ("events not written", 3)  # type: ignore[attr-defined]
    await recorder.finish()


def test_events_beyond_the_most_are_dropped_and_counted() -> None:
    world = evicting(events_most=2)
    recorder = EvictionRecorder(world.deps)
    for event in events(5):
        recorder.record(event)
    asyncio.run(recorder.finish())
    assert world.cluster.events == events(2)
    assert dropped(world) == 3


def group(name: str) -> PodGroup:
    return PodGroup(ObjectMeta(name=name, namespace="ml", uid=f"uid-{name}"), SINGLE)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(lambda recorder: recorder.record_pod_event(PodEventKind.HELD, POD, BECAUSE), id="about a pod"),
        pytest.param(lambda recorder: recorder.record_group_event(group("one"), str(POD), BECAUSE), id="about a group"),
    ],
)
@pytest.mark.parametrize(("seconds", "count"), [(3599.0, 1), (3600.0, 2)])
def test_event_about_a_state_that_lasts_is_queued_again_after_an_hour(
    record: Callable[[EvictionRecorder], None], seconds: float, count: int
) -> None:
    world = evicting()
    recorder = EvictionRecorder(world.deps)
    record(recorder)
    world.clock.elapsed += seconds
    record(recorder)
    assert len(recorder._buffer.waiting) == count
    world.clock.elapsed += 3600.0
    recorder.record_group_event(group("other"), str(POD), BECAUSE)
    assert list(recorder._groups) == ["uid-other"], "after an hour a group is forgotten"
