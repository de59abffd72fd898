"""Records Events in the background, so that writing them never delays an eviction."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, NoReturn

from webhook.eviction.event_messages import PodEventKind, group_event, pod_event
from webhook.flowcontrol.write_behind import WriteBehind

if TYPE_CHECKING:
    from webhook.api.pod_groups import PodGroup
    from webhook.eviction.dependencies import Dependencies
    from webhook.eviction.pod_plan import PodPlan
    from webhook.eviction.ports import EvictionEvent

log = logging.getLogger(__name__)

RENEW_SECONDS: Final = 3600.0
"""API servers keep an Event for an hour, so one about a state that lasts is written again this often."""
_ONCE: Final = frozenset({PodEventKind.SCHEDULED, PodEventKind.CANCELLED, PodEventKind.EVICTED})
"""What happens once; the other kinds of Events are about a state that lasts."""


class EvictionRecorder:
    """Queues Events without waiting, and writes them one after the other."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._buffer: WriteBehind[EvictionEvent] = WriteBehind(
            self._write, most=deps.settings.events_most, on_dropped=self._count_dropped
        )
        self._groups: dict[str, float] = {}
        """When the last Event about a PodGroup was queued, in monotonic seconds, by uid."""

    def record_pod_event(self, kind: PodEventKind, plan: PodPlan, text: str = "") -> None:
        """Queues an Event about a pod, unless the last one about it had the same reason.

        An Event about a state that lasts is queued again each hour.
        """
        now = self._deps.clock.seconds()
        again = kind not in _ONCE and now - plan.last_event_at >= RENEW_SECONDS
        if plan.last_event != kind.value or again:
            plan.last_event, plan.last_event_at = kind.value, now
            self.record(pod_event(self._deps.mode, kind, plan, text))

    def record_group_event(self, group: PodGroup, plan: PodPlan) -> None:
        """Queues an Event about a PodGroup that keeps the claims of its pods reserved, once an hour."""
        now, last = self._deps.clock.seconds(), self._groups.get(group.meta.uid, -math.inf)
        if now - last < RENEW_SECONDS:
            return
        self._groups = {uid: at for uid, at in self._groups.items() if now - at < RENEW_SECONDS}
        self._groups[group.meta.uid] = now
        self.record(group_event(group, plan))

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
        if self._deps.leads():
            await self._deps.writer.write_event(event)
        else:
            self._count_dropped(1)  # another process leads, and a process without the lease writes nothing

    def _count_dropped(self, count: int) -> None:
        for _ in range(count):
            self._deps.metrics.count_dropped_event()
