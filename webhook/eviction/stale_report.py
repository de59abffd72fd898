"""Reports rules and taints that look forgotten: metrics every minute, a log line every hour."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NoReturn

from webhook.eviction.expiry import Thresholds, in_use, stale_steps
from webhook.flowcontrol.timeslice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from webhook.eviction.dependencies import Dependencies
    from webhook.eviction.expiry import StaleTaints

log = logging.getLogger(__name__)

_NAMED_MOST = 20
_LOOK_SECONDS = 60.0


class StaleReporter:
    """Remembers since when the devices of each rule have been unused; a restart loses that."""

    def __init__(self, deps: Dependencies, thresholds: Thresholds = Thresholds()) -> None:  # noqa: B008 -- frozen
        self._deps = deps
        self._thresholds = thresholds
        self._idle_since: dict[str, datetime] = {}
        self._reported_at: float | None = None

    def look(self) -> None:
        """Updates the metrics, and logs a report if the last one is old enough."""
        for _ in self._steps():
            pass

    def _steps(self) -> Iterator[None]:
        """The same in steps that are short, however many rules and devices there are."""
        deps = self._deps
        now = deps.clock.now()
        idle_since = {}
        for rule in tuple(deps.inventory.rules.values()):
            if not in_use(deps.inventory, rule):
                idle_since[rule.meta.uid] = self._idle_since.get(rule.meta.uid, now)
            yield
        self._idle_since = idle_since
        found = yield from stale_steps(deps.inventory, idle_since, now, self._thresholds)
        self._report(found)

    def _report(self, found: StaleTaints) -> None:
        deps = self._deps
        counts = {name: len(names) for name, names in found._asdict().items()}
        deps.metrics.set_forgotten(counts)
        seconds = deps.clock.seconds()
        if self._reported_at is not None and seconds - self._reported_at < deps.settings.report_seconds:
            return
        self._reported_at = seconds
        if any(counts.values()):
            log.warning(
                "taints that look forgotten",
                extra={
                    "rulesWithoutDevices": list(found.rules_without_devices[:_NAMED_MOST]),
                    "idleRules": list(found.idle_rules[:_NAMED_MOST]),
                    "oldSliceTaints": ["/".join(parts) for parts in found.old_slice_taints[:_NAMED_MOST]],
                    **counts,
                },
            )

    async def run(self) -> NoReturn:
        """Looks every minute until it is cancelled, and yields to other tasks in between."""
        timeslice = TimeSlice()
        while True:
            timeslice.begin()
            for _ in self._steps():
                await timeslice.pause()
            await asyncio.sleep(_LOOK_SECONDS)
