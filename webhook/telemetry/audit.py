"""What the periodic audit found. Labels are closed sets and the names of the policy's own rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

_PREFIX: Final = "device_taint_webhook_audit"


class AuditMetrics:
    """The instruments of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._interval = Gauge(
            f"{_PREFIX}_interval_seconds", "Time from the end of a pass to the next one.", registry=registry
        )
        self._found = Gauge(
            f"{_PREFIX}_findings",
            "Templates and claims at rest that the policy would refuse or warn of today, as of the last pass.",
            ["resource", "reason", "rule"],
            registry=registry,
        )
        self._looked = Gauge(
            f"{_PREFIX}_objects", "Templates and claims looked at in the last pass.", ["resource"], registry=registry
        )
        self._completed = Gauge(
            f"{_PREFIX}_completed_timestamp_seconds",
            "When the last whole pass ended; 0 if none did.",
            registry=registry,
        )
        self._failures = Counter(f"{_PREFIX}_failures", "Passes that were not finished.", registry=registry)

    def set_found(
        self, counts: Mapping[tuple[str, str, str], int], looked: Mapping[str, int], completed_seconds: float
    ) -> None:
        """A whole pass: objects by (resource, reason, rule), objects looked at by resource, and the wall-clock time."""
        self._found.clear()
        for labels, count in counts.items():
            self._found.labels(*labels).set(count)
        self._looked.clear()
        for resource, count in looked.items():
            self._looked.labels(resource).set(count)
        self._completed.set(completed_seconds)

    def set_interval(self, seconds: float) -> None:
        """How long a pass is waited for after the one before."""
        self._interval.set(seconds)

    def count_failure(self) -> None:
        """A pass that the cluster did not let us finish."""
        self._failures.inc()
