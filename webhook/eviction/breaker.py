"""Stops acting on taints in slices of a driver that has just tainted a large share of its devices.

A false positive in a driver's health check can taint a whole cluster within seconds. Rules have ceilings and were
judged at admission; taints in slices have neither. Source: policy `breaker`; as node lifecycle's zone states and
NVSentinel's circuit breaker do it.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter

from webhook.eviction.profiles import max_unavailable
from webhook.inventory.evictions import Evictions
from webhook.inventory.pools import ShareUse
from webhook.inventory.state import Inventory
from webhook.policy.model import BreakerSettings, Share

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Driver:
    """The devices of one driver that count: by pool and name, with the monotonic second at which they were tainted.

    Those within the window; once it has tripped, all since then that are tainted still: some may be acknowledged.
    """

    tainted: dict[tuple[str, str], float] = field(default_factory=dict)
    last_at: float = -math.inf
    changed: bool = False
    tripped_at: datetime | None = None
    """By the wall clock, as the policy's acknowledgements."""


class Breaker:
    """Counts newly tainted devices. It trips when it is asked, and resets after a calm time."""

    def __init__(
        self,
        inventory: Inventory,
        evictions: Evictions,
        moment: Callable[[], tuple[datetime, float]],
        settings: Callable[[], BreakerSettings],
    ) -> None:
        """Ask for `moment`, in UTC and in monotonic seconds, and for `settings` at each use."""
        self._inventory = inventory
        self._evictions = evictions
        self._moment = moment
        self._settings = settings
        self._drivers: dict[str, _Driver] = {}
        evictions.on_tainted = self._observe

    # --- what has changed ------------------------------------------------------------------------

    def start(self) -> None:
        """Count what was tainted before this process started, by timeAdded, since each driver was calm last."""
        now, seconds = self._moment()
        added: dict[str, list[tuple[float, str, str]]] = {}
        for (driver, pool), devices in self._evictions.tainted.items():
            for device, taints in devices.items():
                times = [taint.time_added for taint in taints if taint.time_added is not None]
                ages = [max((now - time).total_seconds(), 0.0) for time in times]
                added.setdefault(driver, []).extend([(seconds - age, pool, device) for age in ages])
        for driver, found in added.items():
            self._replay(driver, sorted(found), seconds)
        self.reset_calm()

    def _replay(self, driver: str, found: list[tuple[float, str, str]], seconds: float) -> None:
        """Count these devices, each with the second and the pool, as they were tainted up to this moment."""
        calm, times = self._settings().calm_seconds, [*[at for at, _, _ in found], seconds]
        gap = max(calm, self._settings().window_seconds)
        calm_before = [index + 1 for index in range(len(found)) if times[index + 1] - times[index] >= gap]
        most, left = self._most(driver, self._settings()), 0.0
        for at, devices in groupby(found[max(calm_before, default=0) :], itemgetter(0)):
            known = self._drivers.get(driver)
            if known is not None and known.tripped_at is not None and at - known.last_at >= calm:
                self._reset(driver, "calm")
                left = 0.0
            for _, pool, device in devices:
                self._count(driver, pool, device, at)
                left -= 1
            if left < 0:
                left = self._judge(driver, self._drivers[driver], at, most)

    def _observe(self, driver: str, pool: str, devices: list[str]) -> None:
        _, seconds = self._moment()
        for device in devices:
            self._count(driver, pool, device, seconds)

    def _count(self, driver: str, pool: str, device: str, at: float) -> None:
        known = self._drivers.get(driver)
        if known is None:
            known = self._drivers[driver] = _Driver()
        known.tainted[pool, device] = at
        known.last_at = max(known.last_at, at)
        known.changed = True

    def _calm_in(self, driver: str) -> float:
        _, seconds = self._moment()
        return self._drivers[driver].last_at + self._settings().calm_seconds - seconds

    @property
    def calm_seconds(self) -> float:
        """The time until a driver that has tripped was calm for long enough; infinite if none has."""
        tripped = [driver for driver, known in self._drivers.items() if known.tripped_at is not None]
        return min(map(self._calm_in, tripped), default=math.inf)

    def reset_calm(self) -> None:
        """Reset the breakers of drivers that were calm for long enough."""
        for driver, known in list(self._drivers.items()):
            if known.tripped_at is not None and self._calm_in(driver) <= 0:
                self._reset(driver, "calm")

    def refresh(self) -> None:
        """Note that the policy has changed: it may acknowledge trips, or have another limit."""
        _, seconds = self._moment()
        for driver, known in list(self._drivers.items()):
            known.changed = True
            if known.tripped_at is None:
                continue
            self._judge(driver, known, seconds)
            if self._settings().devices is None:
                self._reset(driver, "switched off")
            elif self._acknowledged(driver, known, known.tripped_at):
                self._reset(driver, "acknowledged")
                self._replay(driver, sorted((at, *device) for device, at in known.tainted.items()), seconds)

    def forget_idle(self) -> None:
        """Drop drivers whose breaker has not tripped, and that tainted no device within the window."""
        _, seconds = self._moment()
        before = seconds - self._settings().window_seconds
        for driver, known in list(self._drivers.items()):
            if known.tripped_at is None and known.last_at <= before:
                del self._drivers[driver]

    def _reset(self, driver: str, why: str) -> None:
        del self._drivers[driver]  # what it has tainted so far does not count any more
        log.info("breaker reset", extra={"driver": driver, "reason": why})

    def _acknowledged(self, driver: str, known: _Driver, tripped_at: datetime) -> bool:
        """Return whether the trip, or some of what was tainted within the window, is acknowledged."""
        until, (now, seconds) = self._settings().acknowledged_of(driver), self._moment()
        tainted_at = [now - timedelta(seconds=seconds - at) for at in known.tainted.values()]
        return until is not None and min([tripped_at, *tainted_at]) <= until

    # --- questions -------------------------------------------------------------------------------

    @property
    def tripped(self) -> frozenset[str]:
        """The drivers whose slice taints are not acted on."""
        for driver, known in self._drivers.items():
            if known.changed:
                known.changed = False
                self._judge(driver, known, self._moment()[1])
        return frozenset(driver for driver, known in self._drivers.items() if known.tripped_at is not None)

    def _most(self, driver: str, settings: BreakerSettings) -> float:
        """Return how many devices a driver may taint; infinite for any number."""
        before = self._moment()[0] - timedelta(seconds=settings.window_seconds)
        most = max_unavailable(settings.devices, self._inventory.pools.counted_devices(driver, before))
        return math.inf if most is None else most

    def _judge(self, driver: str, known: _Driver, moment: float, most: float | None = None) -> float:
        """Look whether the breaker trips; return how many more devices certainly do not trip it.

        `most`: how many it may taint, if that is known already.
        """
        settings, (now, seconds) = self._settings(), self._moment()
        if known.tripped_at is not None:
            pools, found = self._evictions.tainted, known.tainted.items()
            known.tainted = {(pool, name): at for (pool, name), at in found if name in pools.get((driver, pool), ())}
            return math.inf
        known.tainted = {device: at for device, at in known.tainted.items() if moment - at < settings.window_seconds}
        if settings.devices is None:
            return math.inf  # the devices of a large driver are not counted for nothing
        until = settings.acknowledged_of(driver)
        if until is not None:
            known.tainted = {
                device: at for device, at in known.tainted.items() if now - timedelta(seconds=seconds - at) > until
            }
        most, tainted = self._most(driver, settings) if most is None else most, len(known.tainted)
        if tainted > most and isinstance(settings.devices, Share):
            tainted = ShareUse(self._inventory.pools, driver, [pool for pool, _ in known.tainted]).devices
        if tainted <= most:
            return most - tainted
        known.tripped_at = now - timedelta(seconds=seconds - moment)
        log.error(
            "breaker tripped: too many devices were tainted, so taints in slices of this driver evict no pod",
            extra={"driver": driver, "devices": tainted, "most": most},
        )
        return math.inf
