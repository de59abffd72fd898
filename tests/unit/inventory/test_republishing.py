"""Taints in slices, while a driver publishes its pool again slice by slice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.objects import POOL, claim, pod, slice_of, taint
from tests.unit.inventory.watched import OURS, Watched, announced
from webhook.inventory.evictions import Evictions, Without
from webhook.inventory.targets import EvictionScope

if TYPE_CHECKING:
    from webhook.api.slices import ResourceSlice

POOL_ID = (DRIVER, POOL)
BOTH = slice_of({"gpu-0": (taint(),), "gpu-1": (taint(),)})


def part(devices: dict[str, tuple], *, generation: int = 2, slices: int = 2) -> ResourceSlice:  # type: ignore[type-arg]
    """A slice of a newer generation, of which there will be more."""
    return structs.replace(slice_of(devices, name="part", generation=generation), slice_count=slices)


def republished() -> Watched:
    """With the first of two slices of the new generation, in which the first of two tainted devices is."""
    users = [each for number in "01" for each in (claim(f"p{number}", devices=(f"gpu-{number}",)), pod(f"p{number}"))]
    watched = Watched(BOTH, *users)
    assert watched.change(None, part({"gpu-0": (taint(),)})) == {"ml/p0", "ml/p1"}
    return watched


def test_device_keeps_its_taint_until_its_pool_is_there_again_but_it_evicts_nobody() -> None:
    watched = republished()
    assert [watched.evicts_now(name) for name in ("p0", "p1")] == [False, False]
    assert watched.of("p1") is not None
    rest = structs.replace(slice_of({"gpu-1": ()}, name="rest", generation=2), slice_count=2)
    assert watched.change(None, rest) == {"ml/p0", "ml/p1"}
    assert (watched.evicts_now("p0"), watched.of("p1")) == (True, None)


def test_each_generation_is_waited_for() -> None:
    watched = republished()
    assert watched.change(None, part({}, generation=3)) == set()
    assert watched.of("p0") is not None
    assert not watched.evicts_now("p0")


def test_pool_that_is_there_in_full_is_not_waited_for() -> None:
    for new in (part({"gpu-0": (taint(),)}, slices=1), part({"gpu-0": (taint(),), "gpu-1": ()}, slices=1)):
        watched = Watched(BOTH, claim("p1", devices=("gpu-1",)), pod("p1"))
        assert watched.change(None, new) == {"ml/p1"}
        assert watched.of("p1") is None


def test_pool_that_is_gone_taints_nothing() -> None:
    watched = republished()
    watched.change(part({"gpu-0": (taint(),)}), None)
    assert watched.change(BOTH, None) == {"ml/p0", "ml/p1"}
    assert (watched.of("p0"), watched.of("p1")) == (None, None)


def test_devices_are_reported_when_a_slice_taints_them() -> None:
    watched, seen = Watched(), list[object]()
    watched.evictions.on_tainted = lambda *what: seen.append(what)
    watched.change(None, slice_of({"gpu-0": (taint(),), "gpu-1": ()}))
    watched.change(None, slice_of({"gpu-0": (taint(key="k"),), "gpu-1": ()}))
    watched.change(None, BOTH)
    watched.change(BOTH, None)
    assert seen == [(*POOL_ID, ["gpu-0"]), (*POOL_ID, ["gpu-0"]), (*POOL_ID, ["gpu-0", "gpu-1"])]


def test_after_a_new_start_slices_evict_only_where_they_are_ours() -> None:
    watched = Watched(BOTH, claim("p0"), pod("p0"))
    for scope, evicts in ((OURS, True), (EvictionScope(None, asked=True), False)):
        evictions = Evictions(watched.inventory, scope, announced)
        assert evictions.everything() == {"ml/p0"}
        assert (evictions.eviction_of(watched.inventory.pods["ml/p0"]) is not None) is evicts
    found = watched.evictions.eviction_of(watched.inventory.pods["ml/p0"], Without(frozenset({DRIVER})))
    assert found is None, "taints of the driver are passed over"


def test_all_taints_of_a_pool_that_is_waited_for_are_named() -> None:
    two = (taint(), taint(key="example.com/hard"))
    found = Watched(part({"gpu-0": two}), claim("p0"), pod("p0")).of("p0")
    assert found is not None
    assert found.waits
    assert [reason.taint.key for reason in found.reasons] == [each.key for each in two]
