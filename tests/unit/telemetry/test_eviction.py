"""What the eviction worker counts, under our names and in mode replacement under the in-tree controller's."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from webhook.telemetry.workers import EvictionMetrics

IN_TREE = "device_taint_eviction_controller"
OURS = "device_taint_webhook"


def test_deletions_are_counted_and_timed_under_the_names_that_dashboards_know() -> None:
    """E-46."""
    registry = CollectorRegistry()
    metrics = EvictionMetrics(registry, in_tree_names=True)
    for seconds in (0.004, 0.2, 500.0):
        metrics.count_evicted(seconds)
    value = registry.get_sample_value
    duration = f"{IN_TREE}_pod_deletion_duration_seconds"
    assert value(f"{IN_TREE}_pod_deletions_total") == 3
    assert value(f"{duration}_count") == 3
    [family] = [each for each in registry.collect() if each.name == duration]
    bounds = [sample.labels["le"] for sample in family.samples if sample.name.endswith("_bucket")]
    expected = (0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240)
    assert [float(bound) for bound in bounds] == [*expected, float("inf")]
    assert value(f"{duration}_bucket", {"le": "0.5"}) == 2
    assert value(f"{duration}_bucket", {"le": "240.0"}) == 2


def test_other_modes_leave_those_names_to_the_in_tree_controller() -> None:
    registry = CollectorRegistry()
    EvictionMetrics(registry, in_tree_names=False).count_evicted(1.0)
    assert [each.name for each in registry.collect() if each.name.startswith(IN_TREE)] == []
    assert registry.get_sample_value(f"{OURS}_eviction_delay_seconds_count") == 1


def test_clock_that_was_set_back_counts_as_no_delay() -> None:
    registry = CollectorRegistry()
    EvictionMetrics(registry, in_tree_names=True).count_evicted(-3.0)
    assert registry.get_sample_value(f"{OURS}_eviction_delay_seconds_sum") == 0
    assert registry.get_sample_value(f"{IN_TREE}_pod_deletion_duration_seconds_sum") == 0


def test_requests_are_there_before_their_first_count() -> None:
    registry = CollectorRegistry()
    metrics = EvictionMetrics(registry, in_tree_names=False)
    metrics.eviction_requests.labels("evict", "blocked").inc()
    for method in ("evict", "delete"):
        for result in ("evicted", "gone", "blocked", "failed"):
            expected = float((method, result) == ("evict", "blocked"))
            labels = {"method": method, "result": result}
            assert registry.get_sample_value(f"{OURS}_eviction_requests_total", labels) == expected


def test_help_of_a_gauge_is_a_sentence() -> None:
    """L12."""
    registry = CollectorRegistry()
    EvictionMetrics(registry, in_tree_names=False).watch({"pods_in_line": lambda: 3.0})
    [family] = [each for each in registry.collect() if each.name == f"{OURS}_eviction_pods_in_line"]
    assert (family.documentation, family.samples[0].value) == ("Pods in line.", 3.0)
