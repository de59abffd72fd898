"""The index of patches finds after any history what the pure functions find from scratch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.test_patches import CLASSES, DEVICES, DRIVERS, EXPRESSIONS, POOLS, patches, slices
from tests.unit.inventory.patched import by_number, class_of, slice_of
from tests.unit.patches.indexed import ByNumber, drained
from webhook.inventory.expansion import expansion
from webhook.inventory.patching import effective_devices
from webhook.inventory.pools import Pools
from webhook.patches.index import PatchIndex
from webhook.patches.standing import standing_of

if TYPE_CHECKING:
    from webhook.api.device_classes import DeviceClassSelectors
    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.slices import ResourceSlice

NAMES = "vwxyz"
CEILING = 3


class World:
    """What the index was given, for the pure functions."""

    def __init__(self) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClassSelectors] = {}
        self.patches: dict[str, ResourceSlicePatch] = {}
        self.index = PatchIndex(ByNumber())

    def put_slice(self, value: ResourceSlice) -> None:
        self.index.apply_slice(self.slices.get(value.meta.name), value)
        self.slices[value.meta.name] = value

    def drop_slice(self, at: int) -> None:
        if self.slices:
            name = sorted(self.slices)[at % len(self.slices)]
            self.index.apply_slice(self.slices.pop(name), None)

    def put_class(self, name: str, expression: str | None) -> None:
        self.classes.pop(name, None)
        if expression is not None:
            self.classes |= class_of(name, expression)
        self.index.apply_class(name, self.classes.get(name))

    def put_patch(self, patch: ResourceSlicePatch) -> None:
        self.patches[patch.meta.name] = patch
        self.index.apply_patch(patch.meta.name, patch)

    def drop_patch(self, name: str) -> None:
        self.patches.pop(name, None)
        self.index.apply_patch(name, None)

    def expected(self) -> dict[str, Any]:
        pools = Pools()
        for each in self.slices.values():
            pools.apply(None, each)
        found = effective_devices(pools, self.patches.values(), self.classes, by_number)
        rules = expansion(pools, self.patches.values(), found, CEILING)
        faults = Counter((fault.patch, fault.where) for fault in found.faults)
        return {
            name: (
                rules[name].rules,
                rules[name].needed,
                len(found.selected[name]),
                sum(
                    any(won == name and at.kind == "taint" for at, won in device.origins.items())
                    for device in found.devices.values()
                ),
                {where: count for (patch, where), count in faults.items() if patch == name},
                found.inapplicable.get(name, ""),
            )
            for name in self.patches
        }

    def found(self) -> dict[str, Any]:
        standings = {name: standing_of(self.index, name, CEILING) for name in self.patches}
        return {
            name: (
                each.rules,
                each.needed,
                each.selected,
                each.tainted,
                {fault.where: fault.devices for fault in each.faults},
                each.unusable,
            )
            for name, each in standings.items()
        }


_history = st.lists(
    st.one_of(
        slices().map(lambda found: [("put_slice", (each,)) for each in found]),
        st.integers(0, 9).map(lambda at: [("drop_slice", (at,))]),
        st.tuples(st.sampled_from(("any", "low", "high")), st.none() | st.sampled_from(EXPRESSIONS)).map(
            lambda found: [("put_class", found)]
        ),
        st.sampled_from(NAMES).flatmap(patches).map(lambda found: [("put_patch", (found,))]),
        st.sampled_from(NAMES).map(lambda name: [("drop_patch", (name,))]),
    ),
    max_size=12,
)


@given(slices(), _history, st.lists(st.integers(0, 12), min_size=1, max_size=8))
def test_index_agrees_with_the_pure_functions_after_any_history(
    first: list[ResourceSlice], history: list[list[tuple[str, tuple[Any, ...]]]], pauses: list[int]
) -> None:
    """Some changes come in the middle of the work for earlier ones."""
    world = World()
    for each in first:
        world.put_slice(each)
    for device_class in CLASSES.values():
        world.put_class(device_class.name, device_class.selectors[0].expression if device_class.selectors else None)
    for at, changes in enumerate(history):
        world.index.begin_pass()
        for change, arguments in changes:
            getattr(world, change)(*arguments)
        steps = pauses[at % len(pauses)]
        if steps < 10:  # the next change comes before the work is done
            for _ in range(steps):
                world.index.step()
        else:
            drained(world.index)
            assert world.found() == world.expected()
    drained(world.index)
    assert world.found() == world.expected()
    assert world.index.pending == 0


@given(slices(), st.lists(st.sampled_from(NAMES).flatmap(patches), max_size=5), _history)
def test_whatever_changed_is_reported(
    first: list[ResourceSlice], begun: list[ResourceSlicePatch], history: list[list[tuple[str, tuple[Any, ...]]]]
) -> None:
    """A patch that is not reported has the standing that it had."""
    world = World()
    for each in first:
        world.put_slice(each)
    for patch in begun:
        world.put_patch(patch)
    drained(world.index)
    for changes in history:
        before = world.found()
        world.index.take_changed()
        for change, arguments in changes:
            getattr(world, change)(*arguments)
        drained(world.index)
        after, changed = world.found(), world.index.take_changed()
        different = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert different <= changed


@given(slices(), st.sampled_from(DRIVERS), st.sampled_from(POOLS), st.permutations(DEVICES))
def test_slice_that_says_the_same_again_is_no_work(
    first: list[ResourceSlice], driver: str, pool: str, devices: list[str]
) -> None:
    world = World()
    for each in first:
        world.put_slice(each)
    world.put_slice(slice_of(*devices, driver=driver, pool=pool, generation=7))
    drained(world.index)
    world.index.take_changed_pools()
    world.put_slice(slice_of(*devices, driver=driver, pool=pool, generation=8, name=f"{driver}-{pool}-7"))
    drained(world.index)
    assert world.index.take_changed_pools() == set()
