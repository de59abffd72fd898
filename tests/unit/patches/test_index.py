"""The index of patches: what a change costs, and what happens in the middle of the work. See properties too."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any, Final

import pytest
from msgspec import structs

from tests.costs import calls_of
from tests.unit.patches.indexed import ByNumber, drained, index_of
from tests.unit.patches.patched import CREATED, DRIVER, class_of, patch_of, slice_of, slices_read
from webhook.api.rules import DeviceSelector
from webhook.api.taints import DeviceTaint
from webhook.expressions.selectors import selector as selectors
from webhook.patches.filter_match import Fleet
from webhook.patches.filters import SharedSelectors
from webhook.patches.index import Contests, PatchIndex
from webhook.patches.patching import Origin, taints_of_patch
from webhook.patches.published import ORIGINALS, Overridden, Setting, annotation_of
from webhook.patches.status import Standing, standing_of

TAINT: Final = DeviceTaint("k", "", "NoSchedule", CREATED)
OTHER: Final = DeviceTaint("l", "", "NoSchedule", CREATED)
NAMES: Final = DeviceSelector(DRIVER)


def numbered(*numbers: int | None, pool: str = "p", generation: int = 1, count: int = 1, **fields: Any) -> Any:
    devices = [
        {"name": f"d{at}", "attributes": {} if number is None else {"n": {"int": number}}}
        for at, number in enumerate(numbers)
    ]
    name = fields.pop("name", f"s-{pool}")
    value = slice_of(*devices, pool=pool, generation=generation, name=name, **fields)
    return structs.replace(value, slice_count=count)


def places(index: PatchIndex, name: str = "patch", ceiling: int = 100) -> list[tuple[str | None, str | None]]:
    """Where its rules are, once nothing is left to do."""
    drained(index)
    found = standing_of(index, name, ceiling).rules
    return [(each.selector.pool, each.selector.device) for each in found]


def fleet(pools: int, patches: int) -> PatchIndex:
    """Patches of filters of their own."""
    found = [patch_of(f"p{at}", cel=[f"n > {at % 3}"], priority=at, taints=[TAINT]) for at in range(patches)]
    return index_of([numbered(0, 1, 2, pool=f"p{at}") for at in range(pools)], *found)


def test_changed_slice_costs_a_look_at_its_own_devices() -> None:
    """Ten times the pools are not ten times the work: what grows is one comparison of names for each pool."""

    def change(index: PatchIndex) -> None:
        index.apply_slice(None, numbered(2, 1, 0, pool="p0", generation=2))
        drained(index)

    few, many = (calls_of(change, partial(fleet, pools, 6)) for pools in (10, 100))
    assert many <= few + 10


def test_slice_with_the_same_devices_is_matched_with_nothing() -> None:
    index = fleet(3, 6)
    index.take_changed()
    index.take_changed_pools()
    index.apply_slice(None, numbered(0, 1, 2, pool="p0", generation=2))
    assert drained(index) == 1
    assert (index.take_changed(), index.take_changed_pools()) == (set(), set())


def test_only_pools_that_a_filter_names_are_matched() -> None:
    slices = [numbered(0, 1, pool=f"p{at}") for at in range(3)]
    index = index_of(slices, patch_of("x", cel=["n > 0"], pool="p1", taints=[TAINT]))
    index.take_changed()
    for at in (0, 2):
        index.apply_slice(None, numbered(1, 1, pool=f"p{at}", generation=2))
    assert drained(index) == 2
    assert index.take_changed() == set()
    index.apply_slice(None, numbered(1, 1, pool="p1", generation=2))
    assert drained(index) > 1
    assert index.take_changed() == {"x"}


@pytest.mark.parametrize(("first", "faults"), [("driver", []), ("number", [("selector #0", ["b.example"])])])
def test_driver_that_the_first_selector_rules_out_is_not_matched(first: str, faults: Any) -> None:
    """One that a later selector rules out is asked by the first, which may fail there, as an API server would do."""
    index = PatchIndex(SharedSelectors())
    index.apply_slice(None, numbered(1, 2))
    index.apply_slice(None, slice_of("a", driver="b.example"))
    drained(index)
    cel = {"driver": f'device.driver == "{DRIVER}"', "number": f'device.attributes["{DRIVER}"].n > 1'}
    index.apply_patch("patch", patch_of(cel=[cel.pop(first), *cel.values()], taints=[TAINT]))
    assert index.pending == 1
    assert places(index) == [("p", "d1")]
    found = standing_of(index, "patch", 100).faults
    assert [(each.where, [example.device.driver for example in each.examples]) for each in found] == faults


def test_new_devices_concern_patches_for_their_driver_alone() -> None:
    """Other names make other covers, also of a pool that stays as it is."""
    index = index_of([numbered(1, 1)], patch_of("x", driver=DRIVER, cel=["n > 0"], taints=[TAINT]))
    assert places(index, "x", 1) == [(None, None)]
    index.take_changed()
    index.apply_slice(None, numbered(0, pool="q"))
    drained(index)
    assert (index.take_changed(), places(index, "x", 1)) == ({"x"}, [("p", None)])
    index.apply_slice(None, slice_of("a", driver="b.example"))
    drained(index)
    assert index.take_changed() == set()


def test_patches_with_the_same_filter_share_the_work() -> None:
    slices = [numbered(0, 1, pool=f"p{at}") for at in range(3)]
    index = index_of(slices, patch_of("x", cel=["n > 0"], taints=[TAINT]))
    index.apply_patch("y", patch_of("y", cel=["n > 0"], taints=[OTHER]))
    assert index.pending == 0
    assert places(index, "y") == places(index, "x") == [(f"p{at}", "d1") for at in range(3)]
    index.apply_patch("x", None)
    index.apply_slice(None, numbered(1, 1, pool="p0", generation=2))
    assert places(index, "y") == [("p0", "d0"), ("p0", "d1"), ("p1", "d1"), ("p2", "d1")]
    index.apply_patch("y", None)
    index.apply_slice(None, numbered(0, 1, pool="p0", generation=3))
    assert drained(index) == 1, "no filter is left"


def test_metadata_of_a_patch_is_no_change() -> None:
    patch = patch_of("x", cel=["n > 0"], taints=[TAINT])
    index = index_of([numbered(0, 1)], patch)
    index.take_changed()
    index.apply_patch("x", structs.replace(patch, meta=structs.replace(patch.meta, resource_version="8")))
    assert index.take_changed() == set()
    assert index.patches["x"].meta.resource_version == "8"
    index.apply_patch("x", structs.replace(patch, meta=structs.replace(patch.meta, uid="other")))
    assert index.take_changed() == {"x"}


def test_class_that_changes_in_the_middle_of_a_match_counts() -> None:
    index = index_of([numbered(0, 1, *[0] * 40)], patch_of(device_class_name="c", taints=[TAINT]))
    assert standing_of(index, "patch", 100).unusable == "device class c does not exist"
    index.apply_class("c", class_of("c", "n > -1")["c"])
    index.step()
    index.apply_class("c", class_of("c", "n > 0")["c"])
    assert places(index) == [("p", "d1")]
    index.apply_class("c", None)
    drained(index)
    assert standing_of(index, "patch", 100).unusable == "device class c does not exist"
    index.apply_class("c", class_of("c", "n > 0")["c"])
    assert places(index) == [("p", "d1")]


def test_filter_without_its_class_asks_no_device() -> None:
    selectors = ByNumber()
    index = PatchIndex(selectors)
    for pool in ("p", "q"):
        index.apply_slice(None, numbered(1, pool=pool))
    index.apply_class("c", class_of("c", "n > 0")["c"])
    index.apply_patch("patch", patch_of(device_class_name="c", taints=[TAINT]))
    drained(index)
    asked = selectors.forgotten
    index.apply_class("c", None)
    drained(index)
    assert (asked, selectors.forgotten) == (2, 2)
    assert standing_of(index, "patch", 100) == Standing((), 0, 0, 0, (), "device class c does not exist")


@pytest.mark.parametrize("steps", [0, 1, 99])
def test_class_that_is_another_drivers_by_now_selects_nothing_here(steps: int) -> None:
    """Before the pool was matched with what the class was, in the middle of it, and afterwards."""
    index = PatchIndex(SharedSelectors())
    index.apply_slice(None, numbered(*[1] * 40))
    index.apply_patch("patch", patch_of(device_class_name="c", taints=[TAINT]))
    index.step()
    index.apply_class("c", class_of("c", f'device.driver == "{DRIVER}"')["c"])
    for _ in range(steps):
        index.step()
    index.apply_class("c", class_of("c", 'device.driver == "b.example"')["c"])
    drained(index)
    assert standing_of(index, "patch", 100).selected == 0


def test_match_of_a_large_pool_is_pending_until_its_last_device() -> None:
    index = index_of([numbered(*range(8))])
    index.apply_patch("patch", patch_of(cel=["n > 0"], taints=[TAINT]))
    seen = [index.pending]
    while index.step():
        seen.append(index.pending)
    assert seen == [1, 1, 1, 0], "a filter, its pool, the rest of it"


def test_pending_counts_everything_that_is_left() -> None:
    index = PatchIndex(ByNumber())
    for pool in ("p", "q"):
        index.apply_slice(None, numbered(1, pool=pool))
    for name in ("x", "y"):
        index.apply_patch(name, patch_of(name, cel=[f"n > {name == 'y':d}"], taints=[TAINT]))
    index.apply_patch("z", patch_of("z", taints=[TAINT]))
    seen = [index.pending]
    while index.step():
        seen.append(index.pending)
    assert seen[0] == 5, "two pools to read, and three filters"
    # A pool that was read is to be matched with two filters, and there is a contest in it.
    assert seen[1:3] == [7, 9]
    assert seen[3:6] == [8, 7, 6], "the filters have nothing more to match"
    assert seen[6:] == [5, 4, 3, 2, 1, 0]


def test_fleet_counts_pools_that_are_alike() -> None:
    fleet = Fleet()
    ab, a = frozenset("ab"), frozenset("a")
    for pool in ("p", "q", "r"):
        assert fleet.put(("d", pool), ab)
        assert not fleet.put(("d", pool), ab)
    assert fleet.put(("d", "r"), a)
    assert fleet.cover("d", {"p": ab, "q": ab}).needed == 2
    assert fleet.cover("d", {"p": ab, "q": ab, "r": a}).everything
    assert fleet.put(("d", "q"), None)
    assert not fleet.put(("d", "q"), None)
    fleet.forget_unused()
    assert fleet.cover("d", {"p": ab, "r": a}).everything
    assert fleet.of(("d", "p")) == ab
    assert (fleet.of(("d", "q")), fleet.of(("e", "p"))) == (frozenset(), frozenset())
    assert list(fleet.named(DeviceSelector(pool="p", device="b"))) == [(("d", "p"), frozenset("b"))]
    assert list(fleet.named(DeviceSelector("d", device="b"))) == [(("d", "p"), frozenset("b"))]
    assert list(fleet.named(DeviceSelector("e"))) == []


def test_class_that_says_the_same_is_no_work() -> None:
    index = index_of([numbered(0, 1)], patch_of(device_class_name="c", taints=[TAINT]), classes=class_of("c", "n > 0"))
    index.take_changed()
    index.apply_class("c", class_of("c", "n > 0")["c"])
    assert drained(index) == 0
    assert index.take_changed() == set()


def test_pool_that_is_being_published_counts_as_it_was() -> None:
    first, second = numbered(1, 0, name="s1", count=2), slice_of("x", pool="p", name="s2")
    index = index_of([first, structs.replace(second, slice_count=2)], patch_of(cel=["n > 0"], taints=[TAINT]))
    assert places(index) == [("p", "d0")]
    index.apply_slice(first, numbered(1, 1, name="s1", count=2, generation=2))
    assert places(index) == [("p", "d0")]
    index.apply_patch("new", patch_of("new", cel=["n > -1"], taints=[OTHER]))
    assert places(index, "new") == [("p", "d0"), ("p", "d1")], "of the generation that was there in full"
    index.apply_slice(second, structs.replace(second, slice_count=2, pool_generation=2))
    assert places(index) == [("p", "d0"), ("p", "d1")]
    assert [each.meta.name for each in index.slices_of((DRIVER, "p"))] == ["s1", "s2"]


def test_generation_before_counts_beside_one_that_was_never_there_in_full() -> None:
    """As after a start in the middle of it; the newer slice says what its devices are. Alone it counts, too."""
    newer = numbered(1, 0, name="a", count=2, generation=3)
    assert places(index_of([newer], patch_of(cel=["n > 0"], taints=[TAINT]))) == [("p", "d0")]
    oldest = numbered(9, 9, 9, name="s0", count=3, generation=1)
    older = numbered(1, 1, 0, name="z", count=2, generation=2)
    index = index_of([oldest, older, newer], patch_of(cel=["n > 0"], taints=[TAINT]))
    assert places(index) == [("p", "d0")], "d1 is in both, and d2 in the older one"
    assert index.fleet.of((DRIVER, "p")) == {"d0", "d1", "d2"}
    index.apply_slice(older, numbered(1, pool="p", name="z", count=2, generation=3))
    drained(index)
    assert [each.meta.name for each in index.slices_of((DRIVER, "p"))] == ["a", "z"]


def test_ceiling_is_the_most_that_there_may_be_of_all_taints_together() -> None:
    index = index_of([numbered(1, 0, pool="p"), numbered(0, 1, pool="q")], patch_of(cel=["n > 0"], taints=[TAINT]))
    assert len(standing_of(index, "patch", 2).rules) == 2
    over = standing_of(index, "patch", 1)
    assert (over.rules, over.needed, over.selected, over.tainted) == ((), 2, 2, 2)
    index = index_of([numbered(1, 1)], patch_of(driver=DRIVER, cel=["n > 0"], taints=[TAINT, OTHER]))
    assert places(index, ceiling=4) == [("p", "d0"), ("p", "d1")] * 2
    assert places(index, ceiling=3) == [(None, None)] * 2


def test_pool_is_read_once_for_all_filters() -> None:
    selectors = ByNumber()
    index = PatchIndex(selectors)
    for pool in ("p", "q"):
        index.apply_slice(None, numbered(0, 1, pool=pool))
    for at in range(3):
        index.apply_patch(f"x{at}", patch_of(f"x{at}", cel=[f"n > {at}"], taints=[TAINT]))
    drained(index)
    assert selectors.forgotten == 2
    index.apply_slice(None, numbered(1, 1, pool="q", generation=2))
    drained(index)
    assert selectors.forgotten == 3
    assert places(index, "x0") == [("p", "d1"), ("q", "d0"), ("q", "d1")]


def test_dear_filter_selects_the_same_after_a_restart() -> None:
    """Device by device, and all of them at once."""
    hundred = str(list(range(100)))
    n = f'device.attributes["{DRIVER}"].n'
    dear = f"{n} < 3 ? {hundred}.all(x, x >= 0) : {hundred}.all(x, {hundred}.all(y, x + y >= 0))"
    found = []
    for parts in ([[1, 2, 3, 1]], [[1], [1, 2], [1, 2, 3], [1, 2, 3, 1]]):
        index, old = PatchIndex(SharedSelectors()), None
        index.apply_patch("patch", patch_of(cel=[dear], taints=[TAINT]))
        for values in parts:
            new = numbered(*values)
            index.fleet.forget_unused()
            index.apply_slice(old, new)
            drained(index)
            old = new
        standing = standing_of(index, "patch", 100)
        found.append((standing.selected, sum(each.devices for each in standing.faults), places(index)))
    assert found[0] == found[1]
    assert found[0][:2] == (3, 1)


def test_driver_s_own_value_that_changes_under_an_override_counts() -> None:
    """The devices in the slice stay as they are: only the annotation says what the driver publishes."""
    index = index_of([_overridden(1)], patch_of(cel=["n > 1"], taints=[TAINT]))
    assert places(index) == []
    index.apply_slice(_overridden(1), _overridden(2))
    assert places(index) == [("p", "d0")]


def _overridden(was: int) -> Any:
    kept = {"d0": {Setting("attributes", "n"): Overridden({"int": was}, {"int": 0})}}
    value = numbered(0)
    return structs.replace(value, meta=structs.replace(value.meta, annotations={ORIGINALS: annotation_of(kept)}))


def test_selectors_of_a_class_are_compiled_once_for_all_filters_that_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """And those of a filter are not compiled again when its class changes."""
    compiled: list[str] = []
    measured = selectors._measured

    def watched(expression: str, budget: Any) -> object:
        compiled.append(expression)
        return measured(expression, budget)

    monkeypatch.setattr(selectors, "_measured", watched)
    long = " || ".join(["1 < 2"] * 300)
    index = PatchIndex(SharedSelectors())
    for number in range(3):
        own = f"{long} || {number} < 0"
        index.apply_patch(str(number), patch_of(str(number), cel=[own], device_class_name="c"))
    for number in range(2):
        compiled.clear()
        index.apply_class("c", class_of("c", f"{long} && {number} < 9")["c"])
        assert [text for text in compiled if "&&" in text] == [f"{long} && {number} < 9"]
    assert len(compiled) == 1


def test_no_step_reads_more_than_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node may publish a pool of hundreds of slices."""
    read = slices_read(monkeypatch)
    index, most = PatchIndex(SharedSelectors()), [0]
    for at in range(9):
        index.apply_slice(None, numbered(1, name=f"s-{at}", count=9))
    index.apply_patch("x", patch_of("x", cel=["true"], taints=[TAINT]))
    while index.step():
        most.append(len(read))
    assert len(read) == 9
    assert max(after - before for before, after in pairwise(most)) == 1


def test_pool_that_is_gone_is_forgotten() -> None:
    value = numbered(1, None)
    index = index_of([value], patch_of(cel=["n > 0"], taints=[TAINT]))
    assert standing_of(index, "patch", 100).faults
    index.apply_slice(value, None)
    drained(index)
    standing = standing_of(index, "patch", 100)
    assert (standing.rules, standing.selected, standing.faults) == ((), 0, ())
    assert index.slices_of((DRIVER, "p")) == ()


def test_patch_without_taints_taints_no_device() -> None:
    standing = standing_of(index_of([numbered(0, 1)], patch_of()), "patch", 100)
    assert (standing.selected, standing.tainted) == (2, 0)


LOW: Final = patch_of("low", cel=["n > -1"], taints=[TAINT])
HIGH: Final = patch_of("high", priority=1, cel=["n > 0"], taints=[structs.replace(TAINT, value="high")])


def test_lone_patch_is_no_contest() -> None:
    contests, pool = Contests(), ("d", "p")
    one, other = LOW, HIGH
    contests.enter(one)
    contests.mark(taints_of_patch(one), [pool])
    assert contests.pending == 0
    contests.enter(other)
    contests.mark(taints_of_patch(one), [pool])
    assert contests.pending == 1
    selected = {"low": frozenset("ab"), "high": frozenset("b")}
    assert contests.step(lambda name, _: selected[name]) == {"low"}
    origin = Origin("taint", "k", "NoSchedule")
    assert contests.left_of(origin, "low") == {pool: frozenset("a")}
    assert contests.left_of(origin, "high") == {}
    contests.mark(taints_of_patch(one), [pool])
    assert contests.step(lambda name, _: selected[name]) == set(), "it is as it was"
    contests.leave(other)
    contests.mark(taints_of_patch(other), [pool])
    assert contests.step(lambda name, _: selected[name]) == {"low"}
    assert contests.left_of(origin, "low") == {}
    contests.mark(taints_of_patch(one), [pool])
    assert contests.pending == 0
    contests.enter(other)
    contests.mark(taints_of_patch(one), [pool])
    contests.leave(one)
    contests.leave(other)
    assert contests.step(lambda name, _: selected[name]) == set(), "both have left meanwhile"


def test_what_patches_before_it_take_together_is_lost_to_the_last() -> None:
    contests, pool = Contests(), ("d", "p")
    middle = patch_of("middle", priority=0, created=CREATED.replace(year=2020), taints=[TAINT])
    for patch in (LOW, middle, HIGH):
        contests.enter(patch)
    contests.mark(taints_of_patch(middle), [pool])
    selected = {"low": frozenset("abc"), "middle": frozenset("b"), "high": frozenset("c")}
    assert contests.step(lambda name, _: selected[name]) == {"low"}
    assert contests.left_of(Origin("taint", "k", "NoSchedule"), "low") == {pool: frozenset("a")}
