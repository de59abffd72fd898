"""Sends notices about rules to Alertmanager and CloudEvents, in the leader of `evict`; ADR 27 says why there.

It follows what the API server has stored, so it needs nothing from the eviction itself, and cannot delay it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NoReturn

from webhook.api.rules import DeviceTaintRule
from webhook.notifications.alert_board import PATH, AlertBoard
from webhook.notifications.event_queue import EventQueue
from webhook.notifications.poster import Poster
from webhook.notifications.rule_notices import RuleNotices
from webhook.telemetry.notifications import NotificationMetrics

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from prometheus_client import CollectorRegistry

    from webhook.cluster.cache.inventory import InventoryCache
    from webhook.inventory.state import InventoryObject
    from webhook.notifications.settings import NotificationSettings

_LOOK_SECONDS: Final = 1.0
"""Changes of a rule that come close together make one notice."""
_FINISH_SECONDS: Final = 3.0
_FINISH_LOOK_SECONDS: Final = 0.05


class Notifier:
    """The notices of all rules, and the sinks that the settings ask for."""

    def __init__(
        self,
        settings: NotificationSettings,
        registry: CollectorRegistry,
        leads: Callable[[], bool],
        now: Callable[[], datetime],
        random: Callable[[], float],
    ) -> None:
        metrics = NotificationMetrics(registry)
        self._notices = RuleNotices()
        self._now = now
        self._sinks: list[AlertBoard | EventQueue] = []
        alertmanager, cloud_events = settings.alertmanager, settings.cloud_events
        if alertmanager.urls:
            posters = [Poster(url.rstrip("/") + PATH, alertmanager) for url in alertmanager.urls]
            self._sinks.append(AlertBoard(posters, settings.cluster, metrics, leads=leads, now=now, random=random))
        if cloud_events.urls:
            posters = [Poster(url, cloud_events) for url in cloud_events.urls]
            self._sinks.append(EventQueue(posters, settings.cluster, metrics, leads=leads, random=random))

    def begin(self, cache: InventoryCache) -> None:
        """This process leads from now on: takes the rules that there are, and follows them."""
        if not self._sinks:
            return
        self._notices.begin(cache.inventory.rules.values())
        cache.subscribe(self._observe)

    def _observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        if isinstance(old, DeviceTaintRule) or isinstance(new, DeviceTaintRule):
            self._notices.observe(
                old if isinstance(old, DeviceTaintRule) else None, new if isinstance(new, DeviceTaintRule) else None
            )

    async def run(self) -> NoReturn:
        """Finds notices and has them sent, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for sink in self._sinks:
                group.create_task(sink.run())
            group.create_task(self._look_for_ever())
        raise AssertionError("sinks do not return")

    async def finish(self) -> None:
        """Gives `run` a moment to send what waits. What an Alertmanager lacks, the next leader sends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FINISH_SECONDS):
                while any(sink.unsent for sink in self._sinks):  # noqa: ASYNC110 -- no event announces it
                    await asyncio.sleep(_FINISH_LOOK_SECONDS)

    async def _look_for_ever(self) -> NoReturn:
        while True:
            for notice in self._notices.take(self._now()):
                for sink in self._sinks:
                    sink.put(notice)
            await asyncio.sleep(_LOOK_SECONDS)
