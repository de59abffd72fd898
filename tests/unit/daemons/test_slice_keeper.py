"""Slices are written again until they have what patches set, and the patches say what has become of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from msgspec import structs

from tests.unit.cluster.peer import run, until
from tests.unit.patches.patched import DRIVER, class_of, patch_of, slice_of
from webhook.api.meta import ObjectMeta
from webhook.api.rules import Condition
from webhook.daemons.slice_keeper import KeeperParts, SliceKeeper
from webhook.patches.filters import DeviceSelectors
from webhook.patches.overriding import arrived, overridden
from webhook.patches.published import ORIGINALS, with_settings, written_devices
from webhook.patches.slice_patches import AppliedAttributes, SlicePatches
from webhook.patches.stored import PatchStatus, StoredPatch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from webhook.api.slices import DeviceClassSelectors, ResourceSlice
    from webhook.cluster.patch_writer import SliceToucher

N: Final = f"{DRIVER}/n"
FINE: Final = Condition("AttributesApplied", "True", "AttributesApplied", "the slices have what the patch sets")


class World:
    """Slices behind a webhook, or without one; and what the keeper reports."""

    def __init__(self) -> None:
        self.slices: dict[str, ResourceSlice] = {}
        self.patches: dict[str, StoredPatch] = {}
        self.classes: dict[str, DeviceClassSelectors] = {}
        self.problems: dict[str, str] = {}
        self.wanted: frozenset[str] = frozenset()
        self.touched: list[str] = []
        self.answers = True
        self.is_current = True
        self.reported: list[set[str]] = []
        parts = KeeperParts(
            toucher=cast("SliceToucher", self),
            current=lambda: self.is_current,
            report=lambda names: self.reported.append(set(names)),
            pause_seconds=0.001,
        )
        self.keeper = SliceKeeper(parts)

    def publish(self, name: str, n: int = 1, annotation: str = "", devices: int = 1) -> None:
        found = [{"name": f"gpu-{at}", "attributes": {"n": {"int": n}}} for at in range(devices)]
        value = slice_of(*found, name=name)
        self.store(
            structs.replace(value, meta=ObjectMeta(name, annotations={ORIGINALS: annotation} if annotation else {}))
        )

    def store(self, value: ResourceSlice) -> None:
        old, self.slices[value.meta.name] = self.slices.get(value.meta.name), value
        self.keeper.observe_slice(old, value)

    def patch(self, name: str = "patch", **fields: Any) -> StoredPatch:
        stored = self.patches[name] = StoredPatch(patch_of(name, **fields))
        self.keeper.observe_patch(name, stored)
        return stored

    def drop(self, name: str = "patch") -> None:
        del self.patches[name]
        self.keeper.observe_patch(name, None)

    def want(self, names: Collection[str]) -> None:
        self.wanted = frozenset(names)

    async def run(self) -> NoReturn:
        while True:
            await asyncio.sleep(0.001)
            for name in sorted(self.wanted) if self.answers else ():
                value = self._mutated(self.slices[name])
                if value != self.slices[name]:  # else the server says nothing of it
                    self.touched.append(name)
                    self.store(value)
                self.wanted -= {name}

    def _mutated(self, value: ResourceSlice) -> ResourceSlice:
        patches = SlicePatches.of([each.patch for each in self.patches.values()], self.classes)
        found = arrived(value, value, same_spec=True)
        result = overridden(found, patches.overrides(found, DeviceSelectors()), patches.ranking)
        raw: Any = [with_settings(device, result.devices[name]) for name, device in written_devices(value)]
        annotations = {ORIGINALS: result.annotation} if result.annotation else {}
        meta = ObjectMeta(value.meta.name, annotations=annotations)
        return structs.replace(value, raw_devices=raw, meta=meta)

    def values(self) -> list[Any]:
        return [
            device.get("attributes", {}).get("n", {}).get("int")
            for _, value in sorted(self.slices.items())
            for _, device in written_devices(value)
        ]

    def said(self, name: str = "patch", **status: Any) -> AppliedAttributes:
        return self.keeper.applied(structs.replace(self.patches[name], status=PatchStatus(**status)))


def play(world: World, *scenes: Callable[[], object], ends: Callable[[], bool] = lambda: True) -> None:
    """Each scene lasts until it returns something true or None."""

    async def test() -> None:
        task = asyncio.create_task(world.keeper.run())
        try:
            for scene in scenes:
                await until(lambda scene=scene: scene() in (None, True), "the scene")  # type: ignore[misc]
            await until(ends, "the end")
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    run(test())


def patched(*slices: str) -> World:
    world = World()
    for name in slices:
        world.publish(name)
    world.patch(attributes={N: 7})
    return world


def test_slices_are_written_for_a_new_a_changed_and_a_removed_patch() -> None:
    world = patched("a", "b")

    def other_value() -> None:
        world.patch(attributes={N: 8})

    play(
        world,
        lambda: world.values() == [7, 7],
        lambda: world.said() == AppliedAttributes(2, FINE),
        other_value,
        lambda: world.values() == [8, 8],
        world.drop,
        lambda: world.values() == [1, 1],
    )
    assert world.touched == ["a", "b"] * 3
    assert world.reported[0] == {"patch"}


def test_attribute_that_tells_partitions_apart_is_not_removed() -> None:
    """`/mutate` leaves such a patch out, so no write would change the slice."""
    world = World()
    world.answers = False
    counters = [{"counterSet": "card", "counters": {"memory": {"value": "1"}}}]
    device = {"name": "gpu-0", "consumesCounters": counters, "attributes": {"kind": {"string": "half"}}}
    world.store(slice_of(device, name="a", partitionTypeAttribute=f"{DRIVER}/kind"))
    world.patch(attributes={f"{DRIVER}/kind": None})

    def invalid() -> bool:
        condition = world.said().condition
        return condition is not None and condition.reason == "DeviceInvalid" and "must be set" in condition.message

    play(world, invalid)
    assert world.wanted == frozenset()


def test_slice_that_its_driver_writes_while_no_webhook_answers_is_put_right() -> None:
    world = patched("a", "b")
    play(world, lambda: world.values() == [7, 7], lambda: world.publish("a", 3), lambda: world.values() == [7, 7])
    assert world.touched == ["a", "b", "a"]


def test_status_says_which_slices_are_still_to_be_written_and_why() -> None:
    world = patched("a", "b")
    world.answers = False
    pending = Condition("AttributesApplied", "False", "SlicesPending", "2 slices still to be written: a, b")

    def fail() -> None:
        world.reported.clear()
        world.problems["b"] = "403: no"
        world.publish("other")

    said = Condition(
        "AttributesApplied", "False", "SlicesPending", "3 slices still to be written: a, b (403: no), other"
    )
    play(
        world,
        lambda: world.said() == AppliedAttributes(0, pending),
        fail,
        lambda: world.said() == AppliedAttributes(0, said),
    )
    assert {"patch"} in world.reported
    assert world.keeper.pending == 3
    world.is_current = False
    assert world.keeper.pending == 0, "a standby writes none"


def test_status_stays_as_it_is_while_slices_are_looked_at_and_is_asked_for_afterwards() -> None:
    world = patched("a")
    old = Condition("AttributesApplied", "True", "x")
    others = Condition("Expanded", "True", "x")
    assert world.said(patched_devices=5, conditions=(others, old)) == AppliedAttributes(5, old)
    assert world.said() == AppliedAttributes()

    def more() -> None:
        world.publish("z", 7)
        assert world.said(patched_devices=1, conditions=(old,)).condition is old
        world.reported.clear()

    play(world, lambda: world.said() == AppliedAttributes(1, FINE), more, ends=lambda: {"patch"} in world.reported)


def test_patch_that_sets_nothing_has_no_condition() -> None:
    world = patched("a")
    world.patch("taints", cel=["true"])
    play(world, lambda: world.said() == AppliedAttributes(1, FINE))
    assert world.said("taints", patched_devices=1, conditions=(FINE,)) == AppliedAttributes()


def test_classes_count() -> None:
    world = World()
    world.publish("a")
    world.patch(attributes={N: 7}, device_class_name="gpu")

    def add() -> None:
        world.classes = class_of("gpu", "device.driver == 'gpu.example.com'")
        world.keeper.observe_class("gpu", world.classes["gpu"])

    play(world, lambda: world.said() == AppliedAttributes(0, FINE), add, lambda: world.values() == [7])
    assert world.touched == ["a"]


def test_patch_that_is_being_deleted_counts_until_it_is_gone() -> None:
    """As in the webhook, which would put back what a touch is to take away."""
    world = patched("a")
    stored = world.patches["patch"]
    deleted = structs.replace(stored, patch=structs.replace(stored.patch, deleting=True))
    world.keeper.observe_patch("patch", deleted)
    play(world, lambda: world.values() == [7], lambda: world.said() == AppliedAttributes(1, FINE))


def test_many_slices_are_worked_out_a_few_at_a_time() -> None:
    """The event loop goes on in between."""
    world = World()
    for at in range(100):
        world.publish(f"s{at:03}", devices=2)
    world.patch(attributes={N: 7})
    turns = 0

    def turn() -> bool:
        nonlocal turns
        turns += 1
        return len(world.touched) >= 16

    play(world, turn, lambda: world.said() == AppliedAttributes(200, FINE))
    assert len(world.touched) == 100
    assert turns > 1
