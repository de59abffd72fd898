"""The instruments, in a registry of their own. Every label's values form a closed set, fixed when the process starts.

Names follow the ecosystem's habits: a prefix of the product, base units, `_total`, `_seconds`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from webhook.telemetry.reviews import OTHER, PREFIX, PolicyMetrics, ReviewMetrics

# Otherwise each counter and histogram has a second series with its creation time, which we do not use.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no types

SHED_REASONS: Final = ("deadline", "crowded", "oversize")
UNJUDGED_REASONS: Final = ("fault", "deadline", "crowded")
_NEVER_REFUSED_UNJUDGED: Final = frozenset({"resourceslices"})

_LAG_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class HandshakeFailure(StrEnum):
    """Why a TLS handshake failed, as this end sees it."""

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


class _Readiness(Collector):
    """Whether this process should get requests, asked at each scrape."""

    def __init__(self, problems: Callable[[], Iterable[tuple[str, str | None]]]) -> None:
        self._problems = problems

    def collect(self) -> Iterator[Metric]:
        """What a scrape gets."""
        held = {name: problem is None for name, problem in self._problems()}
        yield GaugeMetricFamily(
            f"{PREFIX}_ready", "1 if this process is ready, as /readyz says.", float(all(held.values()))
        )
        checks = GaugeMetricFamily(
            f"{PREFIX}_readiness_check", "1 for each check of /readyz that holds.", labels=["check"]
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
        self._reviews = ReviewMetrics(self._resources)
        self.registry.register(self._reviews)
        self.count_review = self._reviews.count
        """One review answered: path (one of ours), resource, operation, code, seconds."""
        self.policy = PolicyMetrics()
        self.registry.register(self.policy)
        self._add_callers()
        self._add_shed()
        self._add_unjudged()
        self._add_certificates()
        self._add_reflectors()
        self._add_process(version)
        ProcessCollector(registry=self.registry)
        if not serves:
            for instrument in (
                self._reviews,
                self._bad_requests,
                self.reviews_in_flight,
                self._shed,
                self._panics,
                self._turned_down,
                self._softened,
                self._unjudged,
                self.certificate_not_before,
                self.certificate_expiry,
                self.certificate_reload_failures,
                self.certificate_authority_expiry,
                self.certificate_rotations,
                self._handshake_failures,
                self._registered,
            ):
                self.registry.unregister(instrument)

    def _add_callers(self) -> None:
        """What clients send, and who they are."""
        self._bad_requests = Counter(
            f"{PREFIX}_bad_requests",
            "Requests that were no admission review, by HTTP status; 499 means that the client went away.",
            ["code"],
            registry=self.registry,
        )
        self._registered = Gauge(
            f"{PREFIX}_registered",
            "1 if the webhook configuration exists with every entry: API servers call us.",
            ["configuration"],
            registry=self.registry,
        )
        self.reviews_in_flight = Gauge(
            f"{PREFIX}_reviews_in_flight",
            "Reviews being received or decided.",
            registry=self.registry,
        )

    def _add_shed(self) -> None:
        """Reviews that were not judged as they should be."""
        self._shed = Counter(
            f"{PREFIX}_reviews_shed",
            "Reviews refused without being judged: waited past their deadline, too many large ones, or too large.",
            ["reason"],
            registry=self.registry,
        )
        for reason in SHED_REASONS:
            self._shed.labels(reason)
        self._panics = Counter(
            f"{PREFIX}_panics",
            "Reviews that met a fault in this program; /validate refuses with 500, and lets slices pass.",
            ["resource"],
            registry=self.registry,
        )
        for resource in (*self._resources, OTHER):
            # An increase is seen only from a number that was there before.
            self._panics.labels(resource)

    def _add_unjudged(self) -> None:
        """Reviews that passed although they were not judged, or would have been refused."""
        self._unjudged = Counter(
            f"{PREFIX}_reviews_passed_unjudged",
            "Reviews that /validate let through without judging them, since to refuse them would do more harm.",
            ["resource", "reason"],
            registry=self.registry,
        )
        self._turned_down = Counter(
            f"{PREFIX}_reviews_turned_down",
            "Reviews allowed only because a mode of the policy turns refusals into warnings.",
            ["resource"],
            registry=self.registry,
        )
        self._softened = Counter(
            f"{PREFIX}_softened_rules",
            "NoExecute rules stored as NoSchedule with /evict, because the policy softens them; each counts once.",
            registry=self.registry,
        )
        for resource in self._resources:
            self._turned_down.labels(resource)
        for resource in self._resources & _NEVER_REFUSED_UNJUDGED:
            for reason in UNJUDGED_REASONS:
                self._unjudged.labels(resource, reason)

    def _add_certificates(self) -> None:
        """The serving certificate and its CA."""
        self.certificate_expiry = Gauge(
            f"{PREFIX}_certificate_expiry_timestamp_seconds",
            "When the serving certificate ends, in Unix time; 0 while there is none.",
            registry=self.registry,
        )
        self.certificate_not_before = Gauge(
            f"{PREFIX}_certificate_not_before_timestamp_seconds",
            "When the serving certificate began, in Unix time; 0 while there is none.",
            registry=self.registry,
        )
        self.certificate_reload_failures = Counter(
            f"{PREFIX}_certificate_reload_failures",
            "Attempts to load or renew the certificate that failed; the one in use stays.",
            registry=self.registry,
        )
        self.certificate_authority_expiry = Gauge(
            f"{PREFIX}_certificate_authority_expiry_timestamp_seconds",
            "When the CA of self-managed certificates ends, in Unix time; 0 while there is none.",
            registry=self.registry,
        )
        self.certificate_rotations = Counter(
            f"{PREFIX}_certificate_rotations",
            "New certificates in the place of others that this process has taken up: serving ones (leaf) and CAs (ca).",
            ["certificate"],
            registry=self.registry,
        )
        for certificate in ("leaf", "ca"):
            self.certificate_rotations.labels(certificate)

    def _add_reflectors(self) -> None:
        """Lists and watches, by resource."""
        self._reflector_staleness = Gauge(
            f"{PREFIX}_reflector_staleness_seconds",
            "Time since the API server last said something about a resource; a healthy idle watch does in minutes.",
            ["resource"],
            registry=self.registry,
        )
        self._reflector_lists = Counter(
            f"{PREFIX}_reflector_lists",
            "Full lists of a resource: at the start, and when a watch broke off, expired or fell silent.",
            ["resource"],
            registry=self.registry,
        )
        self._reflector_errors = Counter(
            f"{PREFIX}_reflector_errors",
            "Lists and watches of a resource that failed or expired.",
            ["resource"],
            registry=self.registry,
        )

    def _add_process(self, version: str) -> None:
        """Handshakes, the event loop, and what runs."""
        self._handshake_failures = Counter(
            f"{PREFIX}_tls_handshake_failures",
            "Connections to the port for reviews whose TLS handshake failed, by reason.",
            ["reason"],
            registry=self.registry,
        )
        for failure in HandshakeFailure:
            self._handshake_failures.labels(failure.value)
        self.event_loop_lag = Histogram(
            f"{PREFIX}_event_loop_lag_seconds",
            "How much later than asked for the event loop came back, measured four times a second.",
            buckets=_LAG_SECONDS,
            registry=self.registry,
        )
        build = Gauge(
            f"{PREFIX}_build_info",
            "Always 1; the labels say what runs.",
            ["version", "python_version"],
            registry=self.registry,
        )
        build.labels(version, platform.python_version()).set(1)

    def count_bad_request(self, code: int) -> None:
        """One request that was no review. `code` is a status of ours."""
        self._bad_requests.labels(str(code)).inc()

    def set_registered(self, configuration: str, *, registered: bool) -> None:
        """Whether API servers know a webhook configuration, named by its plural."""
        self._registered.labels(configuration).set(registered)

    def count_handshake_failure(self, reason: HandshakeFailure) -> None:
        """One TLS handshake that failed."""
        self._handshake_failures.labels(reason.value).inc()

    def count_panic(self, resource: str) -> None:
        """One review of a resource that met a fault of ours."""
        self._panics.labels(resource if resource in self._resources else OTHER).inc()

    def count_turned_down(self, resource: str) -> None:
        """One review of a resource that was allowed only because the policy turns refusals into warnings."""
        self._turned_down.labels(resource if resource in self._resources else OTHER).inc()

    def count_softened(self) -> None:
        """One NoExecute rule that was softened, and was not before."""
        self._softened.inc()

    def count_unjudged(self, resource: str, reason: str) -> None:
        """One review of a slice that passed unjudged; `reason` is one of UNJUDGED_REASONS."""
        self._unjudged.labels(resource if resource in self._resources else OTHER, reason).inc()

    def count_shed(self, reason: str) -> None:
        """One review refused without being judged; `reason` is one of SHED_REASONS."""
        self._shed.labels(reason).inc()

    def watch_reflector(self, resource: str, staleness_seconds: Callable[[], float]) -> None:
        """Adds the gauges of a resource that is followed; `resource` is a plural of our own choosing."""
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
        """Adds the gauges of readiness; `problems` returns each check with its problem, or None."""
        self.registry.register(_Readiness(problems))

    def watch_requesters(self, not_counted: Callable[[], int]) -> None:
        """Adds a gauge: how many requesters the window does not count ahead, since their rules are never stored."""
        gauge = Gauge(
            f"{PREFIX}_requesters_not_counted_ahead",
            "Requesters whose rules count only once they are stored, because earlier ones never were.",
            registry=self.registry,
        )
        gauge.set_function(not_counted)

    def watch_authors(self, proved: Callable[[], bool]) -> None:
        """Adds a gauge: whether API servers prove the authors of templates."""
        gauge = Gauge(
            f"{PREFIX}_authors_proved",
            "1 if API servers prove the authors of templates; 0 means that all are unknown.",
            registry=self.registry,
        )
        gauge.set_function(lambda: float(proved()))

    def watch_inventory(self, synced: Callable[[], bool], counts: Mapping[str, Callable[[], int]]) -> None:
        """Adds gauges: whether the inventory is complete, and how many objects of each resource it holds."""
        gauge = Gauge(
            f"{PREFIX}_inventory_synced",
            "1 if slices, rules and claims are known as they are; 0 means that impacts are unknown.",
            registry=self.registry,
        )
        gauge.set_function(lambda: float(synced()))
        objects = Gauge(
            f"{PREFIX}_inventory_objects",
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
