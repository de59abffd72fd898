"""The ledger of slices has after any history what a look at all slices finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW
from tests.properties.test_patch_index import _history
from tests.properties.test_patches import CLASSES, slices
from tests.unit.inventory.patched import by_number, class_of
from webhook.inventory.slice_patches import SlicePatches
from webhook.inventory.slice_work import SliceWork, slice_work
from webhook.patches.slice_ledger import SliceLedger

if TYPE_CHECKING:
    from webhook.api.device_classes import DeviceClassSelectors
    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.slices import ResourceSlice


class World:
    """What the ledger was given, for the pure function."""

    def __init__(self) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClassSelectors] = {}
        self.patches: dict[str, ResourceSlicePatch] = {}
        self.ledger = SliceLedger()

    def put_slice(self, value: ResourceSlice) -> None:
        self.ledger.apply_slice(self.slices.get(value.meta.name), value)
        self.slices[value.meta.name] = value

    def drop_slice(self, at: int) -> None:
        if self.slices:
            name = sorted(self.slices)[at % len(self.slices)]
            self.ledger.apply_slice(self.slices.pop(name), None)

    def put_class(self, name: str, expression: str | None) -> None:
        self.classes.pop(name, None)
        if expression is not None:
            self.classes |= class_of(name, expression)
        self.ledger.apply_class(name, self.classes.get(name))

    def put_patch(self, patch: ResourceSlicePatch) -> None:
        self.patches[patch.meta.name] = patch
        self.ledger.apply_patch(patch.meta.name, patch)

    def drop_patch(self, name: str) -> None:
        self.patches.pop(name, None)
        self.ledger.apply_patch(name, None)

    def work(self, most: int) -> None:
        for each in self.ledger.take(most):
            self.ledger.put(each, _work([each], self.ledger.patches))

    def drain(self) -> None:
        while self.ledger.open:
            self.work(2)


def _work(values: list[ResourceSlice], patches: SlicePatches) -> SliceWork:
    """Devices with more than one attribute are refused."""
    return slice_work(values, patches, by_number, NOW, lambda _: _faults)


def _faults(device: dict[str, Any]) -> list[str]:
    return ["no"] if len(device.get("attributes", ())) > 1 else []


@given(slices(), _history, st.lists(st.sampled_from((0, 1, 99)), min_size=1, max_size=8))
def test_ledger_agrees_with_a_look_at_all_slices_after_any_history(
    first: list[ResourceSlice], history: list[list[tuple[str, tuple[Any, ...]]]], pauses: list[int]
) -> None:
    """Some changes come in the middle of the work for earlier ones. Statuses that changed were reported."""
    world = World()
    for each in first:
        world.put_slice(each)
    for device_class in CLASSES.values():
        world.put_class(device_class.name, device_class.selectors[0].expression if device_class.selectors else None)
    reported: dict[str, Any] = {}
    for at, changes in enumerate(history):
        for change, arguments in changes:
            getattr(world, change)(*arguments)
        world.work(pauses[at % len(pauses)])
        for name in world.ledger.take_changed():
            reported[name] = world.ledger.of(name)
    world.drain()
    for name in world.ledger.take_changed():
        reported[name] = world.ledger.of(name)
    expected = _work(list(world.slices.values()), SlicePatches.of(world.patches.values(), world.classes))
    assert world.ledger.touch == set(expected.touch)
    for name, number in expected.patched.items():
        found = world.ledger.of(name)
        assert world.ledger.sets(name)
        assert found.patched == number - sum(_alone(world, each).patched[name] for each in found.pending)
        refused = {
            where: [each for each in found if each.patch == name and each.device is not None]
            for where, found in expected.refused.items()
        }
        assert {where: list(each) for where, each in found.invalid.items()} == {
            where: each for where, each in refused.items() if each
        }
        assert reported[name] == found


def _alone(world: World, name: str) -> SliceWork:
    return _work([world.slices[name]], world.ledger.patches)
