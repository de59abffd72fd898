"""What the controller of patches counts. Labels are closed sets."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import CollectorRegistry

_PREFIX: Final = "device_taint_webhook"
_VERBS: Final = ("create", "update", "delete")
_RESULTS: Final = ("done", "refused", "failed")
_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120)


class PatchMetrics:
    """The instruments of one controller."""

    def __init__(self, registry: CollectorRegistry, reasons: Iterable[str]) -> None:
        """`reasons` are those of the condition Expanded."""
        self._registry = registry
        self._reasons = tuple(reasons)
        self._patches = Gauge(
            f"{_PREFIX}_patches", "ResourceSlicePatches, by what became of them.", ["reason"], registry=registry
        )
        for reason in self._reasons:
            self._patches.labels(reason)
        self._writes = Counter(
            f"{_PREFIX}_patch_rule_writes",
            "DeviceTaintRules written for patches, for /scope and for reactions, by what became of the request.",
            ["verb", "result"],
            registry=registry,
        )
        for verb in _VERBS:
            for result in _RESULTS:
                self._writes.labels(verb, result)
        self._pass = Histogram(
            f"{_PREFIX}_patch_pass_seconds",
            "Time to match what has changed with all filters, until nothing was left.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._leader = Gauge(f"{_PREFIX}_patch_leader", "1 while this process leads.", registry=registry)

    def watch(
        self, pending: Callable[[], float], faults: Callable[[], float], reasons: Callable[[], Mapping[str, int]]
    ) -> None:
        """What is asked at each scrape: work that is left, devices that selectors failed on, and patches by reason."""
        Gauge(
            f"{_PREFIX}_patch_pending", "Pools and owners of rules that are to be looked at.", registry=self._registry
        ).set_function(pending)
        Gauge(
            f"{_PREFIX}_patch_selector_faults",
            "Devices that filters leave out because a selector failed on them.",
            registry=self._registry,
        ).set_function(faults)
        for reason in self._reasons:
            self._patches.labels(reason).set_function(partial(_count_of, reasons, reason))

    def watch_slices(self, pending: Callable[[], float]) -> None:
        """What is asked at each scrape where attributes of patches are written: slices that do not have them yet."""
        Gauge(
            f"{_PREFIX}_patch_slices_pending",
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
