"""The instruments, in a registry of their own. Every label's values form a closed set, fixed when the process starts.

Names follow the ecosystem's habits: a prefix of the product, base units, `_total`, `_seconds`.
"""

from __future__ import annotations

import platform
import re
from bisect import bisect_left
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client import Metric

# Else each counter and histogram has a second series with the time of its making, which nothing asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no types

_PREFIX: Final = "device_taint_webhook"
_OTHER: Final = "other"
SHED_REASONS: Final = ("deadline", "crowded", "oversize")
UNJUDGED_REASONS: Final = ("fault", "deadline", "crowded")
WOULD_DENY: Final = "would_deny"
_OWN_FINDINGS: Final = ("impact", "documented", "field", "unknownAuthor", "notJudged", "requestedBy")
"""Names of findings that are no rules of a policy; admission gives them."""
_OWN_FINDING: Final = re.compile(rf"{'|'.join(_OWN_FINDINGS)}|break-glass|{_OTHER}|DT[0-9]{{3}}")
_FINDINGS_FROM_ZERO: Final = (
    *((name, severity) for name in _OWN_FINDINGS for severity in ("deny", WOULD_DENY)),
    ("break-glass", "warn"),
)
"""Prometheus sees an increase only of a number that was there before."""
_NEVER_REFUSED_UNJUDGED: Final = frozenset({"resourceslices"})
_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
_REVIEW_CODES: Final = frozenset({200, 400, 403, 422, 429, 500, 504})

# From half a millisecond, which most reviews stay below, to the 30 s that an API server waits at most.
_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_LAG_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class HandshakeFailure(StrEnum):
    """Why a TLS handshake failed, as far as this end can know."""

    CERTIFICATE_REJECTED = "certificate_rejected"
    """The client does not take our certificate: most often `caBundle` is not its CA."""
    NO_CLIENT_CERTIFICATE = "no_client_certificate"
    CLIENT_CERTIFICATE_REJECTED = "client_certificate_rejected"
    NO_CERTIFICATE = "no_certificate"
    """We have none to show yet."""
    NO_COMMON_PROTOCOL = "no_common_protocol"
    """No version of TLS or cipher suite that both ends accept."""
    NOT_TLS = "not_tls"
    TIMEOUT = "timeout"
    CLOSED = "closed"
    """The connection ended first."""
    OTHER = "other"


def _is_own(name: str) -> bool:
    return _OWN_FINDING.fullmatch(name) is not None


class _Durations:
    """A histogram of the answers of one path; `counts` has one more place than there are bounds."""

    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(_SECONDS) + 1)
        self.total_seconds = 0.0


class _Tally:
    """The number of answers under one set of labels, and where their durations go."""

    __slots__ = ("count", "durations", "labels")

    def __init__(self, labels: tuple[str, str, str, str], durations: _Durations) -> None:
        self.labels = labels
        self.durations = durations
        self.count = 0


class _Reviews(Collector):
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
        """The tally for these labels or for `other`; kept under known values only, since strangers are without end."""
        resource = resource if resource in self._resources else _OTHER
        operation = operation if operation in _OPERATIONS else _OTHER
        code = code if code in _REVIEW_CODES else 0
        tally = self._tallies.get((path, resource, operation, code))
        if tally is None:
            durations = self._durations.setdefault(path, _Durations())
            tally = _Tally((path, resource, operation, str(code) if code else _OTHER), durations)
            self._tallies[path, resource, operation, code] = tally
        return tally

    def collect(self) -> Iterator[Metric]:
        """What a scrape gets."""
        reviews = CounterMetricFamily(
            f"{_PREFIX}_reviews",
            "Admission reviews answered, by the code in the answer.",
            labels=["path", "resource", "operation", "code"],
        )
        for tally in self._tallies.values():
            reviews.add_metric(tally.labels, tally.count)
        seconds = HistogramMetricFamily(
            f"{_PREFIX}_review_duration_seconds",
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
        self.exceptions: dict[str, float] = {}
        """When each exception ends, in Unix time."""

    def use(self, rules: Iterable[str], candidate_rules: Iterable[str]) -> None:
        """The rules that may be counted from now on; what was counted for others is forgotten."""
        self._rules = frozenset(rules)
        self._candidate_rules = self._rules | frozenset(candidate_rules)
        self._hits = {key: count for key, count in self._hits.items() if key[0] in self._rules}
        self._findings = {
            key: count for key, count in self._findings.items() if key[0] in self._rules or _is_own(key[0])
        }
        self._differences = {key: count for key, count in self._differences.items() if key[0] in self._candidate_rules}

    def count(self, hits: Iterable[tuple[str, str]]) -> None:
        """Rules that matched, each with what followed."""
        counts = self._hits
        for hit in hits:
            if hit in counts:
                counts[hit] += 1
            elif hit[0] in self._rules:
                counts[hit] = 1

    def count_finding(self, name: str, severity: str) -> None:
        """A finding by its name, and how much it weighs: deny, would_deny, warn or audit."""
        name = name if name in self._rules or _is_own(name) else _OTHER
        self._findings[name, severity] = self._findings.get((name, severity), 0) + 1

    def count_difference(self, rule: str, change: str) -> None:
        """A request of which the candidate policy says something else."""
        if rule in self._candidate_rules:
            self._differences[rule, change] = self._differences.get((rule, change), 0) + 1

    def collect(self) -> Iterator[Metric]:
        """What a scrape gets."""
        decisions = CounterMetricFamily(
            f"{_PREFIX}_policy_decisions",
            "Requests and tolerations that a rule matched, by the rule's action, whatever the mode makes of it.",
            labels=["rule", "action"],
        )
        for (rule, action), count in self._hits.items():
            decisions.add_metric([rule, action], count)
        yield decisions
        findings = CounterMetricFamily(
            f"{_PREFIX}_findings",
            "Findings in reviews, by rule or code; would_deny is a refusal that the policy turns into a warning.",
            labels=["rule", "severity"],
        )
        for (rule, severity), count in self._findings.items():
            findings.add_metric([rule, severity], count)
        yield findings
        differences = CounterMetricFamily(
            f"{_PREFIX}_policy_candidate_differences",
            "Requests and tolerations of which the candidate policy says something else.",
            labels=["rule", "change"],
        )
        for (rule, change), count in self._differences.items():
            differences.add_metric([rule, change], count)
        yield differences
        yield GaugeMetricFamily(
            f"{_PREFIX}_policy_load_success",
            "1 if the policy last written is the one in use; 0 until it was read for the first time.",
            float(self.load_success),
        )
        if self.candidate_load_success is not None:
            yield GaugeMetricFamily(
                f"{_PREFIX}_policy_candidate_load_success",
                "1 if the candidate policy last written is the one that is tried.",
                float(self.candidate_load_success),
            )
        info = GaugeMetricFamily(
            f"{_PREFIX}_policy_info", "Always 1; the hash says which policy is in use.", labels=["hash"]
        )
        if self.hash:
            info.add_metric([self.hash], 1)
        yield info
        expiry = GaugeMetricFamily(
            f"{_PREFIX}_policy_exception_expiry_timestamp_seconds",
            "When an exception of the policy ends, in Unix time.",
            labels=["exception"],
        )
        for exception, seconds in self.exceptions.items():
            expiry.add_metric([exception], seconds)
        yield expiry


class _Readiness(Collector):
    """Whether this process should get requests, asked at each scrape."""

    def __init__(self, problems: Callable[[], Iterable[tuple[str, str | None]]]) -> None:
        self._problems = problems

    def collect(self) -> Iterator[Metric]:
        """What a scrape gets."""
        held = {name: problem is None for name, problem in self._problems()}
        yield GaugeMetricFamily(
            f"{_PREFIX}_ready", "1 if this process is ready, as /readyz says.", float(all(held.values()))
        )
        checks = GaugeMetricFamily(
            f"{_PREFIX}_readiness_check", "1 for each check of /readyz that holds.", labels=["check"]
        )
        for name, holds in held.items():
            checks.add_metric([name], float(holds))
        yield checks


class Metrics:
    """What this process counts.

    `resources` are the plurals that may appear as a label; every other one is counted as `other`, since the value
    comes from outside. What only `serve` has (reviews, a certificate) is left out of `/metrics` unless `serves`: a zero
    there would be an alert.
    """

    def __init__(self, *, version: str, resources: Iterable[str], serves: bool = True) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._resources = frozenset(resources)
        self._reviews = _Reviews(self._resources)
        self.registry.register(self._reviews)
        self.count_review = self._reviews.count
        """One review answered: path (one of ours), resource, operation, code, seconds."""
        self.policy = PolicyMetrics()
        self.registry.register(self.policy)
        self._bad_requests = Counter(
            f"{_PREFIX}_bad_requests",
            "Requests that were no admission review, by HTTP status; 499 means that the client went away.",
            ["code"],
            registry=self.registry,
        )
        self.callers_authenticated = Gauge(
            f"{_PREFIX}_callers_authenticated",
            "1 if clients that send reviews must prove with a certificate that they are API servers.",
            registry=self.registry,
        )
        self.reviews_in_flight = Gauge(
            f"{_PREFIX}_reviews_in_flight",
            "Reviews being received or decided.",
            registry=self.registry,
        )
        self._shed = Counter(
            f"{_PREFIX}_reviews_shed",
            "Reviews refused without being judged: waited past their deadline, too many large ones, or too large.",
            ["reason"],
            registry=self.registry,
        )
        for reason in SHED_REASONS:
            self._shed.labels(reason)
        self._panics = Counter(
            f"{_PREFIX}_panics",
            "Reviews that met a fault in this program; /validate refuses with 500, and lets slices pass.",
            ["resource"],
            registry=self.registry,
        )
        for resource in (*self._resources, _OTHER):
            # An increase is seen only from a number that was there before.
            self._panics.labels(resource)
        self._unjudged = Counter(
            f"{_PREFIX}_reviews_passed_unjudged",
            "Reviews that /validate let through without judging them, since to refuse them would do more harm.",
            ["resource", "reason"],
            registry=self.registry,
        )
        self._turned_down = Counter(
            f"{_PREFIX}_reviews_turned_down",
            "Reviews allowed only because a mode of the policy turns refusals into warnings.",
            ["resource"],
            registry=self.registry,
        )
        for resource in self._resources:
            self._turned_down.labels(resource)
        for resource in self._resources & _NEVER_REFUSED_UNJUDGED:
            for reason in UNJUDGED_REASONS:
                self._unjudged.labels(resource, reason)
        self.certificate_expiry = Gauge(
            f"{_PREFIX}_certificate_expiry_timestamp_seconds",
            "When the serving certificate ends, in Unix time; 0 while there is none.",
            registry=self.registry,
        )
        self.certificate_not_before = Gauge(
            f"{_PREFIX}_certificate_not_before_timestamp_seconds",
            "When the serving certificate began, in Unix time; 0 while there is none.",
            registry=self.registry,
        )
        self.certificate_reload_failures = Counter(
            f"{_PREFIX}_certificate_reload_failures",
            "Attempts to load or renew the certificate that failed; the one in use stays.",
            registry=self.registry,
        )
        self.certificate_authority_expiry = Gauge(
            f"{_PREFIX}_certificate_authority_expiry_timestamp_seconds",
            "When the CA of self-managed certificates ends, in Unix time; 0 while there is none.",
            registry=self.registry,
        )
        self.certificate_rotations = Counter(
            f"{_PREFIX}_certificate_rotations",
            "New certificates in the place of others that this process has taken up: serving ones (leaf) and CAs (ca).",
            ["certificate"],
            registry=self.registry,
        )
        for certificate in ("leaf", "ca"):
            self.certificate_rotations.labels(certificate)
        self._reflector_staleness = Gauge(
            f"{_PREFIX}_reflector_staleness_seconds",
            "Time since the API server last said something about a resource; a healthy idle watch does in minutes.",
            ["resource"],
            registry=self.registry,
        )
        self._reflector_lists = Counter(
            f"{_PREFIX}_reflector_lists",
            "Full lists of a resource: at the start, and when a watch broke off, expired or fell silent.",
            ["resource"],
            registry=self.registry,
        )
        self._reflector_errors = Counter(
            f"{_PREFIX}_reflector_errors",
            "Lists and watches of a resource that failed or expired.",
            ["resource"],
            registry=self.registry,
        )
        self._handshake_failures = Counter(
            f"{_PREFIX}_tls_handshake_failures",
            "Connections to the port for reviews whose TLS handshake failed, by reason.",
            ["reason"],
            registry=self.registry,
        )
        for failure in HandshakeFailure:
            self._handshake_failures.labels(failure.value)
        self.event_loop_lag = Histogram(
            f"{_PREFIX}_event_loop_lag_seconds",
            "How much later than asked for the event loop came back, measured four times a second.",
            buckets=_LAG_SECONDS,
            registry=self.registry,
        )
        build = Gauge(
            f"{_PREFIX}_build_info",
            "Always 1; the labels say what runs.",
            ["version", "python_version"],
            registry=self.registry,
        )
        build.labels(version, platform.python_version()).set(1)
        ProcessCollector(registry=self.registry)
        if not serves:
            for instrument in (
                self._reviews,
                self._bad_requests,
                self.callers_authenticated,
                self.reviews_in_flight,
                self._shed,
                self.panics,
                self.certificate_expiry,
                self.certificate_reload_failures,
                self.certificate_authority_expiry,
                self.certificate_rotations,
                self._handshake_failures,
            ):
                self.registry.unregister(instrument)

    def count_bad_request(self, code: int) -> None:
        """One request that was no review. `code` is a status of ours."""
        self._bad_requests.labels(str(code)).inc()

    def count_handshake_failure(self, reason: HandshakeFailure) -> None:
        """One TLS handshake that failed."""
        self._handshake_failures.labels(reason.value).inc()

    def count_panic(self, resource: str) -> None:
        """One review of a resource that met a fault of ours."""
        self._panics.labels(resource if resource in self._resources else _OTHER).inc()

    def count_turned_down(self, resource: str) -> None:
        """One review of a resource that was allowed only because the policy turns refusals into warnings."""
        self._turned_down.labels(resource if resource in self._resources else _OTHER).inc()

    def count_unjudged(self, resource: str, reason: str) -> None:
        """One review of a slice that passed unjudged; `reason` is one of UNJUDGED_REASONS."""
        self._unjudged.labels(resource if resource in self._resources else _OTHER, reason).inc()

    def count_shed(self, reason: str) -> None:
        """One review refused without being judged; `reason` is one of SHED_REASONS."""
        self._shed.labels(reason).inc()

    def watch_reflector(self, resource: str, staleness_seconds: Callable[[], float]) -> None:
        """From now on tells about a resource that is followed; `resource` is a plural of our own choosing."""
        self._reflector_staleness.labels(resource).set_function(staleness_seconds)
        self._reflector_lists.labels(resource)
        self._reflector_errors.labels(resource)

    def count_list(self, resource: str) -> None:
        """One full list was read."""
        self._reflector_lists.labels(resource).inc()

    def count_reflector_error(self, resource: str) -> None:
        """One list or watch failed or expired."""
        self._reflector_errors.labels(resource).inc()

    def watch_readiness(self, problems: Callable[[], Iterable[tuple[str, str | None]]]) -> None:
        """From now on tells whether this process is ready; `problems` gives each check with what it lacks, or None."""
        self.registry.register(_Readiness(problems))

    def watch_key(self, in_place: Callable[[], bool]) -> None:
        """From now on tells whether the key of our MACs is known and still where the next replica will look for it."""
        gauge = Gauge(
            f"{_PREFIX}_key_loaded",
            "1 if the key that signs authors and codes is known, and its Secret still holds one.",
            registry=self.registry,
        )
        gauge.set_function(lambda: float(in_place()))

    def watch_inventory(self, synced: Callable[[], bool], counts: Mapping[str, Callable[[], int]]) -> None:
        """From now on tells whether the inventory can be trusted, and how many objects of each resource it holds."""
        gauge = Gauge(
            f"{_PREFIX}_inventory_synced",
            "1 if slices, rules and claims are known as they are; 0 means that impacts are unknown.",
            registry=self.registry,
        )
        gauge.set_function(lambda: float(synced()))
        objects = Gauge(
            f"{_PREFIX}_inventory_objects",
            "Objects in the inventory that impacts are worked out from.",
            ["resource"],
            registry=self.registry,
        )
        for resource, count in counts.items():
            objects.labels(resource).set_function(count)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Everything in the text format that an `Accept` header asks for, and that format's content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type
