"""The patches that change slices, what they set on the devices of one, and which slices have to be touched."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs

from tests.unit.inventory.values import taint
from tests.unit.patches.patched import CREATED, DRIVER, Together, by_number, class_of, patch_of, slice_of, work_on
from webhook.api.meta import ObjectMeta
from webhook.inventory.pools import names_pool
from webhook.patches.overriding import Override, Refusal, arrived
from webhook.patches.patching import Origin
from webhook.patches.published import ORIGINALS, Overridden, Setting, annotation_of
from webhook.patches.slice_patches import SlicePatches

if TYPE_CHECKING:
    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.slices import ResourceSlice


N = f"{DRIVER}/n"
ORIGIN = Origin("attribute", N)


def test_only_patches_that_set_something_matter_and_the_winner_comes_first() -> None:
    later = CREATED + timedelta(days=1)
    patches = SlicePatches.of(
        [
            patch_of("young", attributes={N: 1}, created=later),
            patch_of("taints", taints=[taint()]),
            patch_of("old", capacity={f"{DRIVER}/c": "1"}),
            patch_of("high", attributes={N: 1}, priority=1, created=later),
        ],
        class_of("gpu"),
    )
    assert patches.ranking == ("high", "old", "young")
    assert (patches.classes, patches.known) == (class_of("gpu"), True)


def test_filters_see_what_the_driver_publishes() -> None:
    """P-15: the patch that removes an attribute goes on selecting by it."""
    annotation = annotation_of({"gpu-0": {Setting("attributes", "n"): Overridden({"int": 3}, None)}})
    value = structs.replace(
        slice_of("gpu-0", {"name": "gpu-1", "attributes": {"n": {"int": 1}}}, "gpu-2"),
        meta=ObjectMeta("s", annotations={ORIGINALS: annotation}),
    )
    patch = patch_of(cel=["n > 2"], device_class_name="high", attributes={N: None})
    patches = SlicePatches.of([patch], class_of("high", "n > 0"))
    assert patches.overrides(arrived(value, None), by_number) == {"gpu-0": {ORIGIN: Override(None, "patch")}}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param({"anything": True}, True, id="no filter"),
        pytest.param({}, True, id="no names"),
        pytest.param({"driver": DRIVER, "pool": "node-0"}, True, id="its names"),
        pytest.param({"driver": "other.example.com"}, False, id="another driver"),
        pytest.param({"pool": "node-1"}, False, id="another pool"),
        pytest.param({"driver": DRIVER, "pool": "node-1"}, False, id="another pool of the driver"),
    ],
)
def test_patch_that_names_another_driver_or_pool_is_not_evaluated(names: Any, expected: Any) -> None:
    patch = patch_of(attributes={N: 7}, cel=["n > 0"], **names)
    value = slice_of({"name": "gpu-0", "attributes": {"n": {"int": 1}}})
    compiled: list[str] = []

    def compiles(expression: str) -> Any:
        compiled.append(expression)
        return by_number(expression)

    assert names_pool(patch.selector, (value.driver, value.pool)) == expected
    found = SlicePatches.of([patch], {}).overrides(arrived(value, None), compiles)
    assert (bool(found), bool(compiled)) == (expected, expected and "anything" not in names)


def test_without_patches_nothing_is_set() -> None:
    found = arrived(slice_of("gpu-0"), None)
    assert SlicePatches().overrides(found, by_number) == {}


def test_what_is_set_stays_so_while_patches_are_not_known() -> None:
    annotation = annotation_of({"gpu-0": {Setting("attributes", "n"): Overridden({"int": 3}, {"int": 7})}})
    value = structs.replace(slice_of("gpu-0"), meta=ObjectMeta("s", annotations={ORIGINALS: annotation}))
    patches = SlicePatches(known=False)
    found = arrived(value, None)
    assert patches.overrides(found, by_number) == {"gpu-0": {ORIGIN: Override({"int": 7}, "")}}


def test_long_look_asks_whether_to_go_on() -> None:
    def check() -> None:
        raise TimeoutError

    found = arrived(slice_of(*[f"gpu-{number}" for number in range(128)]), None)
    many = SlicePatches.of([patch_of(f"p{number}", attributes={N: 1}) for number in range(64)], {})
    with pytest.raises(TimeoutError):
        many.overrides(found, by_number, check)


SETTING = Setting("attributes", "n")
ONE, SEVEN = {"int": 1}, {"int": 7}


def stored(name: str, value: Any = None, kept: Overridden | None = None) -> ResourceSlice:
    device = {"name": "gpu-0", **({} if value is None else {"attributes": {"n": value}})}
    annotations = {} if kept is None else {ORIGINALS: annotation_of({"gpu-0": {SETTING: kept}})}
    return structs.replace(slice_of(device), meta=ObjectMeta(name, annotations=annotations))


def work(slices: list[ResourceSlice], *patches: ResourceSlicePatch, faults: Any = (), **known: bool) -> Together:
    found = structs.replace(SlicePatches.of(patches, {}), **known)
    return work_on(slices, found, lambda _: lambda _: faults)


SETS = patch_of("sets", attributes={N: 7})


def test_slices_that_are_not_as_patches_say_are_touched() -> None:
    slices = [
        stored("z-new", ONE),
        stored("a-other-value", {"int": 6}, Overridden(ONE, {"int": 6})),
        stored("done", SEVEN, Overridden(ONE, SEVEN, SEVEN)),
        stored("driver-s-own", SEVEN),
        stored("sent-while-down", ONE, Overridden(ONE, SEVEN, SEVEN)),
    ]
    expected = Together(("a-other-value", "sent-while-down", "z-new"), {}, {"sets": 5})
    assert work(slices, SETS) == expected


def test_without_patches_only_what_is_left_of_them_is_looked_at() -> None:
    slices = [stored("plain", ONE), stored("left", SEVEN, Overridden(ONE, SEVEN)), stored("gone", ONE)]
    assert work(slices) == Together(("left",), {}, {})


def test_nothing_is_touched_while_patches_are_not_known() -> None:
    slices = [stored("left", SEVEN, Overridden(ONE, SEVEN))]
    assert work(slices, known=False) == Together((), {}, {})


def test_tombstones_stay_and_what_earlier_versions_kept_for_retries_goes() -> None:
    old = '{"version":1,"devices":{"gpu-0":{"attributes":{"n":{"was":{"int":1},"before":{"int":7},"since":1}}}}}'
    slices = [
        stored("tombstone", ONE, Overridden(ONE, sent=SEVEN)),
        structs.replace(stored("old", ONE), meta=ObjectMeta("old", annotations={ORIGINALS: old})),
    ]
    assert work(slices) == Together(("old",), {}, {})


def test_annotation_that_a_hand_has_changed_is_written_again() -> None:
    value = stored("s", ONE)
    assert work([structs.replace(value, meta=ObjectMeta("s", annotations={ORIGINALS: "x"}))]).touch == ("s",)


def test_refused_patch_is_no_reason_to_touch() -> None:
    slices = [stored("b", ONE), stored("a", ONE)]
    found = work_on(
        slices,
        SlicePatches.of([SETS], {}),
        lambda value: lambda device: [value.meta.name] if device["attributes"]["n"] == SEVEN else [],
    )
    refused = {name: (Refusal("sets", "gpu-0", name),) for name in ("a", "b")}
    assert found == Together((), refused, {"sets": 0})
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
