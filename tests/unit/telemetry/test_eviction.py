"""What the eviction worker counts, under our names and in mode replacement under the in-tree controller's."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from webhook.telemetry.workers import EvictionMetrics

IN_TREE = "device_taint_eviction_controller"


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
