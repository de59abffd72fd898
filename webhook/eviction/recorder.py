"""Records Events in the background, so that writing them never delays an eviction."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

from webhook.eviction.event_messages import pod_event
from webhook.flowcontrol.write_behind import WriteBehind

if TYPE_CHECKING:
    from webhook.eviction.dependencies import Dependencies
    from webhook.eviction.event_messages import PodEventKind
    from webhook.eviction.plans import PodPlan
    from webhook.eviction.ports import EvictionEvent

log = logging.getLogger(__name__)


class EvictionRecorder:
    """Queues Events without waiting, and writes them one after the other."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._buffer: WriteBehind[EvictionEvent] = WriteBehind(
            self._write, most=deps.settings.events_most, on_dropped=self._count_dropped
        )

    def record_pod_event(self, kind: PodEventKind, plan: PodPlan, text: str = "") -> None:
        """Queues an Event about a pod, unless the last one about it had the same reason."""
        if plan.last_event != kind.value:
            plan.last_event = kind.value
            self.record(pod_event(self._deps.mode, kind, plan, text))

    def record(self, event: EvictionEvent) -> None:
        """Queues an Event; it is dropped if too many are queued."""
        self._buffer.add(event)

    async def run(self) -> NoReturn:
        """Writes queued Events until it is cancelled."""
        await self._buffer.run()

    async def finish(self) -> None:
        """Writes the queued Events after `run` was cancelled; those left after `flush_seconds` are dropped."""
        dropped = await self._buffer.finish(self._deps.settings.flush_seconds)
        if dropped:
            log.warning("events not written", extra={"count": dropped})

    async def _write(self, event: EvictionEvent) -> None:
        await self._deps.writer.write_event(event)

    def _count_dropped(self, count: int) -> None:
        for _ in range(count):
            self._deps.metrics.count_dropped_event()
