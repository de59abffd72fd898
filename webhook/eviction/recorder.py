"""Records Events in the background: an Event is a courtesy, and never delays what it is about."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NoReturn

from webhook.eviction.event_messages import pod_note
from webhook.flowcontrol.write_behind import WriteBehind

if TYPE_CHECKING:
    from webhook.eviction.dependencies import Setup
    from webhook.eviction.event_messages import Kind
    from webhook.eviction.plans import Plan
    from webhook.eviction.ports import Note

log = logging.getLogger(__name__)


class Teller:
    """Takes Events at once, and writes them one after the other."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._buffer: WriteBehind[Note] = WriteBehind(
            self._write, most=setup.settings.notes_most, on_dropped=self._count_dropped
        )
        self._notes = self._buffer.waiting

    def tell_of_pod(self, kind: Kind, plan: Plan, text: str = "") -> None:
        """An Event about a pod, unless the last one about it said the same."""
        if plan.told != kind.value:
            plan.told = kind.value
            self.tell(pod_note(self._setup.mode, kind, plan, text))

    def tell(self, note: Note) -> None:
        """Any Event; dropped if too many wait."""
        self._buffer.add(note)

    async def run(self) -> NoReturn:
        """Writes until it is cancelled."""
        await self._buffer.run()

    async def finish(self) -> None:
        """Writes what waits, after `run` was cancelled; what is left when time is up is dropped."""
        dropped = await self._buffer.finish(self._setup.settings.last_notes_seconds)
        if dropped:
            log.warning("events not written", extra={"count": dropped})

    async def _write(self, note: Note) -> None:
        await self._setup.writer.tell(note)

    def _count_dropped(self, count: int) -> None:
        for _ in range(count):
            self._setup.metrics.count_dropped_event()
