"""What the workers count: evictions, writes for patches, reactions and the periodic audit. Labels are closed sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from webhook.telemetry.metrics import Instruments, MetricRow
from webhook.telemetry.reviews import family

# Those of the in-tree controller (E-46), with room for deadlines and holds.
_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240)
_LONG_SECONDS: Final = (*_SECONDS, 600, 3600, 6 * 3600, 24 * 3600)
_FORGOTTEN: Final = ("rules_without_devices", "idle_rules", "old_slice_taints")
_PASS_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120)
_STATES: Final = ("active", "quiet", "unpublished", "waiting", "held_back")
"""Fields of an outcome."""


class InTreeMetrics(Instruments):
    """What the in-tree controller counts, by its names."""

    prefix = "device_taint_eviction_controller"
    pod_deletions = MetricRow(Counter, "Total number of Pods deleted since the start of the controller.")
    pod_deletion_duration_seconds = MetricRow(
        Histogram,
        "Latency, in seconds, between the time when a device taint is due and the Pod's deletion.",
        buckets=_SECONDS,
    )


class EvictionMetrics(Instruments):
    """The instruments of one worker."""

    eviction_mode = MetricRow(Gauge, "Always 1; the label says in which mode this runs.", mode=())
    eviction_requests = MetricRow(
        Counter,
        "Requests to evict or delete a pod, by what became of them.",
        method=("evict", "delete"),
        result=("evicted", "gone", "blocked", "failed"),
    )
    eviction_delay_seconds = MetricRow(
        Histogram, "Time from when a pod was due until it was evicted.", buckets=_LONG_SECONDS
    )
    evictions_cancelled = MetricRow(Counter, "Planned evictions that became needless.")
    eviction_events_dropped = MetricRow(
        Counter, "Events not written because too many waited, or for too long at the end."
    )
    rule_condition_errors = MetricRow(Counter, "Conditions of rules that could not be written.")
    leader = MetricRow(Gauge, "1 while this process leads.")
    forgotten_taints = MetricRow(Gauge, "Rules and taints that look forgotten.", kind=_FORGOTTEN)

    def __init__(self, registry: CollectorRegistry, *, in_tree_names: bool) -> None:
        super().__init__(registry)
        self._in_tree = InTreeMetrics(registry) if in_tree_names else None

    def watch(self, counts: Mapping[str, Callable[[], float]]) -> None:
        """Add gauges that are asked at each scrape, by the end of their name; `counts` come from the worker."""
        for name, count in counts.items():
            self.ask(f"eviction_{name}", f"{name.replace('_', ' ').capitalize()}.", count)

    def watch_waiting(self, causes: Iterable[str], count: Callable[[str], float]) -> None:
        """Add the gauge of pods that are due and wait, by what they wait for; `count` is asked at each scrape."""
        counts = {cause: partial(count, cause) for cause in causes}
        self.ask_each("eviction_pods_waiting", "Pods that are due, by what they wait for.", "why", counts)

    def count_evicted(self, delay_seconds: float) -> None:
        """Count a pod evicted, so long after it was due."""
        seconds = max(delay_seconds, 0.0)
        self.eviction_delay_seconds.observe(seconds)
        if self._in_tree is not None:
            self._in_tree.pod_deletions.inc()
            self._in_tree.pod_deletion_duration_seconds.observe(seconds)

    def set_forgotten(self, counts: Mapping[str, int]) -> None:
        """Set how many there are of each kind."""
        for kind in _FORGOTTEN:
            self.forgotten_taints.labels(kind).set(counts.get(kind, 0))


class PatchMetrics(Instruments):
    """The instruments of one controller."""

    patches = MetricRow(Gauge, "ResourceSlicePatches, by what became of them.", reason=())
    patch_rule_writes = MetricRow(
        Counter,
        "DeviceTaintRules written for patches, for /scope and for reactions, by what became of the request.",
        verb=("create", "update", "delete"),
        result=("done", "refused", "failed"),
    )
    patch_pass_seconds = MetricRow(
        Histogram,
        "Time to match what has changed with all filters, until nothing was left.",
        buckets=_PASS_SECONDS,
    )
    patch_leader = MetricRow(Gauge, "1 while this process leads.")

    def __init__(self, registry: CollectorRegistry, reasons: Iterable[str]) -> None:
        """`reasons` are those of the condition Expanded."""
        super().__init__(registry)
        self._reasons = tuple(reasons)
        for reason in self._reasons:
            self.patches.labels(reason)

    def watch(
        self, pending: Callable[[], float], faults: Callable[[], float], reasons: Callable[[], Mapping[str, int]]
    ) -> None:
        """Ask at each scrape for work that is left, devices that selectors failed on, and patches by reason."""
        self.ask("patch_pending", "Pools and owners of rules that are to be looked at.", pending)
        text = "Devices that filters leave out because a selector failed on them."
        self.ask("patch_selector_faults", text, faults)
        for reason in self._reasons:
            self.patches.labels(reason).set_function(partial(_count_of, reasons, reason))

    def watch_slices(self, pending: Callable[[], float]) -> None:
        """Ask at each scrape, where attributes of patches are written, for slices that do not have them yet."""
        text = "ResourceSlices that are to be written because of attributes or capacity of patches."
        self.ask("patch_slices_pending", text, pending)


def _count_of(reasons: Callable[[], Mapping[str, int]], reason: str) -> float:
    return reasons().get(reason, 0)


class ReactionMetrics(Collector):
    """The outcomes of the last pass; none before the first, as on a process that does not lead."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._refused: list[tuple[tuple[()], int]] = []
        registry.register(self)

    def show(self, outcomes: Iterable[Any], refused: int) -> None:
        """Show the `ReactionOutcome`s of a pass, and how many rules of reactions were refused the last time."""
        self._counts = {(each.name, state): getattr(each, state) for each in outcomes for state in _STATES}
        self._refused = [((), refused)]

    def collect(self) -> Iterator[Metric]:
        """Give a scrape its metrics."""
        text = "Taints that a reaction goes by, by their state."
        yield family(GaugeMetricFamily, "reaction_reasons", text, ["reaction", "state"], self._counts.items())
        text = "Rules of reactions that were refused."
        yield family(GaugeMetricFamily, "reaction_rules_refused", text, [], self._refused)


class AuditMetrics(Instruments):
    """The instruments of one process."""

    audit_interval_seconds = MetricRow(Gauge, "Time from the end of a pass to the next one.")
    audit_findings = MetricRow(
        Gauge,
        "Templates and claims at rest that the policy would refuse or warn of today, as of the last pass.",
        resource=(),
        reason=(),
        rule=(),
    )
    audit_objects = MetricRow(Gauge, "Templates and claims looked at in the last pass.", resource=())
    audit_completed_timestamp_seconds = MetricRow(Gauge, "When the last whole pass ended; 0 if none did.")
    audit_failures = MetricRow(Counter, "Passes that were not finished.")

    def set_found(
        self, counts: Mapping[tuple[str, str, str], int], looked: Mapping[str, int], completed_seconds: float
    ) -> None:
        """Show a whole pass: objects by (resource, reason, rule), objects looked at by resource, and when it ended."""
        self.audit_findings.clear()
        for labels, count in counts.items():
            self.audit_findings.labels(*labels).set(count)
        self.audit_objects.clear()
        for resource, count in looked.items():
            self.audit_objects.labels(resource).set(count)
        self.audit_completed_timestamp_seconds.set(completed_seconds)
