"""Events that wait to be written: telling is a courtesy, and must never hold up what it is about."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, NoReturn

from webhook.eviction.event_messages import pod_note

if TYPE_CHECKING:
    from webhook.eviction.dependencies import Setup
    from webhook.eviction.event_messages import Kind
    from webhook.eviction.plans import Plan
    from webhook.eviction.ports import Note

log = logging.getLogger(__name__)


class Teller:
    """Takes what is to be told at once, and writes it one after the other."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._notes: deque[Note] = deque()
        self._news = asyncio.Event()

    def tell_of_pod(self, kind: Kind, plan: Plan, text: str = "") -> None:
        """An Event about a pod, unless the last one about it said the same."""
        if plan.told != kind.value:
            plan.told = kind.value
            self.tell(pod_note(self._setup.mode, kind, plan, text))

    def tell(self, note: Note) -> None:
        """Any Event; dropped if too many wait."""
        if len(self._notes) >= self._setup.settings.notes_most:
            self._setup.metrics.count_dropped_event()
            return
        self._notes.append(note)
        self._news.set()

    async def run(self) -> NoReturn:
        """Writes until it is cancelled."""
        while True:
            await self._write()
            self._news.clear()
            await self._news.wait()

    async def finish(self) -> None:
        """Writes what waits, after `run` was cancelled; what is left when time is up is dropped."""
        try:
            async with asyncio.timeout(self._setup.settings.last_notes_seconds):
                await self._write()
        except TimeoutError:
            log.warning("events not written", extra={"count": len(self._notes)})
            for _ in range(len(self._notes)):
                self._setup.metrics.count_dropped_event()
            self._notes.clear()

    async def _write(self) -> None:
        while self._notes:
            note = self._notes.popleft()
            try:
                await self._setup.writer.tell(note)
            except asyncio.CancelledError:
                self._notes.appendleft(note)  # whether it was written nobody knows: twice is better than never
                raise
