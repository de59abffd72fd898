"""The whole report about forgotten rules and taints at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from webhook.eviction.expiry import StaleReporter, StaleTaints, stale_steps
from webhook.inventory.state import Inventory


def find_stale(inventory: Inventory, idle_since: Mapping[str, datetime], now: datetime) -> StaleTaints:
    """What `stale_steps` returns, without a pause."""
    steps = stale_steps(inventory, idle_since, now)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: StaleTaints = end.value
            return found


def look(reporter: StaleReporter) -> None:
    """One look, without a pause."""
    for _ in reporter._steps():
        pass
