"""Which slices have to be touched, and what is refused on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.unit.patches.patched import DRIVER, by_number, patch_of, slice_of
from webhook.api.meta import ObjectMeta
from webhook.patches.originals import ORIGINALS, Overridden, Setting, annotation_of
from webhook.patches.overriding import Refusal
from webhook.patches.slice_patches import SlicePatches, SliceWork, slice_work

if TYPE_CHECKING:
    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.slices import ResourceSlice

N = f"{DRIVER}/n"
SETTING = Setting("attributes", "n")
ONE, SEVEN = {"int": 1}, {"int": 7}


def stored(name: str, value: Any = None, kept: Overridden | None = None) -> ResourceSlice:
    device = {"name": "gpu-0", **({} if value is None else {"attributes": {"n": value}})}
    annotations = {} if kept is None else {ORIGINALS: annotation_of({"gpu-0": {SETTING: kept}})}
    return structs.replace(slice_of(device), meta=ObjectMeta(name, annotations=annotations))


def work(slices: list[ResourceSlice], *patches: ResourceSlicePatch, faults: Any = (), **known: bool) -> SliceWork:
    found = structs.replace(SlicePatches.of(patches, {}), **known)
    return slice_work(slices, found, by_number, lambda _: lambda _: faults)


SETS = patch_of("sets", attributes={N: 7})


def test_slices_that_are_not_as_patches_say_are_touched() -> None:
    slices = [
        stored("z-new", ONE),
        stored("a-other-value", {"int": 6}, Overridden(ONE, {"int": 6})),
        stored("done", SEVEN, Overridden(ONE, SEVEN, SEVEN)),
        stored("driver-s-own", SEVEN),
        stored("sent-while-down", ONE, Overridden(ONE, SEVEN, SEVEN)),
    ]
    expected = SliceWork(("a-other-value", "sent-while-down", "z-new"), {}, {"sets": 5})
    assert work(slices, SETS) == expected


def test_without_patches_only_what_is_left_of_them_is_looked_at() -> None:
    slices = [stored("plain", ONE), stored("left", SEVEN, Overridden(ONE, SEVEN)), stored("gone", ONE)]
    assert work(slices) == SliceWork(("left",), {}, {})


def test_nothing_is_touched_while_patches_are_not_known() -> None:
    slices = [stored("left", SEVEN, Overridden(ONE, SEVEN))]
    assert work(slices, known=False) == SliceWork((), {}, {})


def test_tombstones_stay_and_what_earlier_versions_kept_for_retries_goes() -> None:
    old = '{"version":1,"devices":{"gpu-0":{"attributes":{"n":{"was":{"int":1},"before":{"int":7},"since":1}}}}}'
    slices = [
        stored("tombstone", ONE, Overridden(ONE, sent=SEVEN)),
        structs.replace(stored("old", ONE), meta=ObjectMeta("old", annotations={ORIGINALS: old})),
    ]
    assert work(slices) == SliceWork(("old",), {}, {})


def test_annotation_that_a_hand_has_changed_is_written_again() -> None:
    value = stored("s", ONE)
    assert work([structs.replace(value, meta=ObjectMeta("s", annotations={ORIGINALS: "x"}))]).touch == ("s",)


def test_refused_patch_is_no_reason_to_touch() -> None:
    slices = [stored("b", ONE), stored("a", ONE)]
    found = slice_work(
        slices,
        SlicePatches.of([SETS], {}),
        by_number,
        lambda value: lambda device: [value.meta.name] if device["attributes"]["n"] == SEVEN else [],
    )
    refused = {name: (Refusal("sets", "gpu-0", name),) for name in ("a", "b")}
    assert found == SliceWork((), refused, {"sets": 0})
    assert list(found.refused) == ["a", "b"]


def test_devices_are_counted_by_the_patch_that_wins() -> None:
    devices = [{"name": f"gpu-{number}", "attributes": {"n": {"int": number}}} for number in range(3)]
    wins = patch_of("wins", cel=["n > 0"], attributes={N: 8}, priority=1)
    both = patch_of("both", cel=["n > 1"], attributes={N: 9}, capacity={f"{DRIVER}/c": "1"})
    found = work([slice_of(*devices, name="s")], SETS, wins, both)
    assert found.patched == {"wins": 2, "both": 1, "sets": 1}


def test_patch_that_is_refused_on_a_whole_slice_counts_no_device_of_it() -> None:
    long = {"string": "x" * 64}
    devices = [
        {"name": f"gpu-{number}", "attributes": {f"a{place}": long for place in range(32)}} for number in range(64)
    ]
    removes = patch_of("removes", attributes={f"{DRIVER}/a{place}": None for place in range(32)})
    found = work([slice_of(*devices, name="large"), stored("small", ONE)], removes)
    assert (list(found.refused), found.touch, found.patched) == (["large"], (), {"removes": 1})
    assert [each.device for each in found.refused["large"]] == [None]


def test_long_look_asks_whether_to_go_on() -> None:
    def check() -> None:
        raise TimeoutError

    slices = [stored(f"s{number}", ONE) for number in range(5000)]
    with pytest.raises(TimeoutError):
        slice_work(slices, SlicePatches(), by_number, lambda _: lambda _: (), check)
