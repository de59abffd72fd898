"""What the workers count: evictions, writes for patches, reactions and the periodic audit. Labels are closed sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from webhook.telemetry.reviews import PREFIX

_IN_TREE: Final = "device_taint_eviction_controller"
_RESULTS: Final = ("evicted", "gone", "blocked", "failed")
# Those of the in-tree controller (E-46), with room for deadlines and holds.
_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240)
_LONG_SECONDS: Final = (*_SECONDS, 600, 3600, 6 * 3600, 24 * 3600)
_FORGOTTEN: Final = ("rules_without_devices", "idle_rules", "old_slice_taints")
_VERBS: Final = ("create", "update", "delete")
_WRITE_RESULTS: Final = ("done", "refused", "failed")
_PASS_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120)
_STATES: Final = ("active", "quiet", "unpublished", "waiting", "held_back")
"""Fields of an outcome."""


class EvictionMetrics:
    """The instruments of one worker."""

    def __init__(self, registry: CollectorRegistry, *, in_tree_names: bool) -> None:
        self._mode = Gauge(
            f"{PREFIX}_eviction_mode", "Always 1; the label says in which mode this runs.", ["mode"], registry=registry
        )
        self._requests = Counter(
            f"{PREFIX}_eviction_requests",
            "Requests to evict or delete a pod, by what became of them.",
            ["method", "result"],
            registry=registry,
        )
        for method in ("evict", "delete"):
            for result in _RESULTS:
                self._requests.labels(method, result)
        self._delay = Histogram(
            f"{PREFIX}_eviction_delay_seconds",
            "Time from when a pod was due until it was evicted.",
            buckets=_LONG_SECONDS,
            registry=registry,
        )
        self._cancelled = Counter(
            f"{PREFIX}_evictions_cancelled", "Planned evictions that became needless.", registry=registry
        )
        self._notes = Counter(
            f"{PREFIX}_eviction_events_dropped",
            "Events not written because too many waited, or for too long at the end.",
            registry=registry,
        )
        self._condition_errors = Counter(
            f"{PREFIX}_rule_condition_errors", "Conditions of rules that could not be written.", registry=registry
        )
        self._leader = Gauge(f"{PREFIX}_leader", "1 while this process leads.", registry=registry)
        self._forgotten = Gauge(
            f"{PREFIX}_forgotten_taints", "Rules and taints that look forgotten.", ["kind"], registry=registry
        )
        for kind in _FORGOTTEN:
            self._forgotten.labels(kind)
        self._registry = registry
        self._deletions: Counter | None = None
        self._deletion_seconds: Histogram | None = None
        if in_tree_names:
            self._add_in_tree(registry)

    def _add_in_tree(self, registry: CollectorRegistry) -> None:
        """What the in-tree controller counts, by its names."""
        self._deletions = Counter(
            f"{_IN_TREE}_pod_deletions",
            "Total number of Pods deleted since the start of the controller.",
            registry=registry,
        )
        self._deletion_seconds = Histogram(
            f"{_IN_TREE}_pod_deletion_duration_seconds",
            "Latency, in seconds, between the time when a device taint is due and the Pod's deletion.",
            buckets=_SECONDS,
            registry=registry,
        )

    def watch(self, counts: Mapping[str, Callable[[], float]]) -> None:
        """Gauges that are asked at each scrape, by the end of their name; `counts` come from the worker."""
        for name, count in counts.items():
            help_text = f"{name.replace('_', ' ').capitalize()}."
            gauge = Gauge(f"{PREFIX}_eviction_{name}", help_text, registry=self._registry)
            gauge.set_function(count)

    def watch_waiting(self, causes: Iterable[str], count: Callable[[str], float]) -> None:
        """The gauge of pods that are due and wait, by what they wait for; `count` is asked at each scrape."""
        gauge = Gauge(
            f"{PREFIX}_eviction_pods_waiting",
            "Pods that are due, by what they wait for.",
            ["why"],
            registry=self._registry,
        )
        for cause in causes:
            gauge.labels(cause).set_function(partial(count, cause))

    def count_request(self, method: str, result: str) -> None:
        """One request answered, or given up."""
        self._requests.labels(method, result).inc()

    def count_evicted(self, delay_seconds: float) -> None:
        """One pod evicted, so long after it was due."""
        self._delay.observe(max(delay_seconds, 0.0))
        if self._deletions is not None and self._deletion_seconds is not None:
            self._deletions.inc()
            self._deletion_seconds.observe(max(delay_seconds, 0.0))

    def count_cancelled(self) -> None:
        """One plan dropped although its pod is still there."""
        self._cancelled.inc()

    def count_dropped_event(self) -> None:
        """One Event that was dropped."""
        self._notes.inc()

    def count_condition_error(self) -> None:
        """One condition not written."""
        self._condition_errors.inc()

    def set_mode(self, mode: str) -> None:
        """The mode of this process, which lasts as long as it does."""
        self._mode.labels(mode).set(1)

    def set_leader(self, *, leads: bool) -> None:
        """Whether this process leads."""
        self._leader.set(leads)

    def set_forgotten(self, counts: Mapping[str, int]) -> None:
        """How many there are of each kind."""
        for kind in _FORGOTTEN:
            self._forgotten.labels(kind).set(counts.get(kind, 0))


class PatchMetrics:
    """The instruments of one controller."""

    def __init__(self, registry: CollectorRegistry, reasons: Iterable[str]) -> None:
        """`reasons` are those of the condition Expanded."""
        self._registry = registry
        self._reasons = tuple(reasons)
        self._patches = Gauge(
            f"{PREFIX}_patches", "ResourceSlicePatches, by what became of them.", ["reason"], registry=registry
        )
        for reason in self._reasons:
            self._patches.labels(reason)
        self._writes = Counter(
            f"{PREFIX}_patch_rule_writes",
            "DeviceTaintRules written for patches, for /scope and for reactions, by what became of the request.",
            ["verb", "result"],
            registry=registry,
        )
        for verb in _VERBS:
            for result in _WRITE_RESULTS:
                self._writes.labels(verb, result)
        self._pass = Histogram(
            f"{PREFIX}_patch_pass_seconds",
            "Time to match what has changed with all filters, until nothing was left.",
            buckets=_PASS_SECONDS,
            registry=registry,
        )
        self._leader = Gauge(f"{PREFIX}_patch_leader", "1 while this process leads.", registry=registry)

    def watch(
        self, pending: Callable[[], float], faults: Callable[[], float], reasons: Callable[[], Mapping[str, int]]
    ) -> None:
        """What is asked at each scrape: work that is left, devices that selectors failed on, and patches by reason."""
        Gauge(
            f"{PREFIX}_patch_pending", "Pools and owners of rules that are to be looked at.", registry=self._registry
        ).set_function(pending)
        Gauge(
            f"{PREFIX}_patch_selector_faults",
            "Devices that filters leave out because a selector failed on them.",
            registry=self._registry,
        ).set_function(faults)
        for reason in self._reasons:
            self._patches.labels(reason).set_function(partial(_count_of, reasons, reason))

    def watch_slices(self, pending: Callable[[], float]) -> None:
        """What is asked at each scrape where attributes of patches are written: slices that do not have them yet."""
        Gauge(
            f"{PREFIX}_patch_slices_pending",
            "ResourceSlices that are to be written because of attributes or capacity of patches.",
            registry=self._registry,
        ).set_function(pending)

    def count_write(self, verb: str, result: str) -> None:
        """One request to write a rule answered."""
        self._writes.labels(verb, result).inc()

    def observe_pass(self, seconds: float) -> None:
        """The index had something to do, and has nothing left."""
        self._pass.observe(seconds)

    def set_leader(self, *, leads: bool) -> None:
        """Whether this process leads."""
        self._leader.set(leads)


def _count_of(reasons: Callable[[], Mapping[str, int]], reason: str) -> float:
    return reasons().get(reason, 0)


class ReactionFigures(Protocol):
    """One reaction after a pass: `patches.reactions.ReactionOutcome`."""

    @property
    def name(self) -> str:
        """Of the reaction."""


class ReactionMetrics(Collector):
    """The outcomes of the last pass; none before the first, as on a process that does not lead."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._outcomes: Sequence[ReactionFigures] = ()
        self._refused: int | None = None
        registry.register(self)

    def show(self, outcomes: Sequence[ReactionFigures], refused: int) -> None:
        """The outcomes of a pass, and how many rules of reactions were refused the last time."""
        self._outcomes = outcomes
        self._refused = refused

    def collect(self) -> Iterator[Metric]:
        """What a scrape gets."""
        reasons = GaugeMetricFamily(
            f"{PREFIX}_reaction_reasons",
            "Taints that a reaction goes by, by their state.",
            labels=["reaction", "state"],
        )
        refused = GaugeMetricFamily(f"{PREFIX}_reaction_rules_refused", "Rules of reactions that were refused.")
        for each in self._outcomes:
            for state in _STATES:
                reasons.add_metric([each.name, state], getattr(each, state))
        if self._refused is not None:
            refused.add_metric([], self._refused)
        yield from (reasons, refused)


class AuditMetrics:
    """The instruments of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._interval = Gauge(
            f"{PREFIX}_audit_interval_seconds", "Time from the end of a pass to the next one.", registry=registry
        )
        self._found = Gauge(
            f"{PREFIX}_audit_findings",
            "Templates and claims at rest that the policy would refuse or warn of today, as of the last pass.",
            ["resource", "reason", "rule"],
            registry=registry,
        )
        self._looked = Gauge(
            f"{PREFIX}_audit_objects",
            "Templates and claims looked at in the last pass.",
            ["resource"],
            registry=registry,
        )
        self._completed = Gauge(
            f"{PREFIX}_audit_completed_timestamp_seconds",
            "When the last whole pass ended; 0 if none did.",
            registry=registry,
        )
        self._failures = Counter(f"{PREFIX}_audit_failures", "Passes that were not finished.", registry=registry)

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
