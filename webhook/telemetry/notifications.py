"""Notices sent to Alertmanager and to receivers of CloudEvents."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

log = logging.getLogger(__name__)

_PREFIX: Final = "device_taint_webhook_notifications"
_SINKS: Final = ("alertmanager", "cloudevents")


class NotificationMetrics:
    """The instruments of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._sent = Counter(f"{_PREFIX}_sent", "Alerts and events that receivers took.", ["sink"], registry=registry)
        self._failures = Counter(
            f"{_PREFIX}_failures",
            "Requests to receivers that failed; they are tried again.",
            ["sink"],
            registry=registry,
        )
        self._dropped = Counter(f"{_PREFIX}_dropped", "Alerts and events that were lost.", ["sink"], registry=registry)
        self._waiting = Gauge(
            f"{_PREFIX}_waiting", "Alerts and events that not each receiver has.", ["sink"], registry=registry
        )
        for sink in _SINKS:
            for each in (self._sent, self._failures, self._dropped, self._waiting):
                each.labels(sink)
        self._dropped_once: set[tuple[str, str]] = set()

    def count_sent(self, sink: str, count: int) -> None:
        """Alerts or events in a request that succeeded."""
        self._sent.labels(sink).inc(count)

    def count_failure(self, sink: str) -> None:
        """A request that failed."""
        self._failures.labels(sink).inc()

    def drop(self, sink: str, why: str, count: int = 1) -> None:
        """Counts what is lost; the first time for each reason is logged."""
        self._dropped.labels(sink).inc(count)
        if (sink, why) not in self._dropped_once:
            self._dropped_once.add((sink, why))
            log.warning("notifications dropped", extra={"sink": sink, "reason": why})

    def watch_waiting(self, sink: str, count: Callable[[], float]) -> None:
        """Asked at each scrape."""
        self._waiting.labels(sink).set_function(count)
