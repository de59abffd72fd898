"""Counts and durations of reviews, with collectors of our own: they are updated for every review."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from webhook.telemetry.names import OTHER, PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
_REVIEW_CODES: Final = frozenset({200, 400, 403, 422, 429, 500, 504})

# From half a millisecond, which most reviews stay below, to the 30 s that an API server waits at most.
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _Durations:
    """A histogram of the answers of one path; `counts` has one more place than there are bounds."""

    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(_SECONDS) + 1)
        self.total_seconds = 0.0


class _Tally:
    """The number of answers with one set of labels, and the histogram of their durations."""

    __slots__ = ("count", "durations", "labels")

    def __init__(self, labels: tuple[str, str, str, str], durations: _Durations) -> None:
        self.labels = labels
        self.durations = durations
        self.count = 0


class ReviewMetrics(Collector):
    """Reviews by label, with their durations, counted in plain integers.

    The library's own instruments take a lock for each number; with one loop in one thread that is a fiftieth of what
    a small review costs, for nothing.
    """

    def __init__(self, resources: frozenset[str]) -> None:
        self._resources = resources
        self._tallies: dict[tuple[str, str, str, int], _Tally] = {}
        self._durations: dict[str, _Durations] = {}

    def count(self, path: str, resource: str, operation: str, code: int, seconds: float) -> None:
        """One review answered. `path` is one of ours; resource and operation come from outside."""
        tally = self._tallies.get((path, resource, operation, code)) or self._tally_for(path, resource, operation, code)
        tally.count += 1
        durations = tally.durations
        durations.counts[bisect_left(_SECONDS, seconds)] += 1
        durations.total_seconds += seconds

    def _tally_for(self, path: str, resource: str, operation: str, code: int) -> _Tally:
        """The tally for these labels or for `other`; unknown values share one tally, since there is no end of them."""
        resource = resource if resource in self._resources else OTHER
        operation = operation if operation in _OPERATIONS else OTHER
        code = code if code in _REVIEW_CODES else 0
        tally = self._tallies.get((path, resource, operation, code))
        if tally is None:
            durations = self._durations.setdefault(path, _Durations())
            tally = _Tally((path, resource, operation, str(code) if code else OTHER), durations)
            self._tallies[path, resource, operation, code] = tally
        return tally

    def collect(self) -> Iterator[Metric]:
        """What a scrape gets."""
        reviews = CounterMetricFamily(
            f"{PREFIX}_reviews",
            "Admission reviews answered, by the code in the answer.",
            labels=["path", "resource", "operation", "code"],
        )
        for tally in self._tallies.values():
            reviews.add_metric(tally.labels, tally.count)
        seconds = HistogramMetricFamily(
            f"{PREFIX}_review_duration_seconds",
            "Time from the end of a review's header to its answer.",
            labels=["path"],
        )
        for path, durations in self._durations.items():
            bounds = [*map(str, _SECONDS), "+Inf"]
            seconds.add_metric(
                [path], list(zip(bounds, accumulate(durations.counts), strict=True)), durations.total_seconds
            )
        yield reviews
        yield seconds
