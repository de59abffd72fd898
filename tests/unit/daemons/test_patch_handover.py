"""Devices that go from one patch to another are never without the taint, also where something goes wrong."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from tests.unit.inventory.patched import DRIVER, slice_of
from tests.unit.patches.fake_cluster import CLOSED, FakeCluster, gpu, play

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
