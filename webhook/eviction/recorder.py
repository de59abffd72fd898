"""Records Events in the background: an Event is a courtesy, and never delays what it is about."""

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
    """Takes Events at once, and writes them one after the other."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._buffer: WriteBehind[EvictionEvent] = WriteBehind(
            self._write, most=deps.settings.events_most, on_dropped=self._count_dropped
        )
        self._events = self._buffer.waiting

    def record_pod_event(self, kind: PodEventKind, plan: PodPlan, text: str = "") -> None:
        """An Event about a pod, unless the last one about it said the same."""
        if plan.last_event != kind.value:
            plan.last_event = kind.value
            self.record(pod_event(self._deps.mode, kind, plan, text))

    def record(self, event: EvictionEvent) -> None:
        """Any Event; dropped if too many wait."""
        self._buffer.add(event)

    async def run(self) -> NoReturn:
        """Writes until it is cancelled."""
        await self._buffer.run()

    async def finish(self) -> None:
        """Writes what waits, after `run` was cancelled; what is left when time is up is dropped."""
        dropped = await self._buffer.finish(self._deps.settings.flush_seconds)
        if dropped:
            log.warning("events not written", extra={"count": dropped})

    async def _write(self, event: EvictionEvent) -> None:
        await self._deps.writer.write_event(event)

    def _count_dropped(self, count: int) -> None:
        for _ in range(count):
            self._deps.metrics.count_dropped_event()
