"""Several taints as one impact."""

from __future__ import annotations

from tests.unit.inventory.values import DRIVER, NOW, claim, in_tree, inventory_of, lets_stay, on, ours, pool_slice
from webhook.api.rules import DeviceSelector
from webhook.inventory.impact import Impact, impact_of, joint_impact

CLUSTER = inventory_of(
    pool_slice("gpu-0", "gpu-1", name="s-0", pool="node-0"),
    pool_slice("gpu-0", "gpu-1", name="s-1", pool="node-1"),
    pool_slice("x", name="s-2", pool="node-1", driver="other.example.com"),
    claim("c-0", on(pool="node-0"), users=["u-0"]),
    claim("c-1", on("gpu-0", lets_stay(60), pool="node-1"), on("gpu-1", pool="node-1"), users=["u-1"], namespace="b"),
)
NODE_0, NODE_1 = (DeviceSelector(DRIVER, f"node-{number}") for number in range(2))
FIRST = DeviceSelector(DRIVER, device="gpu-0")


def test_nothing_is_hit_by_no_taint() -> None:
    assert joint_impact(CLUSTER, [], NOW) == Impact()


def test_one_taint_is_what_it_is_alone() -> None:
    for selector in (NODE_0, NODE_1, FIRST, DeviceSelector(), DeviceSelector(DRIVER, unknown=(("a", "1"),))):
        for taint in (in_tree(), in_tree("NoSchedule"), ours()):
            assert joint_impact(CLUSTER, [(selector, taint)], NOW) == impact_of(CLUSTER, selector, taint, NOW)


def test_devices_pods_and_results_count_once() -> None:
    both = joint_impact(CLUSTER, [(NODE_1, in_tree()), (FIRST, in_tree())], NOW)
    assert (both.devices, both.pools, both.drivers, both.allocated) == (3, 2, 1, 3)
    assert both.pods == {"u-0", "u-1"}
    assert both.namespaces == {"ml", "b"}
    twice = joint_impact(CLUSTER, [(NODE_0, in_tree()), (NODE_0, in_tree("NoSchedule"))], NOW)
    assert (twice.devices, twice.pools, twice.allocated) == (2, 1, 1)
    assert twice.pods == {"u-0"}
    assert not twice.kept


def test_drivers_are_counted_by_name() -> None:
    other = DeviceSelector("other.example.com")
    both = joint_impact(CLUSTER, [(NODE_1, in_tree()), (other, in_tree())], NOW)
    assert (both.devices, both.pools, both.drivers) == (3, 2, 2)
    nothing = joint_impact(CLUSTER, [(DeviceSelector("gone.example.com"), in_tree()), (NODE_1, in_tree())], NOW)
    assert (nothing.devices, nothing.pools, nothing.drivers) == (2, 1, 1)
    absent = joint_impact(CLUSTER, [(DeviceSelector(DRIVER, "node-0", "gpu-9"), in_tree()), (NODE_1, in_tree())], NOW)
    assert (absent.devices, absent.pools) == (2, 1)


def test_pools_that_are_not_published_in_full_are_named() -> None:
    cluster = inventory_of(
        pool_slice("gpu-0", name="a", pool="node-0", count=2), pool_slice("gpu-0", name="b", pool="node-1", count=2)
    )
    found = joint_impact(cluster, [(NODE_1, in_tree()), (NODE_0, in_tree())], NOW)
    assert found.incomplete_pools == ((DRIVER, "node-0"), (DRIVER, "node-1"))
    assert joint_impact(cluster, [(NODE_1, in_tree()), (NODE_1, ours())], NOW).incomplete_pools == ((DRIVER, "node-1"),)
