"""What the eviction worker counts. Labels are closed sets; mode replacement adds the in-tree controller's names."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import CollectorRegistry

_PREFIX: Final = "device_taint_webhook"
_IN_TREE: Final = "device_taint_eviction_controller"
_RESULTS: Final = ("evicted", "gone", "blocked", "failed")
# Those of the in-tree controller (E-46), with room for deadlines and holds.
_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240)
_LONG_SECONDS: Final = (*_SECONDS, 600, 3600, 6 * 3600, 24 * 3600)
_FORGOTTEN: Final = ("rules_without_devices", "idle_rules", "old_slice_taints")


class EvictionMetrics:
    """The instruments of one worker."""

    def __init__(self, registry: CollectorRegistry, *, in_tree_names: bool) -> None:
        self._mode = Gauge(
            f"{_PREFIX}_eviction_mode", "Always 1; the label says in which mode this runs.", ["mode"], registry=registry
        )
        self._requests = Counter(
            f"{_PREFIX}_eviction_requests",
            "Requests to evict or delete a pod, by what became of them.",
            ["method", "result"],
            registry=registry,
        )
        for method in ("evict", "delete"):
            for result in _RESULTS:
                self._requests.labels(method, result)
        self._delay = Histogram(
            f"{_PREFIX}_eviction_delay_seconds",
            "Time from when a pod was due until it was evicted.",
            buckets=_LONG_SECONDS,
            registry=registry,
        )
        self._cancelled = Counter(
            f"{_PREFIX}_evictions_cancelled", "Planned evictions that became needless.", registry=registry
        )
        self._notes = Counter(
            f"{_PREFIX}_eviction_events_dropped",
            "Events not written because too many waited, or for too long at the end.",
            registry=registry,
        )
        self._condition_errors = Counter(
            f"{_PREFIX}_rule_condition_errors", "Conditions of rules that could not be written.", registry=registry
        )
        self._leader = Gauge(f"{_PREFIX}_leader", "1 while this process leads.", registry=registry)
        self._forgotten = Gauge(
            f"{_PREFIX}_forgotten_taints", "Rules and taints that look forgotten.", ["kind"], registry=registry
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
            gauge = Gauge(f"{_PREFIX}_eviction_{name}", help_text, registry=self._registry)
            gauge.set_function(count)

    def watch_waiting(self, causes: Iterable[str], count: Callable[[str], float]) -> None:
        """The gauge of pods that are due and wait, by what they wait for; `count` is asked at each scrape."""
        gauge = Gauge(
            f"{_PREFIX}_eviction_pods_waiting",
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
