"""Events that wait to be written: telling is a courtesy, and must never hold up what it is about."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NoReturn

from webhook.eviction.notes import pod_note

if TYPE_CHECKING:
    from webhook.eviction.notes import Kind
    from webhook.eviction.plans import Plan
    from webhook.eviction.ports import Note
    from webhook.eviction.setup import Setup


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
            while self._notes:
                await self._setup.writer.tell(self._notes.popleft())
            self._news.clear()
            await self._news.wait()
