"""The instruments, in a registry of their own. Every label's values form a closed set, fixed when the process starts.

Names follow the ecosystem's habits: a prefix of the product, base units, `_total`, `_seconds`.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import product
from typing import ClassVar, Final, Generic, TypeVar

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

from webhook.telemetry.reviews import OTHER, PREFIX, PolicyMetrics, ReviewMetrics, family

# Otherwise each counter and histogram has a second series with its creation time, which we do not use.
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no types

_LAG_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_I = TypeVar("_I", bound=Counter | Gauge | Histogram)


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


class MetricRow(Generic[_I]):
    """A row of a table of `Instruments`, for one instrument, named in `/metrics` as its attribute is.

    Each label is given with the values that have a sample from the start: an increase is seen only from a number that
    was there before.
    """

    def __init__(
        self,
        kind: Callable[..., _I],
        text: str,
        /,
        *,
        shared: bool = False,
        buckets: Sequence[float] = (),
        **labels: Iterable[str],
    ) -> None:
        """`shared` instruments are not only for `serve`."""
        self.shared = shared
        self._kind = kind
        self._text = text
        self._options = {"buckets": buckets} if buckets else {}
        self._labels = labels

    def __get__(self, instruments: object, _table: type) -> _I:
        """Name the type that the attribute has: each instance keeps the instrument itself there."""
        raise AttributeError

    def make(self, name: str, registry: CollectorRegistry | None) -> _I:
        """Make the instrument; without a registry, what it counts is not exposed."""
        labels = self._labels
        made = self._kind(name, self._text, [*labels], registry=registry, **self._options)
        for values in product(*labels.values()) if labels else ():
            made.labels(*values)
        return made


class Instruments:
    """Instruments in the order of the rows of a subclass, which is the order of `/metrics`."""

    prefix: ClassVar = PREFIX

    def __init__(self, registry: CollectorRegistry, *, shared_only: bool = False) -> None:
        self.registry = registry
        for name, row in vars(type(self)).items():
            if isinstance(row, MetricRow):
                exposed = registry if row.shared or not shared_only else None
                setattr(self, name, row.make(f"{self.prefix}_{name}", exposed))

    def ask(self, name: str, text: str, function: Callable[[], float]) -> None:
        """Add a gauge that is asked at each scrape."""
        Gauge(f"{self.prefix}_{name}", text, registry=self.registry).set_function(function)

    def ask_each(self, name: str, text: str, label: str, functions: Mapping[str, Callable[[], float]]) -> None:
        """Add a gauge that is asked at each scrape for each value of a label."""
        gauge = Gauge(f"{self.prefix}_{name}", text, [label], registry=self.registry)
        for value, function in functions.items():
            gauge.labels(value).set_function(function)


class _Readiness(Collector):
    """Whether this process should get requests, asked at each scrape."""

    def __init__(self, problems: Callable[[], Iterable[tuple[str, str | None]]]) -> None:
        self._problems = problems

    def collect(self) -> Iterator[Metric]:
        """Give a scrape its metrics."""
        checks = [((name,), problem is None) for name, problem in self._problems()]
        text = "1 if this process is ready, as /readyz says."
        yield GaugeMetricFamily(f"{PREFIX}_ready", text, all(held for _, held in checks))
        text = "1 for each check of /readyz that holds."
        yield family(GaugeMetricFamily, "readiness_check", text, ["check"], checks)


class Metrics(Instruments):
    """What this process counts.

    `resources` are the plurals that may appear as a label; every other one is counted as `other`, since the value
    comes from outside. What only `serve` has (reviews, a certificate) is left out of `/metrics` unless `serves`: a zero
    there would be an alert.
    """

    bad_requests = MetricRow(
        Counter, "Requests that were no admission review, by HTTP status; 499 means that the client went away.", code=()
    )
    registered = MetricRow(
        Gauge, "1 if the webhook configuration exists with every entry: API servers call us.", configuration=()
    )
    reviews_in_flight = MetricRow(Gauge, "Reviews being received or decided.")
    reviews_shed = MetricRow(
        Counter,
        "Reviews refused without being judged: waited past their deadline, too many large ones, or too large.",
        reason=("deadline", "crowded", "oversize"),
    )
    panics = MetricRow(
        Counter,
        "Reviews that met a fault in this program; /validate refuses with 500, and lets slices pass.",
        resource=(),
    )
    reviews_passed_unjudged = MetricRow(
        Counter,
        "Reviews that /validate let through without judging them, since to refuse them would do more harm.",
        resource=(),
        reason=(),
    )
    reviews_turned_down = MetricRow(
        Counter, "Reviews allowed only because a mode of the policy turns refusals into warnings.", resource=()
    )
    softened_rules = MetricRow(
        Counter, "NoExecute rules stored as NoSchedule with /evict, because the policy softens them; each counts once."
    )
    certificate_expiry_timestamp_seconds = MetricRow(
        Gauge,
        "When the serving certificate ends, in Unix time; 0 while there is none.",
    )
    certificate_not_before_timestamp_seconds = MetricRow(
        Gauge,
        "When the serving certificate began, in Unix time; 0 while there is none.",
    )
    certificate_reload_failures = MetricRow(
        Counter, "Attempts to load or renew the certificate that failed; the one in use stays."
    )
    certificate_authority_expiry_timestamp_seconds = MetricRow(
        Gauge,
        "When the CA of self-managed certificates ends, in Unix time; 0 while there is none.",
    )
    certificate_rotations = MetricRow(
        Counter,
        "New certificates in the place of others that this process has taken up: serving ones (leaf) and CAs (ca).",
        certificate=("leaf", "ca"),
    )
    reflector_staleness_seconds = MetricRow(
        Gauge,
        "Time since the API server last said something about a resource; a healthy idle watch does in minutes.",
        shared=True,
        resource=(),
    )
    reflector_lists = MetricRow(
        Counter,
        "Full lists of a resource: at the start, and when a watch broke off, expired or fell silent.",
        shared=True,
        resource=(),
    )
    reflector_errors = MetricRow(
        Counter, "Lists and watches of a resource that failed or expired.", shared=True, resource=()
    )
    tls_handshake_failures = MetricRow(
        Counter, "Connections to the port for reviews whose TLS handshake failed, by reason.", reason=HandshakeFailure
    )
    event_loop_lag_seconds = MetricRow(
        Histogram,
        "How much later than asked for the event loop came back, measured four times a second.",
        shared=True,
        buckets=_LAG_SECONDS,
    )
    build_info = MetricRow(Gauge, "Always 1; the labels say what runs.", shared=True, version=(), python_version=())

    def __init__(self, *, version: str, resources: Iterable[str], serves: bool = True) -> None:
        registry = CollectorRegistry(auto_describe=False)
        self._resources = frozenset(resources)
        self._reviews = ReviewMetrics(self._resources)
        if serves:
            registry.register(self._reviews)
        self.count_review = self._reviews.count
        """One review answered: path (one of ours), resource, operation, code, seconds."""
        self.policy = PolicyMetrics()
        registry.register(self.policy)
        super().__init__(registry, shared_only=not serves)
        for resource in self._resources:
            self.panics.labels(resource)
            self.reviews_turned_down.labels(resource)
        self.panics.labels(OTHER)
        if "resourceslices" in self._resources:  # only they are never refused unjudged
            for reason in ("fault", "deadline", "crowded"):
                self.reviews_passed_unjudged.labels("resourceslices", reason)
        self.build_info.labels(version, platform.python_version()).set(1)
        ProcessCollector(registry=registry)

    def count_bad_request(self, code: int) -> None:
        """Count a request that was no review. `code` is a status of ours."""
        self.bad_requests.labels(code).inc()

    def known(self, resource: str) -> str:
        """Return a resource as the value of a label: `other` unless it is one of ours."""
        return resource if resource in self._resources else OTHER

    def watch_reflector(self, resource: str, staleness_seconds: Callable[[], float]) -> None:
        """Add the samples of a resource that is followed; `resource` is a plural of our own choosing."""
        self.reflector_staleness_seconds.labels(resource).set_function(staleness_seconds)
        self.reflector_lists.labels(resource)
        self.reflector_errors.labels(resource)

    def watch_readiness(self, problems: Callable[[], Iterable[tuple[str, str | None]]]) -> None:
        """Add the gauges of readiness; `problems` returns each check with its problem, or None."""
        self.registry.register(_Readiness(problems))

    def watch_requesters(self, not_counted: Callable[[], int]) -> None:
        """Add a gauge: how many requesters the window does not count ahead, since their rules are never stored."""
        self.ask(
            "requesters_not_counted_ahead",
            "Requesters whose rules count only once they are stored, because earlier ones never were.",
            not_counted,
        )

    def watch_authors(self, proved: Callable[[], bool]) -> None:
        """Add a gauge: whether API servers prove the authors of templates."""
        text = "1 if API servers prove the authors of templates; 0 means that all are unknown."
        self.ask("authors_proved", text, proved)

    def watch_inventory(self, synced: Callable[[], bool], counts: Mapping[str, Callable[[], int]]) -> None:
        """Add gauges: whether the inventory is complete, and how many objects of each resource it holds."""
        text = "1 if slices, rules and claims are known as they are; 0 means that impacts are unknown."
        self.ask("inventory_synced", text, synced)
        text = "Objects in the inventory that impacts are worked out from."
        self.ask_each("inventory_objects", text, "resource", counts)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return everything in the text format that an `Accept` header asks for, and that format's content type."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no number
            encode, content_type = choose_encoder("")
        return encode(self.registry), content_type
