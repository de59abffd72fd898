"""What reviews came to: answers and their durations, findings, rules that matched, and the policies in use."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

PREFIX: Final = "device_taint_webhook"
OTHER: Final = "other"
WOULD_DENY: Final = "would_deny"
_OWN_FINDINGS: Final = ("impact", "documented", "field", "unknownAuthor", "notJudged", "requestedBy")
"""Names of findings that are no rules of a policy; admission gives them."""
_OWN_FINDING: Final = re.compile(rf"{'|'.join(_OWN_FINDINGS)}|break-glass|{OTHER}|DT[0-9]{{3}}")
_FINDINGS_FROM_ZERO: Final = (
    *((name, severity) for name in _OWN_FINDINGS for severity in ("deny", WOULD_DENY)),
    ("break-glass", "warn"),
)
"""Prometheus sees an increase only of a number that was there before."""
_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
_REVIEW_CODES: Final = frozenset({200, 400, 403, 413, 422, 429, 500, 504})
# From half a millisecond, which most reviews stay below, to the 30 s that an API server waits at most.
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def _is_own(name: str) -> bool:
    return _OWN_FINDING.fullmatch(name) is not None


class PolicyMetrics(Collector):
    """What the policy's rules came to, and all other findings.

    Labels are the names of the rules of the policies in use, names and codes of our own, and no others.
    """

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str], int] = dict.fromkeys(_FINDINGS_FROM_ZERO, 0)
        self._hits: dict[tuple[str, str], int] = {}
        self._differences: dict[tuple[str, str], int] = {}
        self._rules: frozenset[str] = frozenset()
        self._candidate_rules: frozenset[str] = frozenset()
        self.load_success = False
        self.candidate_load_success: bool | None = None
        self.hash = ""
        """Of the policy in use; empty before the first one was looked at."""
        self.mode = ""
        """Of that policy."""
        self.paused_until = 0.0
        """Until when that policy pauses evictions, in Unix time; 0 if it does not."""
        self.exceptions: dict[str, float] = {}
        """When each exception ends, in Unix time."""

    def use(self, rules: Iterable[str], candidate_rules: Iterable[str]) -> None:
        """Count these rules from now on, and forget what was counted for others."""
        self._rules = frozenset(rules)
        self._candidate_rules = self._rules | frozenset(candidate_rules)
        self._hits = {key: count for key, count in self._hits.items() if key[0] in self._rules}
        self._findings = {
            key: count for key, count in self._findings.items() if key[0] in self._rules or _is_own(key[0])
        }
        self._differences = {key: count for key, count in self._differences.items() if key[0] in self._candidate_rules}

    def count(self, hits: Iterable[tuple[str, str]]) -> None:
        """Count rules that matched, each with what followed."""
        counts = self._hits
        for hit in hits:
            if hit in counts:
                counts[hit] += 1
            elif hit[0] in self._rules:
                counts[hit] = 1

    def count_finding(self, name: str, severity: str) -> None:
        """Count a finding by its name, and how much it weighs: deny, would_deny, warn or audit."""
        name = name if name in self._rules or _is_own(name) else OTHER
        self._findings[name, severity] = self._findings.get((name, severity), 0) + 1

    def count_difference(self, rule: str, change: str) -> None:
        """Count a request that the candidate policy judges differently."""
        if rule in self._candidate_rules:
            self._differences[rule, change] = self._differences.get((rule, change), 0) + 1

    def collect(self) -> Iterator[Metric]:
        """Give a scrape its metrics."""
        text = "Requests and tolerations that a rule matched, by the rule's action, whatever the mode makes of it."
        yield family(CounterMetricFamily, "policy_decisions", text, ["rule", "action"], self._hits.items())
        text = "Findings in reviews, by rule or code; would_deny is a refusal that the policy turns into a warning."
        yield family(CounterMetricFamily, "findings", text, ["rule", "severity"], self._findings.items())
        text = "Requests and tolerations that the candidate policy judges differently."
        name = "policy_candidate_differences"
        yield family(CounterMetricFamily, name, text, ["rule", "change"], self._differences.items())
        yield from self._document_metrics()

    def _document_metrics(self) -> Iterator[Metric]:
        """Give those about the document itself."""
        text = "1 if the policy last written is the one in use; 0 until it was read for the first time."
        yield GaugeMetricFamily(f"{PREFIX}_policy_load_success", text, self.load_success)
        if self.candidate_load_success is not None:
            text = "1 if the candidate policy last written is the one that is tried."
            yield GaugeMetricFamily(f"{PREFIX}_policy_candidate_load_success", text, self.candidate_load_success)
        text = "Always 1; the hash says which policy is in use."
        yield family(GaugeMetricFamily, "policy_info", text, ["hash"], [((self.hash,), 1)] if self.hash else [])
        text = "Always 1; the mode of the policy in use."
        yield family(GaugeMetricFamily, "policy_mode", text, ["mode"], [((self.mode,), 1)] if self.mode else [])
        text = "When the policy's pause of evictions ends, in Unix time; 0 without one."
        yield GaugeMetricFamily(f"{PREFIX}_policy_pause_expiry_timestamp_seconds", text, self.paused_until)
        text = "When an exception of the policy ends, in Unix time."
        name = "policy_exception_expiry_timestamp_seconds"
        ends = [((exception,), seconds) for exception, seconds in self.exceptions.items()]
        yield family(GaugeMetricFamily, name, text, ["exception"], ends)


def family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    text: str,
    labels: Sequence[str],
    samples: Iterable[tuple[Sequence[str], float]],
) -> Metric:
    """Return the samples of a metric for one scrape, each with the values of its labels."""
    made = kind(f"{PREFIX}_{name}", text, labels=labels)
    for values, sample in samples:
        made.add_metric(values, sample)
    return made


@dataclass(slots=True)
class _Durations:
    """A histogram of the answers of one path; `counts` has one more place than there are bounds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(_SECONDS) + 1))
    total_seconds: float = 0.0


@dataclass(slots=True)
class _Tally:
    """The number of answers with one set of labels, and the histogram of their durations."""

    labels: tuple[str, str, str, str]
    durations: _Durations
    count: int = 0


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
        """Count a review that was answered. `path` is one of ours; resource and operation come from outside."""
        tally = self._tallies.get((path, resource, operation, code)) or self._tally_for(path, resource, operation, code)
        tally.count += 1
        durations = tally.durations
        durations.counts[bisect_left(_SECONDS, seconds)] += 1
        durations.total_seconds += seconds

    def _tally_for(self, path: str, resource: str, operation: str, code: int) -> _Tally:
        """Return the tally for these labels; unknown values share one as `other`, since there is no end of them."""
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
        """Give a scrape its metrics."""
        text = "Admission reviews answered, by the code in the answer."
        counts = [(tally.labels, tally.count) for tally in self._tallies.values()]
        yield family(CounterMetricFamily, "reviews", text, ["path", "resource", "operation", "code"], counts)
        text = "Time from the end of a review's header to its answer."
        seconds = HistogramMetricFamily(f"{PREFIX}_review_duration_seconds", text, labels=["path"])
        bounds = [*map(str, _SECONDS), "+Inf"]
        for path, durations in self._durations.items():
            buckets = [*zip(bounds, accumulate(durations.counts), strict=True)]
            seconds.add_metric([path], buckets, durations.total_seconds)
        yield seconds
