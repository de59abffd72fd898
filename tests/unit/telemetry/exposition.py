"""Writes exposition.txt, /metrics of each class: at its start, and what each call changes.

`python -m tests.unit.telemetry.exposition`
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from webhook.patches.reactions import ReactionOutcome
from webhook.telemetry.metrics import HandshakeFailure, Metrics
from webhook.telemetry.workers import AuditMetrics, EvictionMetrics, PatchMetrics, ReactionMetrics

EXPOSITION: Final = Path(__file__).with_name("exposition.txt")
_OF_A_SET: Final = re.compile(r"device_taint_webhook_(panics|reviews_turned_down)_total")
"""Their samples come in the order of a set, which differs from run to run."""

Calls = Mapping[str, Callable[[], object]]


def exposition() -> str:
    return "\n".join(line for part in _parts() for line in part)


def _parts() -> Iterator[Iterator[str]]:
    for serves in (True, False):
        metrics = _metrics(serves=serves)
        yield _lines(f"Metrics, serves: {serves}", metrics.registry, {**_process(metrics), **_reviews(metrics)})
    for in_tree in (True, False):
        registry = CollectorRegistry()
        yield _lines(
            f"EvictionMetrics, in-tree names: {in_tree}",
            registry,
            _evictions(EvictionMetrics(registry, in_tree_names=in_tree)),
        )
    registry = CollectorRegistry()
    yield _lines("PatchMetrics", registry, _patches(PatchMetrics(registry, ("Expanded", "Refused"))))
    registry = CollectorRegistry()
    yield _lines("ReactionMetrics", registry, _reactions(ReactionMetrics(registry)))
    registry = CollectorRegistry()
    yield _lines("AuditMetrics", registry, _audit(AuditMetrics(registry)))


def _metrics(*, serves: bool) -> Metrics:
    return Metrics(version="1.2.3", resources=("resourceclaims", "resourceslices"), serves=serves)


def _process(metrics: Metrics) -> Calls:
    return {
        "a readiness": lambda: metrics.watch_readiness(lambda: [("policy", None), ("inventory", "is not there")]),
        "requesters": lambda: metrics.watch_requesters(lambda: 3),
        "authors": lambda: metrics.watch_authors(lambda: True),
        "an inventory": lambda: metrics.watch_inventory(lambda: True, {"slices": lambda: 5, "rules": lambda: 2}),
        "a reflector": lambda: metrics.watch_reflector("things", lambda: 1.5),
        "a list": lambda: metrics.reflector_lists.labels("things").inc(),
        "an error of a reflector": lambda: metrics.reflector_errors.labels("things").inc(),
        "a lag": lambda: metrics.event_loop_lag_seconds.observe(0.02),
    }


def _reviews(metrics: Metrics) -> Calls:
    policy = metrics.policy
    return {
        "a review": lambda: metrics.count_review("/validate", "resourceclaims", "CREATE", 422, 0.2),
        "a review of a stranger": lambda: metrics.count_review("/mutate", "secrets", "PATCH", 418, 31),
        "a bad request": lambda: metrics.count_bad_request(499),
        "a registration": lambda: metrics.registered.labels("validatingwebhookconfigurations").set(True),
        "reviews in flight": lambda: metrics.reviews_in_flight.set_function(lambda: 4),
        "shed": lambda: metrics.reviews_shed.labels("crowded").inc(),
        "a panic": lambda: metrics.panics.labels(metrics.known("resourceslices")).inc(),
        "a panic of a stranger": lambda: metrics.panics.labels(metrics.known("secrets")).inc(),
        "unjudged": lambda: metrics.reviews_passed_unjudged.labels("resourceslices", "deadline").inc(),
        "unjudged of a stranger": lambda: metrics.reviews_passed_unjudged.labels(
            metrics.known("secrets"), "fault"
        ).inc(),
        "turned down": lambda: metrics.reviews_turned_down.labels(metrics.known("resourceclaims")).inc(),
        "turned down of a stranger": lambda: metrics.reviews_turned_down.labels(metrics.known("secrets")).inc(),
        "softened": metrics.softened_rules.inc,
        "end of a certificate": lambda: metrics.certificate_expiry_timestamp_seconds.set(1_790_000_000),
        "begin of a certificate": lambda: metrics.certificate_not_before_timestamp_seconds.set(1_780_000_000),
        "end of a CA": lambda: metrics.certificate_authority_expiry_timestamp_seconds.set(1_800_000_000),
        "a failed reload": metrics.certificate_reload_failures.inc,
        "a rotation": lambda: metrics.certificate_rotations.labels("leaf").inc(),
        "a handshake": lambda: metrics.tls_handshake_failures.labels(HandshakeFailure.NOT_TLS).inc(),
        "rules": lambda: policy.use(["no-xid"], ["tried"]),
        "hits": lambda: policy.count([("no-xid", "deny"), ("no-xid", "deny"), ("unknown", "deny")]),
        "a finding": lambda: policy.count_finding("no-xid", "warn"),
        "a finding with a code": lambda: policy.count_finding("DT001", "warn"),
        "a finding of a stranger": lambda: policy.count_finding("unknown", "warn"),
        "a difference": lambda: policy.count_difference("tried", "denied"),
        "a policy": lambda: vars(policy).update(load_success=True, hash="0123", mode="enforce", paused_until=1.79e9),
        "a candidate": lambda: vars(policy).update(candidate_load_success=False),
        "exceptions": lambda: vars(policy).update(exceptions={"until-friday": 1.78e9, "ever": 1.8e9}),
        "other rules": lambda: policy.use(["other"], []),
    }


def _evictions(metrics: EvictionMetrics) -> Calls:
    return {
        "gauges": lambda: metrics.watch({"pods_in_line": lambda: 3, "paused": lambda: True}),
        "waiting": lambda: metrics.watch_waiting(("window", "limit"), len),
        "a request": lambda: metrics.eviction_requests.labels("evict", "blocked").inc(),
        "a request of another method": lambda: metrics.eviction_requests.labels("dry-run", "evicted").inc(),
        "evicted": lambda: metrics.count_evicted(70),
        "evicted before its time": lambda: metrics.count_evicted(-3),
        "cancelled": metrics.evictions_cancelled.inc,
        "a dropped Event": metrics.eviction_events_dropped.inc,
        "a condition": metrics.rule_condition_errors.inc,
        "a mode": lambda: metrics.eviction_mode.labels("delegated").set(1),
        "a leader": lambda: metrics.leader.set(True),
        "forgotten": lambda: metrics.set_forgotten({"idle_rules": 2}),
        "no leader": lambda: metrics.leader.set(False),
    }


def _patches(metrics: PatchMetrics) -> Calls:
    return {
        "gauges": lambda: metrics.watch(lambda: 1, lambda: 2, lambda: {"Expanded": 3}),
        "slices": lambda: metrics.watch_slices(lambda: 4),
        "a write": lambda: metrics.patch_rule_writes.labels("create", "refused").inc(),
        "a pass": lambda: metrics.patch_pass_seconds.observe(0.3),
        "a leader": lambda: metrics.patch_leader.set(True),
    }


def _reactions(metrics: ReactionMetrics) -> Calls:
    limited = ReactionOutcome("xid", "d", 1, 2, 3, 4, 5, 6, 7, "")
    free = ReactionOutcome("other", "d", 0, 0, 0, 0, 0, 6, None, "")
    return {
        "a pass": lambda: metrics.show((limited, free), 8),
        "a pass without one of them": lambda: metrics.show((free,), 0),
        "a pass without outcomes": lambda: metrics.show((), 0),
    }


def _audit(metrics: AuditMetrics) -> Calls:
    found = {("resourceclaims", "denied", "no-xid"): 2, ("resourceclaimtemplates", "warned", "DT001"): 1}
    return {
        "an interval": lambda: metrics.audit_interval_seconds.set(600),
        "a pass": lambda: metrics.set_found(found, {"resourceclaims": 7, "resourceclaimtemplates": 3}, 1.79e9),
        "a failure": metrics.audit_failures.inc,
        "another pass": lambda: metrics.set_found({}, {"resourceclaims": 8}, 1.8e9),
    }


def _lines(title: str, registry: CollectorRegistry, calls: Calls) -> Iterator[str]:
    yield f"===== {title}"
    before = _text(registry)
    yield from before
    for name, call in calls.items():
        yield f"----- {name}"
        call()
        after = _text(registry)
        yield from (f"-{line}" for line in before if line not in after)
        yield from (f"+{line}" for line in after if line not in before)
        before = after
    yield "----- in the end"
    yield from before


def _text(registry: CollectorRegistry) -> list[str]:
    text = generate_latest(registry).decode().replace(platform.python_version(), "PYTHON")
    lines = re.sub(r"^(process_\w+) .*", r"\1", text, flags=re.MULTILINE).splitlines()
    places = [at for at, line in enumerate(lines) if _OF_A_SET.match(line)]
    for at, line in zip(places, sorted(lines[at] for at in places), strict=True):
        lines[at] = line
    return lines


if __name__ == "__main__":
    EXPOSITION.write_text(exposition() + "\n")
