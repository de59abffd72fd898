"""Taints of the same key and effect: what a patch loses to another, and gets back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from tests.unit.patches.indexed import drained, index_of
from tests.unit.patches.patched import CREATED, patch_of, slice_of
from webhook.api.taints import DeviceTaint
from webhook.patches.index import Contests, origins_of
from webhook.patches.patching import Origin
from webhook.patches.status import Standing, standing_of

if TYPE_CHECKING:
    from webhook.api.patches import ResourceSlicePatch
    from webhook.patches.index import PatchIndex

TAINT: Final = DeviceTaint("k", "low", "NoSchedule", CREATED)
WINNING: Final = structs.replace(TAINT, value="high")
OTHER: Final = structs.replace(TAINT, key="l")


def numbered(*numbers: int, pool: str = "p", generation: int = 1) -> Any:
    devices = [{"name": f"d{at}", "attributes": {"n": {"int": number}}} for at, number in enumerate(numbers)]
    return slice_of(*devices, pool=pool, generation=generation, name=f"s-{pool}")


def low(*taints: DeviceTaint, **fields: Any) -> ResourceSlicePatch:
    return patch_of("low", taints=taints or (TAINT,), **{"cel": ["n > -1"], **fields})


def high(*taints: DeviceTaint, **fields: Any) -> ResourceSlicePatch:
    return patch_of("high", taints=taints or (WINNING,), **{"priority": 1, "cel": ["n > 0"], **fields})


def standing(index: PatchIndex, name: str = "low") -> Standing:
    drained(index)
    return standing_of(index, name, 100)


def places(index: PatchIndex, name: str = "low") -> list[str]:
    return [f"{each.selector.pool or '*'}/{each.selector.device or '*'}" for each in standing(index, name).rules]


def test_device_that_another_patch_begins_to_select_is_lost_and_comes_back() -> None:
    index = index_of([numbered(0, 0, 0)], low(), high())
    assert places(index) == ["p/d0", "p/d1", "p/d2"]
    index.apply_slice(None, numbered(0, 1, 0, generation=2))
    assert (places(index), places(index, "high")) == (["p/d0", "p/d2"], ["p/d1"])
    assert standing(index).tainted == 2
    index.apply_slice(None, numbered(0, 0, 0, generation=3))
    assert (places(index), places(index, "high")) == (["p/d0", "p/d1", "p/d2"], [])


def test_names_lose_to_a_filter_and_the_other_way_round() -> None:
    plain = low(cel=[], pool="p")
    index = index_of([numbered(0, 1), numbered(1, 1, pool="q")], plain, high())
    assert places(index) == ["p/d0"]
    index.apply_patch("high", high(priority=-1))
    assert (places(index), places(index, "high")) == (["p/*"], ["q/d0", "q/d1"])
    index.apply_slice(None, numbered(0, 1, 1, generation=2))
    assert (places(index), standing(index).tainted) == (["p/*"], 3)
    index.apply_patch("low", None)
    assert places(index, "high") == ["p/d1", "p/d2", "q/d0", "q/d1"]


def test_two_patches_of_names() -> None:
    index = index_of([numbered(0, 0)], low(cel=[], pool="p"), high(cel=[], pool="p", device="d1"))
    assert places(index) == ["*/d0"]
    index.apply_slice(None, numbered(0, 0, 0, generation=2))
    assert places(index) == ["*/d0", "*/d2"]
    index.apply_slice(None, numbered(0, generation=3))
    assert places(index) == ["p/*"], "nothing is lost, so it is the filter itself"


def test_taint_that_a_patch_sets_no_longer_is_the_others() -> None:
    index = index_of([numbered(1, 1)], low(), high())
    assert places(index) == []
    index.apply_patch("high", high(OTHER))
    assert places(index) == ["p/d0", "p/d1"]
    index.apply_patch("high", high(WINNING, OTHER))
    assert places(index) == []
    index.apply_patch("high", high(structs.replace(WINNING, effect="NoExecute")))
    assert places(index) == ["p/d0", "p/d1"]


def test_patch_that_is_gone_leaves_its_devices_to_the_next() -> None:
    middle = patch_of("middle", priority=0, created=CREATED.replace(year=2020), cel=["n > 0"], taints=[TAINT])
    index = index_of([numbered(0, 1, 2)], low(), middle, high(cel=["n > 1"]))
    assert (places(index), places(index, "middle"), places(index, "high")) == (["p/d0"], ["p/d1"], ["p/d2"])
    index.apply_patch("high", None)
    assert (places(index), places(index, "middle")) == (["p/d0"], ["p/d1", "p/d2"])
    index.apply_patch("middle", None)
    assert places(index) == ["p/d0", "p/d1", "p/d2"]


def test_tainted_are_devices_that_have_any_of_its_taints() -> None:
    """Of two taints one is lost on d1, the other nowhere; then both on devices of their own, and of the same."""
    slices = [numbered(0, 1, 2), numbered(0, 0, 0, pool="q")]
    index = index_of(slices, low(TAINT, OTHER), high(cel=["n > 1"]))
    assert (standing(index).selected, standing(index).tainted) == (6, 6)
    index.apply_patch("high", high(WINNING, OTHER, cel=["n > 1"]))
    assert (standing(index).selected, standing(index).tainted) == (6, 5)
    index.apply_patch("other", patch_of("other", priority=2, cel=["n > 0"], taints=[WINNING]))
    assert standing(index).tainted == 5
    index.apply_patch("high", high(OTHER, cel=["n > 0"]))
    assert standing(index).tainted == 4
    index.apply_patch("low", low())
    assert standing(index).tainted == 4
    index.apply_patch("low", structs.replace(low(), taints=()))
    assert (standing(index).selected, standing(index).tainted) == (6, 0)


def test_taints_that_lose_the_same_have_the_same_rules() -> None:
    index = index_of([numbered(0, 1, 1)], low(TAINT, OTHER), high(WINNING, structs.replace(OTHER, value="high")))
    assert places(index) == ["p/d0", "p/d0"]
    index.apply_patch("high", high())
    assert places(index) == ["p/d0", "p/d0", "p/d1", "p/d2"]


def test_lone_patch_is_no_contest() -> None:
    contests, pool = Contests(), ("d", "p")
    one, other = low(), high()
    contests.enter(one)
    contests.mark(origins_of(one), [pool])
    assert contests.pending == 0
    contests.enter(other)
    contests.mark(origins_of(one), [pool])
    assert contests.pending == 1
    selected = {"low": frozenset("ab"), "high": frozenset("b")}
    assert contests.step(lambda name, _: selected[name]) == {"low"}
    origin = Origin("taint", "k", "NoSchedule")
    assert contests.left_of(origin, "low") == {pool: frozenset("a")}
    assert contests.left_of(origin, "high") == {}
    contests.mark(origins_of(one), [pool])
    assert contests.step(lambda name, _: selected[name]) == set(), "it is as it was"
    contests.leave(other)
    contests.mark(origins_of(other), [pool])
    assert contests.step(lambda name, _: selected[name]) == {"low"}
    assert contests.left_of(origin, "low") == {}
    contests.mark(origins_of(one), [pool])
    assert contests.pending == 0
    contests.enter(other)
    contests.mark(origins_of(one), [pool])
    contests.leave(one)
    contests.leave(other)
    assert contests.step(lambda name, _: selected[name]) == set(), "both have left meanwhile"


def test_what_patches_before_it_take_together_is_lost_to_the_last() -> None:
    contests, pool = Contests(), ("d", "p")
    middle = patch_of("middle", priority=0, created=CREATED.replace(year=2020), taints=[TAINT])
    for patch in (low(), middle, high()):
        contests.enter(patch)
    contests.mark(origins_of(middle), [pool])
    selected = {"low": frozenset("abc"), "middle": frozenset("b"), "high": frozenset("c")}
    assert contests.step(lambda name, _: selected[name]) == {"low"}
    assert contests.left_of(Origin("taint", "k", "NoSchedule"), "low") == {pool: frozenset("a")}
