"""The ledger of slices has after any history what a look at all slices finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.patch_histories import Given, histories
from tests.properties.test_patches import slices
from tests.unit.patches.patched import Together, by_number, work_on
from webhook.patches.slice_patches import SliceLedger, SlicePatches, slice_work

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.properties.patch_histories import Changes
    from webhook.api.slices import ResourceSlice


class World(Given):
    """What the ledger was given, and its work."""

    def __init__(self, first: Iterable[ResourceSlice] = ()) -> None:
        self.ledger = SliceLedger()
        super().__init__(self.ledger, first)

    def work(self, most: int) -> None:
        for each in self.ledger.take(most):
            self.ledger.put(each, slice_work(each, self.ledger.patches, by_number, _faults))

    def drain(self) -> None:
        while self.ledger.open:
            self.work(2)


def _work(values: list[ResourceSlice], patches: SlicePatches) -> Together:
    return work_on(values, patches, lambda _: _faults)


def _faults(device: dict[str, Any]) -> list[str]:
    """Devices with more than one attribute are refused."""
    return ["no"] if len(device.get("attributes", ())) > 1 else []


@given(slices(), histories, st.lists(st.sampled_from((0, 1, 99)), min_size=1, max_size=8))
def test_ledger_agrees_with_a_look_at_all_slices_after_anyhistories(
    first: list[ResourceSlice], history: list[Changes], pauses: list[int]
) -> None:
    """Some changes come in the middle of the work for earlier ones. Statuses that changed were reported."""
    world = World(first)
    world.put_classes()
    reported: dict[str, Any] = {}
    for at, changes in enumerate(history):
        world.change(changes)
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


def _alone(world: World, name: str) -> Together:
    return _work([world.slices[name]], world.ledger.patches)
