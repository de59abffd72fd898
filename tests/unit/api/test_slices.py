from __future__ import annotations

from typing import Any

import pytest

from tests.builders import DRIVER, EARLIER_TEXT, KEY, decoded, make_basic_device, make_device, make_slice, make_taint
from webhook.api.meta import ObjectMeta, parse_time
from webhook.api.slices import Device, ResourceSlice, SliceTaint
from webhook.api.taints import DeviceTaint

TAINT = DeviceTaint(KEY, "", "NoSchedule", parse_time(EARLIER_TEXT))
META = ObjectMeta("node-0-gpu")
COUNTERS = [{"counterSet": "gpu-0", "counters": {"memory": {"value": "8Gi"}}}]


def test_slice_is_read() -> None:
    manifest = make_slice(
        [make_device("a", [make_taint()]), make_device("b", consumesCounters=[{}]), make_device("c", [])]
    )
    expected = ResourceSlice(
        META,
        DRIVER,
        "node-0",
        1,
        1,
        "node-0",
        (Device("a", (TAINT,)), Device("b", counter_sets=("",)), Device("c")),
        has_devices=True,
        distinct_taints=(TAINT,),
        raw_devices=manifest["spec"]["devices"],
    )
    assert decoded(manifest) == (expected, [])


def test_slice_of_v1beta1_is_read_to_the_same_values() -> None:
    written = make_slice([make_basic_device("a", [make_taint()], consumesCounters=COUNTERS)], version="v1beta1")
    device = decoded(written)[0].devices[0]
    assert device == Device("a", (TAINT,), basic=True, counter_sets=("gpu-0",))


@pytest.mark.parametrize(
    ("raw", "device"),
    [
        pytest.param({"name": "a"}, Device("a"), id="nothing but a name"),
        pytest.param({"name": "a", "basic": None}, Device("a"), id="null basic reads as not written"),
        pytest.param({"name": "a", "basic": {}}, Device("a", basic=True), id="empty basic is written"),
        pytest.param(None, Device(""), id="a null device reads as an empty one"),
    ],
)
def test_device_of_any_shape_is_read(raw: Any, device: Device) -> None:
    slice_, errors = decoded(make_slice([raw]))
    assert (slice_.devices, slice_.has_devices, slice_.distinct_taints, errors) == ((device,), True, (), [])


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="missing fields"),
        pytest.param(dict.fromkeys(["driver", "nodeName", "pool", "devices", "taints", "sharedCounters"]), id="nulls"),
    ],
)
def test_empty_slice_is_read(spec: dict[str, Any]) -> None:
    manifest = make_slice() | {"spec": spec}
    assert decoded(manifest) == (ResourceSlice(META), [])


def test_taints_beside_the_devices_are_read() -> None:
    manifest = make_slice([], taints=[{"device": "a", "taint": make_taint()}, {}])
    value, errors = decoded(manifest)
    assert value.slice_taints == (SliceTaint("a", TAINT), SliceTaint("", DeviceTaint()))
    assert errors == []


@pytest.mark.parametrize(
    ("attribute", "is_list"),
    [
        pytest.param({"ints": [1]}, True, id="integers"),
        pytest.param({"bools": []}, True, id="an empty list of booleans"),
        pytest.param({"strings": None}, False, id="null"),
        pytest.param({"string": "x"}, False, id="a single text"),
        pytest.param("x", False, id="no object at all"),
    ],
)
def test_list_attributes_are_looked_for_in_crowded_slices_only(attribute: Any, *, is_list: bool) -> None:
    def device(number: int) -> dict[str, Any]:
        return make_device(f"gpu-{number}", attributes={"plain": {"int": 1}, "odd": attribute})

    crowded, _ = decoded(make_slice([device(number) for number in range(65)]))
    assert {each.list_attributes for each in crowded.devices} == {is_list}
    small, _ = decoded(make_slice([device(number) for number in range(64)]))
    assert {each.list_attributes for each in small.devices} == {False}


@pytest.mark.parametrize("odd", [None, 7, "x"])
def test_list_is_found_behind_an_attribute_of_a_wrong_type(odd: Any) -> None:
    attributes = {"odd": odd, "list": {"ints": [1]}}
    crowded, _ = decoded(make_slice([make_device(f"gpu-{number}", attributes=attributes) for number in range(65)]))
    assert {each.list_attributes for each in crowded.devices} == {True}


def test_attributes_of_a_wrong_type_are_told_in_a_crowded_slice() -> None:
    devices = [make_device(f"gpu-{number}", attributes=7 if number == 3 else {}) for number in range(65)]
    _, errors = decoded(make_slice(devices))
    assert [error.field for error in errors] == ["spec.devices[3].attributes"]


def test_taints_of_a_wrong_type_are_told_of_an_otherwise_usual_device() -> None:
    value, errors = decoded(make_slice([{"name": "a", "taints": {}}]))
    assert (value.devices, [error.field for error in errors]) == ((Device("a"),), ["spec.devices[0].taints"])


def test_equal_taints_of_many_devices_are_distinct_once() -> None:
    devices = [make_device(f"gpu-{number}", [make_taint(value="v")]) for number in range(5)]
    value, _ = decoded(make_slice(devices))
    assert len(value.distinct_taints) == 1


def test_wrong_types_in_a_slice_are_told() -> None:
    spec = {
        "driver": 1,
        "nodeName": 2,
        "pool": {"name": 3, "generation": "4", "resourceSliceCount": 5.5},
        "devices": [{"name": 6, "taints": {}}, {"basic": []}],
        "taints": [{"device": 7, "taint": []}],
    }
    _, errors = decoded(make_slice() | {"spec": spec})
    assert sorted({error.field for error in errors}) == [
        "spec.devices[0].name",
        "spec.devices[0].taints",
        "spec.devices[1].basic",
        "spec.driver",
        "spec.nodeName",
        "spec.pool.generation",
        "spec.pool.name",
        "spec.pool.resourceSliceCount",
        "spec.taints[0].device",
        "spec.taints[0].taint",
    ]


@pytest.mark.parametrize(
    ("written", "names"),
    [
        pytest.param(COUNTERS, ("gpu-0",), id="one"),
        pytest.param([{"counterSet": "b"}, {"counterSet": "a"}], ("b", "a"), id="two, in their order"),
        pytest.param([{"counterSet": "a"}, {"counterSet": "a"}], ("a",), id="one of them twice"),
        pytest.param([{"counters": {}}, None, 7, {"counterSet": 7}], ("",), id="without a name that can be read"),
        pytest.param([], (), id="none"),
        pytest.param({}, (), id="nothing of another type"),
        pytest.param({"counterSet": "a"}, ("",), id="no list"),
        pytest.param(None, (), id="null"),
    ],
)
def test_counter_sets_that_a_device_draws_on(written: Any, names: tuple[str, ...]) -> None:
    slice_, errors = decoded(make_slice([make_device("a", consumesCounters=written)]))
    (device,) = slice_.devices
    assert (device.counter_sets, errors) == (names, [])


def test_counter_sets_that_a_slice_publishes() -> None:
    slice_, errors = decoded(make_slice(sharedCounters=[{"name": "gpu-0"}, {"name": "gpu-1", "counters": {}}]))
    assert (slice_.counter_sets, slice_.has_shared_counters, errors) == (("gpu-0", "gpu-1"), True, [])


def crowded(devices: int, taints: int) -> dict[str, Any]:
    return make_slice(
        [
            make_device(f"d{at}", [make_taint(key=f"{taints}of{devices}/k{each}d{at}") for each in range(taints)])
            for at in range(devices)
        ]
    )


@pytest.mark.parametrize(
    ("devices", "taints", "read"),
    [
        pytest.param(128, 16, 2048, id="as many as any slice may have"),
        pytest.param(200, 16, 2064, id="too many devices"),
        pytest.param(128, 32, 2080, id="too many on each device"),
    ],
)
def test_taints_past_what_a_slice_may_have_are_not_read(devices: int, taints: int, read: int) -> None:
    """A list in each entry of a list: hundreds of thousands of taints held the loop for seconds."""
    value, errors = decoded(crowded(devices, taints))
    assert not errors
    assert [device.name for device in value.devices] == [f"d{at}" for at in range(devices)]
    assert sum(len(device.taints) for device in value.devices) == read
