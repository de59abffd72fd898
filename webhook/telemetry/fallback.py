"""What the API servers' own admission policies are like beside the policy. Labels are closed sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge

from webhook.telemetry.names import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client import CollectorRegistry


class FallbackMetrics:
    """The instruments of one process. Series come with the first look, so only a leader has them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._objects = Gauge(
            f"{PREFIX}_fallback_objects",
            "Admission policies and bindings of the fallback, by how they compare with the policy.",
            ["state"],
            registry=registry,
        )
        self._parts = Gauge(
            f"{PREFIX}_fallback_parts",
            "Rules and other parts of the policy, by how much of them API servers enforce by themselves.",
            ["coverage"],
            registry=registry,
        )
        self._writes = Counter(
            f"{PREFIX}_fallback_writes",
            "Requests that write admission policies.",
            ["verb", "result"],
            registry=registry,
        )
        self._reverts = Counter(
            f"{PREFIX}_fallback_reverts",
            "Admission policies that were changed by hand and put back.",
            registry=registry,
        )
        self._problem = Gauge(
            f"{PREFIX}_fallback_problem",
            "1 while the fallback cannot be compared or written.",
            registry=registry,
        )

    def show(self, states: Mapping[str, int], coverages: Mapping[str, int]) -> None:
        """The result of a comparison: objects by state, parts by coverage."""
        for state, count in states.items():
            self._objects.labels(state).set(count)
        for coverage, count in coverages.items():
            self._parts.labels(coverage).set(count)

    def set_problem(self, *, exists: bool) -> None:
        """Whether anything keeps the leader from comparing or writing."""
        self._problem.set(int(exists))

    def count_write(self, verb: str, result: str) -> None:
        """`apply` or `delete`; `done` or `failed`."""
        self._writes.labels(verb, result).inc()

    def count_reverts(self, reverted: int) -> None:
        """Objects that were put back."""
        self._reverts.inc(reverted)

    def start(self, states: Iterable[str]) -> None:
        """Shows every state as 0, so that a change is one."""
        for state in states:
            self._objects.labels(state).set(0)
