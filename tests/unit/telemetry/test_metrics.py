"""Instruments: what is counted under which labels, and that strangers cannot add any."""

from __future__ import annotations

import pytest

from webhook.admission.decision import Change
from webhook.policy.model import Action
from webhook.telemetry.metrics import Metrics

RESOURCES = ("resourceclaims", "resourceslices")


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"device_taint_webhook_{name}", labels)


@pytest.mark.parametrize(
    ("seconds", "bucket"), [(0.0005, "0.0005"), (0.00051, "0.001"), (30.0, "30.0"), (31.0, "+Inf")]
)
def test_duration_counts_in_the_first_bucket_that_holds_it(seconds: float, bucket: str) -> None:
    metrics = Metrics(version="1.2.3", resources=RESOURCES)
    metrics.count_review("/validate", "resourceclaims", "CREATE", 200, seconds)
    [family] = [f for f in metrics.registry.collect() if f.name == "device_taint_webhook_review_duration_seconds"]
    filled = [s.labels["le"] for s in family.samples if s.name.endswith("_bucket") and s.value == 1]
    assert filled[0] == bucket


def test_unknown_labels_are_counted_as_other_and_leave_nothing_behind() -> None:
    metrics = Metrics(version="1.2.3", resources=RESOURCES)
    for number in range(1000):
        metrics.count_review("/mutate", f"resource-{number}", f"OPERATION-{number}", 200, 0.1)
        metrics.count_review("/mutate", "resourceslices", "DELETE", 600 + number, 0.1)
    other = {"path": "/mutate", "resource": "other", "operation": "other", "code": "200"}
    assert sample(metrics, "reviews_total", **other) == 1000
    odd_code = {"path": "/mutate", "resource": "resourceslices", "operation": "DELETE", "code": "other"}
    assert sample(metrics, "reviews_total", **odd_code) == 1000
    [reviews] = [metric for metric in metrics.registry.collect() if metric.name == "device_taint_webhook_reviews"]
    assert len([s for s in reviews.samples if s.name.endswith("_total")]) == 2
    assert len(metrics._reviews._tallies) == 2


def test_exposition_comes_in_the_format_that_is_asked_for() -> None:
    metrics = Metrics(version="1.2.3", resources=RESOURCES)
    assert metrics.exposition("text/plain")[1].startswith("text/plain; version=")
    body, content_type = metrics.exposition("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_no_series_tells_when_a_counter_was_made() -> None:
    """L12: they would be as many again."""
    metrics = Metrics(version="1", resources=RESOURCES)
    metrics.count_bad_request(400)
    metrics.event_loop_lag_seconds.observe(0.1)
    assert b"_created" not in metrics.exposition("")[0]
    assert b"_created" not in metrics.exposition("application/openmetrics-text; version=1.0.0")[0]


def test_two_processes_worth_of_metrics_do_not_mix() -> None:
    one, other = (Metrics(version="1", resources=()) for _ in range(2))
    one.panics.labels(one.known("secrets")).inc()
    panics = [sample(each, "panics_total", resource="other") for each in (one, other)]
    assert panics == [1, 0]


@pytest.mark.parametrize(
    ("problems", "ready"), [({"a": None, "b": None}, 1), ({"a": None, "b": "is missing"}, 0)], ids=["ready", "not"]
)
def test_readiness_is_told_with_each_of_its_checks(problems: dict[str, str | None], ready: float) -> None:
    """M0."""
    metrics = Metrics(version="1", resources=())
    metrics.watch_readiness(problems.items)
    told = [sample(metrics, "readiness_check", check=name) for name in problems]
    assert (sample(metrics, "ready"), told) == (ready, [1, ready])


def test_rules_that_are_in_no_policy_are_not_counted() -> None:
    metrics = Metrics(version="1", resources=())
    metrics.policy.use(["known"], ["tried"])
    for number in range(1000):
        metrics.policy.count([(f"rule-{number}", Action.DENY)])
        metrics.policy.count_difference(f"rule-{number}", Change.DENIED)
    metrics.policy.count([("tried", Action.DENY)])
    assert policy_samples(metrics) == {}


def test_differences_are_counted_for_rules_of_either_policy() -> None:
    metrics = Metrics(version="1", resources=())
    metrics.policy.use(["known"], ["tried"])
    for rule, change in (("tried", Change.DENIED), ("known", Change.ALLOWED), ("tried", Change.DENIED)):
        metrics.policy.count_difference(rule, change)
    assert policy_samples(metrics) == {("tried", "denied"): 2, ("known", "allowed"): 1}


def test_rule_that_stays_in_the_policy_keeps_its_count_and_others_are_forgotten() -> None:
    metrics = Metrics(version="1", resources=())
    metrics.policy.use(["stays", "goes"], ["tried"])
    metrics.policy.count([("stays", Action.DENY), ("goes", Action.WARN)])
    metrics.policy.count_difference("tried", Change.WARNED)
    metrics.policy.use(["stays", "comes"], [])
    metrics.policy.count([("stays", Action.DENY), ("goes", Action.WARN)])
    assert policy_samples(metrics) == {("stays", "deny"): 2}


def policy_samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Counted rules and differences, by their labels."""
    families = ("device_taint_webhook_policy_decisions", "device_taint_webhook_policy_candidate_differences")
    return {
        tuple(each.labels.values()): each.value
        for family in metrics.registry.collect()
        if family.name in families
        for each in family.samples
    }
