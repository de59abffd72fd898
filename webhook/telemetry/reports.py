"""What the worker writes as OpenReports. Labels are closed sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

_PREFIX: Final = "device_taint_webhook_reports"
_KINDS: Final = ("Report", "ClusterReport")
_ACTIONS: Final = ("written", "skipped", "deleted", "failed")


class ReportMetrics:
    """The instruments of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._served = Gauge(
            f"{_PREFIX}_served", "1 if the cluster has OpenReports, as of the last pass.", registry=registry
        )
        self._objects = Gauge(f"{_PREFIX}_objects", "Reports that the last pass asks for.", ["kind"], registry=registry)
        self._results = Gauge(f"{_PREFIX}_results", "Results in the reports of the last pass.", registry=registry)
        self._left_out = Gauge(
            f"{_PREFIX}_results_left_out",
            "Results of the last pass beyond the most that are reported.",
            registry=registry,
        )
        self._actions = Counter(
            f"{_PREFIX}_actions",
            "Reports written, skipped (their namespace is being deleted), deleted, or failed to write.",
            ["action"],
            registry=registry,
        )
        for kind in _KINDS:
            self._objects.labels(kind)
        for action in _ACTIONS:
            self._actions.labels(action)

    def set_served(self, *, served: bool) -> None:
        """Whether reports can be written."""
        self._served.set(served)

    def set_wanted(self, objects: Mapping[str, int], results: int, left_out: int) -> None:
        """Objects by kind, results in them, and results beyond the limit."""
        for kind in _KINDS:
            self._objects.labels(kind).set(objects.get(kind, 0))
        self._results.set(results)
        self._left_out.set(left_out)

    def count_action(self, action: str) -> None:
        """One object `written`, `skipped`, `deleted` or `failed`."""
        self._actions.labels(action).inc()
