from __future__ import annotations

from typing import Any

import pytest

from tests.builders import DRIVER, EARLIER_TEXT, KEY, decoded, make_patch, make_taint
from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta, parse_time
from webhook.api.patches import PatchedAttribute, ResourceSlicePatch, decode_patch
from webhook.api.rules import DeviceSelector
from webhook.api.taints import DeviceTaint


def test_patch_is_read() -> None:
    manifest = make_patch(
        priority=-5, attributes={"a.example/b": {"int": 3}}, capacity={"a.example/c": "1Gi"}, taints=[make_taint()]
    )
    expected = ResourceSlicePatch(
        ObjectMeta("firmware"),
        DeviceSelector(DRIVER),
        -5,
        (PatchedAttribute("a.example/b", ("int",), 3),),
        ("a.example/c",),
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


def test_value_with_nothing_given_is_a_patch_that_says_nothing() -> None:
    assert decode_patch(Reader.of({"metadata": {"name": "p"}}, [])) == ResourceSlicePatch(ObjectMeta("p"), None)
