"""The sink for Alertmanager: what holds now, sent to each of them when it changes and once a minute.

There is no queue: what could not be sent is still on the board, so an Alertmanager that was away for an hour gets what
holds then. What ended stays until each of them has it, or until it would have resolved there by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NoReturn

from webhook.flowcontrol.backoff import Backoff
from webhook.notifications.alerts import RESEND, alert_of, ends_at
from webhook.notifications.poster import NotPosted
from webhook.telemetry.repeats import LastingFault

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from webhook.notifications.notice import Notice, NoticeKind
    from webhook.notifications.poster import Poster
    from webhook.telemetry.notifications import NotificationMetrics

log = logging.getLogger(__name__)

SINK: Final = "alertmanager"
PATH: Final = "/api/v2/alerts"
_JSON: Final = "application/json"
_ALERTS_MOST: Final = 2048
_IN_ONE: Final = 64
"""Alerts in one request, as in Prometheus."""
_KEPT: Final = timedelta(minutes=5)
"""How long what ended is kept for an Alertmanager that does not answer; by then it has resolved there by itself."""
_FIRST_SECONDS: Final = 1.0
_MOST_SECONDS: Final = 30.0


class AlertBoard:
    """The alerts that hold, and one sender for each Alertmanager."""

    def __init__(  # noqa: PLR0913 -- the parts of one sink
        self,
        posters: Sequence[Poster],
        cluster: str,
        metrics: NotificationMetrics,
        *,
        leads: Callable[[], bool],
        now: Callable[[], datetime],
        random: Callable[[], float],
        resend_seconds: float = RESEND.total_seconds(),
        alerts_most: int = _ALERTS_MOST,
    ) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._leads = leads
        self._now = now
        self._resend_seconds = resend_seconds
        self._most = alerts_most
        self._alerts: dict[tuple[NoticeKind, str], tuple[int, Notice]] = {}
        """By kind and name of the rule, as labels are: the number of the last change, and the notice."""
        self._number = 0
        self._senders = [_Sender(poster, Backoff(_FIRST_SECONDS, _MOST_SECONDS, random)) for poster in posters]
        metrics.watch_waiting(SINK, lambda: self.unsent)

    @property
    def unsent(self) -> int:
        """Alerts that not each Alertmanager has as they are now."""
        least = min((sender.sent for sender in self._senders), default=self._number)
        return sum(number > least for number, _ in self._alerts.values())

    def put(self, notice: Notice) -> None:
        """Takes what happened, began, changed or ended. Never waits."""
        key = notice.kind, notice.subject.name
        if key not in self._alerts and (notice.ended is not None or len(self._alerts) >= self._most):
            if notice.ended is None:
                self._metrics.drop(SINK, "too many alerts at once")
            return
        self._number += 1
        self._alerts[key] = self._number, notice
        for sender in self._senders:
            sender.wake.set()

    async def run(self) -> NoReturn:
        """Sends until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for sender in self._senders:
                group.create_task(self._send_for_ever(sender))
        raise AssertionError("senders do not return")

    async def _send_for_ever(self, sender: _Sender) -> NoReturn:
        while True:
            sender.wake.clear()
            wait = await self._send_all(sender) if self._leads() else self._resend_seconds
            if sender.fault.attempts:
                await asyncio.sleep(wait)  # it has failed, so news do not make it come sooner
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await sender.wake.wait()

    async def _send_all(self, sender: _Sender) -> float:
        """Sends everything; returns the seconds until it has to be sent again."""
        self._forget_old()
        number, now = self._number, self._now()
        alerts = [alert_of(notice, self._cluster, now) for _, notice in self._alerts.values()]
        try:
            for start in range(0, len(alerts), _IN_ONE):
                await sender.poster.post(alerts[start : start + _IN_ONE], _JSON)
        except NotPosted as error:
            self._metrics.count_failure(SINK)
            if sender.fault.failed(str(error)):
                log.warning("alerts not sent", extra={"error": str(error), **sender.fault.fields})
            return sender.backoff.next_seconds(error.retry_after_seconds)
        sender.fault.ended()
        sender.backoff.reset()
        self._metrics.count_sent(SINK, len(alerts))
        sender.sent = number
        self._forget_sent()
        return self._resend_seconds

    def _forget_sent(self) -> None:
        """Drops what has ended and is known as such everywhere, and what happened once and is no longer news."""
        least, now = min(sender.sent for sender in self._senders), self._now()
        for key, (number, notice) in list(self._alerts.items()):
            if number <= least and (notice.ended is not None or ends_at(notice, now) <= now):
                del self._alerts[key]

    def _forget_old(self) -> None:
        now = self._now()
        for key, (_, notice) in list(self._alerts.items()):
            if ends_at(notice, now) + _KEPT <= now:
                del self._alerts[key]


class _Sender:
    """One Alertmanager."""

    def __init__(self, poster: Poster, backoff: Backoff) -> None:
        self.poster = poster
        self.backoff = backoff
        self.fault = LastingFault()
        self.wake = asyncio.Event()
        self.sent = 0
        """It has everything up to this change."""
