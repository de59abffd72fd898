"""The sink for CloudEvents: a bounded queue in front of each receiver, in order, at least once."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NoReturn

from webhook.flowcontrol.backoff import Backoff
from webhook.flowcontrol.write_behind import WriteBehind
from webhook.notifications.cloud_events import CONTENT_TYPE, event_of
from webhook.notifications.poster import NotPosted
from webhook.telemetry.repeats import LastingFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.notifications.notice import Notice
    from webhook.notifications.poster import Poster
    from webhook.telemetry.notifications import NotificationMetrics

log = logging.getLogger(__name__)

SINK: Final = "cloudevents"
_WAITING_MOST: Final = 1000
_FIRST_SECONDS: Final = 1.0
_MOST_SECONDS: Final = 60.0
_REMEMBERED_MOST: Final = 4096


class EventQueue:
    """Events for each receiver; one that does not answer delays no other."""

    def __init__(  # noqa: PLR0913 -- the parts of one sink
        self,
        posters: Sequence[Poster],
        cluster: str,
        metrics: NotificationMetrics,
        *,
        leads: Callable[[], bool],
        random: Callable[[], float],
        waiting_most: int = _WAITING_MOST,
        first_seconds: float = _FIRST_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._leads = leads
        self._queued: dict[str, None] = {}
        """Identities of the last events, oldest first: a text that changes makes no new event."""
        self._receivers = [
            _Receiver(poster, Backoff(first_seconds, _MOST_SECONDS, random), self, waiting_most) for poster in posters
        ]
        metrics.watch_waiting(SINK, lambda: self.unsent)

    @property
    def unsent(self) -> int:
        """Events in all queues, with those that are being sent."""
        return sum(len(each.buffer.waiting) + each.sending for each in self._receivers)

    def put(self, notice: Notice) -> None:
        """Queues an event unless it was queued before. Never waits; what is too much is dropped and counted."""
        if notice.identity in self._queued:
            return
        self._queued[notice.identity] = None
        if len(self._queued) > _REMEMBERED_MOST:
            del self._queued[next(iter(self._queued))]
        event = event_of(notice, self._cluster)
        for receiver in self._receivers:
            receiver.buffer.add(event)

    async def run(self) -> NoReturn:
        """Sends until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for receiver in self._receivers:
                group.create_task(receiver.buffer.run())
        raise AssertionError("receivers do not return")

    def drop(self, why: str, count: int = 1) -> None:
        """Counts events that are lost."""
        self._metrics.drop(SINK, why, count)

    async def send(self, receiver: _Receiver, event: dict[str, Any]) -> None:
        """Sends one event, with as many attempts as it takes; gives up if the receiver refuses it for good."""
        receiver.sending = True
        try:
            while self._leads() and not await self._sent(receiver, event):  # noqa: ASYNC110 -- attempts, not polls
                await asyncio.sleep(receiver.wait_seconds)
        finally:
            receiver.sending = False

    async def _sent(self, receiver: _Receiver, event: dict[str, Any]) -> bool:
        """Whether nothing remains to be done, after one attempt."""
        try:
            await receiver.poster.post(event, CONTENT_TYPE)
        except NotPosted as error:
            self._metrics.count_failure(SINK)
            if receiver.fault.failed(str(error)):
                log.warning("event not sent", extra={"error": str(error), **receiver.fault.fields})
            if error.final:
                self.drop("refused by the receiver")
            else:
                receiver.wait_seconds = receiver.backoff.next_seconds(error.retry_after_seconds)
            return error.final
        receiver.fault.ended()
        receiver.backoff.reset()
        self._metrics.count_sent(SINK, 1)
        return True


class _Receiver:
    """One receiver and its queue."""

    def __init__(self, poster: Poster, backoff: Backoff, queue: EventQueue, most: int) -> None:
        self.poster = poster
        self.backoff = backoff
        self.fault = LastingFault()
        self.wait_seconds = 0.0
        """Before the next attempt."""
        self.sending = False
        self.buffer: WriteBehind[dict[str, Any]] = WriteBehind(
            lambda event: queue.send(self, event),
            most=most,
            on_dropped=lambda count: queue.drop("too many events wait", count),
        )
