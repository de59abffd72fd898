"""Instruments: what is counted under which labels, and that strangers cannot add any."""

from __future__ import annotations

import pytest

from webhook.admission.decision import Change
from webhook.policy.model import Action
from webhook.telemetry.metrics import Metrics

RESOURCES = ("resourceclaims", "resourceslices")


def sample(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"device_taint_webhook_{name}", labels)


def test_review_is_counted_with_its_duration() -> None:
    metrics = Metrics(version="1.2.3", resources=RESOURCES)
    for seconds in (0.0004, 0.2):
        metrics.count_review("/validate", "resourceclaims", "CREATE", 422, seconds)
    labels = {"path": "/validate", "resource": "resourceclaims", "operation": "CREATE", "code": "422"}
    assert sample(metrics, "reviews_total", **labels) == 2
    assert sample(metrics, "review_duration_seconds_bucket", path="/validate", le="0.0005") == 1
    assert sample(metrics, "review_duration_seconds_bucket", path="/validate", le="0.1") == 1
    assert sample(metrics, "review_duration_seconds_bucket", path="/validate", le="0.25") == 2
    assert sample(metrics, "review_duration_seconds_bucket", path="/validate", le="+Inf") == 2
    assert sample(metrics, "review_duration_seconds_count", path="/validate") == 2
    assert sample(metrics, "review_duration_seconds_sum", path="/validate") == pytest.approx(0.2004)


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


def test_build_is_told() -> None:
    metrics = Metrics(version="1.2.3", resources=RESOURCES)
    body, _ = metrics.exposition("")
    assert b'device_taint_webhook_build_info{python_version="3.' in body
    assert b'version="1.2.3"} 1.0\n' in body


def test_counters_bring_no_series_with_the_time_of_their_making() -> None:
    """L12."""
    assert b"_created" not in Metrics(version="1.2.3", resources=RESOURCES).exposition("")[0]


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


def test_worker_has_no_series_of_the_server() -> None:
    """L13: a certificate that ends at 0 is an alert where series are not told apart by job."""
    metrics = Metrics(version="1", resources=(), serves=False)
    metrics.certificate_expiry_timestamp_seconds.set(0)
    metrics.reflector_lists.labels("devicetaintrules").inc()
    names = {family.name.removeprefix("device_taint_webhook_") for family in metrics.registry.collect()}
    foreign = ("reviews", "review", "bad_requests", "callers", "panics", "certificate", "tls")
    assert [name for name in names if name.startswith(foreign)] == []
    assert {"policy_load_success", "reflector_lists", "event_loop_lag_seconds", "build_info"} <= names


def test_two_processes_worth_of_metrics_do_not_mix() -> None:
    one, other = (Metrics(version="1", resources=()) for _ in range(2))
    one.panics.labels(one.known("secrets")).inc()
    panics = [sample(each, "panics_total", resource="other") for each in (one, other)]
    assert panics == [1, 0]


# --- readiness -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problems", "ready"), [({"a": None, "b": None}, 1), ({"a": None, "b": "is missing"}, 0)], ids=["ready", "not"]
)
def test_readiness_is_told_with_each_of_its_checks(problems: dict[str, str | None], ready: float) -> None:
    """M0."""
    metrics = Metrics(version="1", resources=())
    metrics.watch_readiness(problems.items)
    told = [sample(metrics, "readiness_check", check=name) for name in problems]
    assert (sample(metrics, "ready"), told) == (ready, [1, ready])


# --- the policy ---------------------------------------------------------------------------------


def test_before_the_first_look_no_policy_is_in_use() -> None:
    """M0."""
    metrics = Metrics(version="1", resources=())
    assert sample(metrics, "policy_load_success") == 0
    assert sample(metrics, "policy_info", hash="builtin") is None
    assert sample(metrics, "policy_info", hash="") is None
    assert sample(metrics, "policy_candidate_load_success") is None


def test_rules_are_counted_by_what_followed() -> None:
    metrics = Metrics(version="1", resources=())
    metrics.policy.use(["no-xid", "default"], [])
    for hits in ([("no-xid", Action.DENY)], [("no-xid", Action.DENY), ("default", Action.ALLOW)]):
        metrics.policy.count(hits)
    assert sample(metrics, "policy_decisions_total", rule="no-xid", action="deny") == 2
    assert sample(metrics, "policy_decisions_total", rule="default", action="allow") == 1


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


def test_state_of_the_policies_is_told() -> None:
    metrics = Metrics(version="1", resources=())
    metrics.policy.load_success = False
    metrics.policy.candidate_load_success = True
    metrics.policy.hash = "0123456789ab"
    metrics.policy.exceptions = {"until-friday": 1_780_000_000.0}
    assert sample(metrics, "policy_load_success") == 0
    assert sample(metrics, "policy_candidate_load_success") == 1
    assert sample(metrics, "policy_info", hash="0123456789ab") == 1
    assert sample(metrics, "policy_info", hash="builtin") is None
    assert sample(metrics, "policy_exception_expiry_timestamp_seconds", exception="until-friday") == 1_780_000_000
    metrics.policy.candidate_load_success = None
    assert sample(metrics, "policy_candidate_load_success") is None


def policy_samples(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Counted rules and differences, by their labels."""
    families = ("device_taint_webhook_policy_decisions", "device_taint_webhook_policy_candidate_differences")
    return {
        tuple(each.labels.values()): each.value
        for family in metrics.registry.collect()
        if family.name in families
        for each in family.samples
    }
