"""Devices that go from one patch to another are never without the taint, also where something goes wrong."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from tests.unit.inventory.patched import DRIVER, slice_of
from tests.unit.patches.fake_cluster import CLOSED, FakeCluster, gpu, play

BIG: Final = 'device.attributes["gpu.example.com"].memory > 40'
X: Final = structs.replace(CLOSED, value="x")


def one_pool() -> FakeCluster:
    cluster = FakeCluster()
    cluster.slices(slice_of(gpu("a"), gpu("b"), gpu("c", 20), pool="p"))
    return cluster


def test_nothing_is_deleted_for_a_change_whose_other_half_comes_in_the_next_round() -> None:
    """A patch begins to win while rules of another one are being written."""
    cluster = one_pool()
    cluster.patch("one", driver=DRIVER, pool="p", device="a", taints=[CLOSED])

    def other(_: str) -> None:
        cluster.after_apply = lambda _: None
        cluster.patch("two", driver=DRIVER, priority=1, taints=[X])

    def busy() -> None:
        cluster.log.clear()
        cluster.after_apply = other
        cluster.patch("one", driver=DRIVER, pool="p", device="a", taints=[CLOSED, structs.replace(X, key="k")])

    play(cluster, busy)
    written = [line.partition("-")[0] for line in cluster.log if not line.startswith("status")]
    assert written == ["create one", "create two", "delete one"]


def test_start_in_the_middle_of_a_generation_leaves_rules_as_they_are() -> None:
    """Else devices of slices that are still to come would be opened, and others of these closed by a wide rule."""
    cluster = FakeCluster()
    first = structs.replace(slice_of(gpu("a"), pool="p", name="s1"), slice_count=2)
    other = structs.replace(slice_of(gpu("b"), gpu("c", 20), pool="p", name="s2"), slice_count=2)
    cluster.slices(first, other)
    cluster.patch("one", cel=[BIG], taints=[CLOSED])
    both = {(DRIVER, None, "a", ""), (DRIVER, None, "b", "")}

    def begun() -> None:
        assert cluster.selectors() == both
        cluster.slices(structs.replace(first, pool_generation=2))
        cluster.log.clear()

    play(cluster, begun)
    cluster.restart()
    play(cluster, lambda: cluster.slices(structs.replace(other, pool_generation=2)))
    assert (cluster.selectors(), cluster.log) == (both, [])
