"""The index of patches finds after any history what the pure functions find from scratch."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.patch_histories import NAMES, Given, histories
from tests.properties.test_patches import DEVICES, DRIVERS, POOLS, patches, slices
from tests.unit.patches.indexed import ByNumber, drained
from tests.unit.patches.patched import by_number, expansions, slice_of
from webhook.inventory.pools import Pools
from webhook.patches.index import PatchIndex
from webhook.patches.patching import effective_devices
from webhook.patches.status import standing_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.properties.patch_histories import Changes
    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.slices import ResourceSlice

CEILING = 3


class World(Given):
    """What the index was given, and what it and the pure functions find."""

    def __init__(self, first: Iterable[ResourceSlice] = ()) -> None:
        self.index = PatchIndex(ByNumber())
        super().__init__(self.index, first)

    def expected(self) -> dict[str, Any]:
        pools = Pools()
        for each in self.slices.values():
            pools.apply(None, each)
        found = effective_devices(pools, self.patches.values(), self.classes, by_number)
        rules = expansions(pools, self.patches.values(), found, CEILING)
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


@given(slices(), histories, st.lists(st.integers(0, 12), min_size=1, max_size=8))
def test_index_agrees_with_the_pure_functions_after_any_history(
    first: list[ResourceSlice], history: list[Changes], pauses: list[int]
) -> None:
    """Some changes come in the middle of the work for earlier ones."""
    world = World(first)
    world.put_classes()
    for at, changes in enumerate(history):
        world.index.fleet.forget_unused()
        world.change(changes)
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


@given(slices(), st.lists(st.sampled_from(NAMES).flatmap(patches), max_size=5), histories)
def test_whatever_changed_is_reported(
    first: list[ResourceSlice], begun: list[ResourceSlicePatch], history: list[Changes]
) -> None:
    """A patch that is not reported has the standing that it had."""
    world = World(first)
    for patch in begun:
        world.put_patch(patch)
    drained(world.index)
    for changes in history:
        before = world.found()
        world.index.take_changed()
        world.change(changes)
        drained(world.index)
        after, changed = world.found(), world.index.take_changed()
        different = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        assert different <= changed


@given(slices(), st.sampled_from(DRIVERS), st.sampled_from(POOLS), st.permutations(DEVICES))
def test_slice_that_says_the_same_again_is_no_work(
    first: list[ResourceSlice], driver: str, pool: str, devices: list[str]
) -> None:
    world = World(first)
    world.put_slice(slice_of(*devices, driver=driver, pool=pool, generation=7))
    drained(world.index)
    world.index.take_changed_pools()
    world.put_slice(slice_of(*devices, driver=driver, pool=pool, generation=8, name=f"{driver}-{pool}-7"))
    drained(world.index)
    assert world.index.take_changed_pools() == set()
