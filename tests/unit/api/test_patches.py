from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, EARLIER_TEXT, KEY, decoded, make_meta, make_patch, make_taint
from webhook.api.meta import GROUP, ObjectMeta, parse_time
from webhook.api.patches import (
    SOFTENED_KEYS,
    PatchedAttribute,
    PatchedCapacity,
    ResourceSlicePatch,
)
from webhook.api.rules import DeviceSelector
from webhook.api.taints import DeviceTaint


def test_patch_is_read() -> None:
    manifest = make_patch(
        priority=-5,
        attributes={"a.example/b": {"int": 3}},
        capacity={"a.example/c": {"value": "1Gi"}},
        taints=[make_taint()],
    )
    expected = ResourceSlicePatch(
        ObjectMeta("firmware"),
        DeviceSelector(DRIVER),
        -5,
        (PatchedAttribute("a.example/b", ("int",), 3),),
        (PatchedCapacity("a.example/c", "1Gi"),),
        (DeviceTaint(KEY, "", "NoSchedule", parse_time(EARLIER_TEXT)),),
    )
    assert decoded(manifest) == (expected, [])


@pytest.mark.parametrize(
    ("raw", "attribute"),
    [
        pytest.param({"bool": False}, PatchedAttribute("x", ("bool",), value=False), id="a boolean, even if false"),
        pytest.param({"string": ""}, PatchedAttribute("x", ("string",), ""), id="a text, even if empty"),
        pytest.param({"version": "1.2.3"}, PatchedAttribute("x", ("version",), "1.2.3"), id="a version"),
        pytest.param({"null": {}}, PatchedAttribute("x", ("null",)), id="null: {} removes (P-8)"),
        pytest.param({"null": None}, PatchedAttribute("x", ()), id="null: null sets nothing (P-8)"),
        pytest.param({"int": 1, "bool": True}, PatchedAttribute("x", ("int", "bool")), id="two values at once"),
        pytest.param(None, PatchedAttribute("x", ()), id="nothing"),
    ],
)
def test_attribute_is_read(raw: Any, attribute: PatchedAttribute) -> None:
    patch, errors = decoded(make_patch(attributes={"x": raw}))
    assert (patch.attributes, errors) == ((attribute,), [])


@pytest.mark.parametrize("spec", [None, {}, {"devices": None}, {"devices": {"filter": None}}])
def test_patch_without_filter_is_read(spec: Any) -> None:
    assert decoded(make_patch() | {"spec": spec}) == (ResourceSlicePatch(ObjectMeta("firmware"), None), [])


def test_wrong_types_in_a_patch_are_told() -> None:
    _, errors = decoded(
        make_patch(
            filter_=[],
            priority="high",
            attributes={"a": {"int": "1"}, "b": {"bool": 1}, "c": {"string": 1}, "d": {"null": 1}, "e": 1},
            capacity=[],
            taints={},
        )
    )
    assert [error.field for error in errors] == [
        "spec.devices.filter",
        "spec.devices.priority",
        "spec.devices.attributes[a].int",
        "spec.devices.attributes[b].bool",
        "spec.devices.attributes[c].string",
        "spec.devices.attributes[d].null",
        "spec.devices.attributes[e]",
        "spec.devices.capacity",
        "spec.devices.taints",
    ]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        pytest.param({"value": "1Gi"}, "1Gi", id="a text"),
        pytest.param({"value": 4}, 4, id="a number"),
        pytest.param({"value": 1.5}, 1.5, id="a fraction"),
        pytest.param({"value": None}, None, id="null is nothing"),
        pytest.param({}, None, id="nothing"),
        pytest.param(None, None, id="no object"),
    ],
)
def test_capacity_is_read(raw: Any, value: Any) -> None:
    patch, errors = decoded(make_patch(capacity={"x": raw}))
    assert (patch.capacity, errors) == ((PatchedCapacity("x", value),), [])


@pytest.mark.parametrize("raw", ["1Gi", {"value": True}, {"value": ["1"]}, {"value": {}}])
def test_wrong_type_of_a_capacity_is_reported(raw: Any) -> None:
    patch, errors = decoded(make_patch(capacity={"x": raw}))
    where = "spec.devices.capacity[x]" + (".value" if isinstance(raw, dict) else "")
    assert (patch.capacity, [error.field for error in errors]) == ((PatchedCapacity("x"),), [where])


def test_creation_time_is_read() -> None:
    patch, errors = decoded(make_patch(meta=make_meta("p") | {"creationTimestamp": EARLIER_TEXT}))
    assert (patch.created, patch.deleting, errors) == (parse_time(EARLIER_TEXT), False, [])
    patch, errors = decoded(make_patch(meta=make_meta("p") | {"deletionTimestamp": EARLIER_TEXT}))
    assert (patch.deleting, errors) == (True, [])
    _, errors = decoded(make_patch(meta=make_meta("p") | {"creationTimestamp": "yesterday"}))
    assert [error.field for error in errors] == ["metadata.creationTimestamp"]
    assert decoded(make_patch(meta=make_meta("p") | {"creationTimestamp": None})) == (
        ResourceSlicePatch(ObjectMeta("p"), DeviceSelector(DRIVER)),
        [],
    )


def test_patch_of_the_planned_group_follows_the_first_revision() -> None:
    manifest = make_patch(taints=[make_taint()])
    planned = manifest | {"apiVersion": f"{GROUP}/v1alpha3"}
    assert not decoded(manifest)[0].first_revision
    assert decoded(planned) == (structs.replace(decoded(manifest)[0], first_revision=True), [])


@pytest.mark.parametrize(
    ("keys", "taint", "softened"),
    [
        ("k", DeviceTaint("k", "v", "NoSchedule"), True),
        ("a,k", DeviceTaint("k", "", "NoSchedule"), True),
        ("k", DeviceTaint("k", "", "NoExecute"), False),
        ("k", DeviceTaint("a", "", "NoSchedule"), False),
        ("k,", DeviceTaint("", "", "NoSchedule"), False),
        ("", DeviceTaint("", "", "NoSchedule"), False),
        (None, DeviceTaint("k", "", "NoSchedule"), False),
    ],
    ids=str,
)
def test_taint_was_softened_if_its_key_is_noted(keys: str | None, taint: DeviceTaint, softened: bool) -> None:  # noqa: FBT001
    annotations = {} if keys is None else {SOFTENED_KEYS: keys}
    assert ResourceSlicePatch(ObjectMeta("p", annotations=annotations), None).is_softened(taint) is softened
