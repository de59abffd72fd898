"""Slices of which a part stays text: what is read, what is not, and what becomes of text that is no JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from tests.builders import encoded, make_device, make_slice, make_taint
from webhook.api import slice_text, taints
from webhook.api.decode import Reader
from webhook.api.meta import GROUP, SERVED_VERSIONS, GroupVersionKind
from webhook.api.schema import fields_of, type_of
from webhook.api.slice_text import LEFT_AS_TEXT, SliceText, have_single_values, read_rest
from webhook.api.slices import decode_slice, devices_as_written
from webhook.api.taints import DeviceTaint, taints_in

ATTRIBUTES = {"model": {"string": "A"}, "index": {"int": 1}}


def in_part(manifest: Any) -> Any:
    return msgspec.json.decode(encoded(manifest), type=SliceText).to_object()


def without_text(value: Any) -> Any:
    """What was left as text, read."""
    return json.loads(msgspec.json.encode(value))


def test_attributes_capacity_and_taints_stay_text() -> None:
    device = make_device("gpu-0", [make_taint()], attributes=ATTRIBUTES, capacity={"memory": {"value": "1Gi"}}, x=[1])
    manifest = make_slice([device], allNodes=True)
    found = in_part(manifest)
    (read,) = found["spec"]["devices"]
    assert {name for name, value in read.items() if value.__class__ is Raw} == set(LEFT_AS_TEXT)
    assert (read["name"], read["x"]) == ("gpu-0", [1])
    assert without_text(found) == manifest


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"spec": None, "kind": 1, "metadata": []}, id="other types beside the devices"),
        pytest.param({"spec": {}}, id="an empty spec"),
        pytest.param({"spec": {"devices": None, "pool": 5}}, id="null for devices"),
        pytest.param({"spec": {"devices": [None, {}, {"taints": None}]}}, id="null for a device"),
    ],
)
def test_what_is_missing_or_null_stays_so(manifest: Any) -> None:
    assert without_text(in_part(manifest)) == manifest


@pytest.mark.parametrize("text", [b"[]", b'{"spec":[]}', b'{"spec":{"devices":{}}}', b'{"spec":{"devices":[1]}}'])
def test_what_is_not_of_that_shape_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(text, type=SliceText)


def test_every_field_of_a_spec_is_kept_in_every_version() -> None:
    known = set(slice_text._Spec.__struct_encode_fields__)
    for minor in range(33, 38):
        for version in SERVED_VERSIONS:
            root = type_of(GroupVersionKind(GROUP, version, "ResourceSlice"), minor)
            if root is not None:
                assert set(fields_of(fields_of(root)["spec"])) <= known


def test_rest_is_read_in_its_place_and_what_is_no_json_has_a_wrong_type() -> None:
    device: Any = {"name": "a", "taints": Raw(b'["\xff"]'), "capacity": Raw(b'{"m":1}'), "attributes": {}}
    read_rest(device)
    assert device["capacity"] == {"m": 1}
    assert device["taints"].__class__ is Raw
    errors: list[Any] = []
    assert decode_slice(Reader.of(make_slice([device]), errors)).devices[0].taints == ()
    assert [error.field for error in errors] == ["spec.devices[0].taints"]
    assert "must be a list" in str(errors[0])
    for strange in (None, 1, "x", [device]):
        read_rest(strange)


def test_devices_as_written_have_no_text_left() -> None:
    manifest = make_slice([make_device("gpu-0", [make_taint()], attributes=ATTRIBUTES)])
    value = decode_slice(Reader.of(in_part(manifest), []))
    assert devices_as_written(value) == manifest["spec"]["devices"]


@pytest.mark.parametrize(
    ("text", "single"),
    [
        (b'{"a":{"int":1}}', True),
        (b"{}", True),
        (b'{"a":{"ints":[1]}}', False),
        (b'{"a":{"string":"[x]"}}', False),
        (b"null", False),
        (b"[]", False),
        (b"", False),
    ],
)
def test_lists_in_attributes_are_seen_in_the_text(text: bytes, *, single: bool) -> None:
    assert have_single_values(Raw(text)) is single


# --- lists of taints ----------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taints, "_taints", {})
    monkeypatch.setattr(taints, "_lists", {})


def text_of(*entries: Any) -> Raw:
    return Raw(encoded(list(entries)))


def full(value: str = "v") -> dict[str, Any]:
    return make_taint(value=value)


def test_list_is_remembered_once_its_taints_were_read_without_fault() -> None:
    text = text_of(full("a"), full("b"))
    assert taints_in(text) is None
    decode_slice(Reader.of(make_slice([make_device("d", [full("a"), full("b")])]), []))
    known = taints_in(text)
    assert known is not None
    assert [taint.value for taint in known] == ["a", "b"]
    assert taints_in(text_of(full("a"), full("b"))) is known


@pytest.mark.parametrize("text", [b'["\xff"]', b"[1e999]", b"[" * 5000, b"{}", b'"x"', b"[1]", b"[null]", b"[{}]"])
def test_what_has_a_fault_is_for_a_reader(text: bytes) -> None:
    assert taints_in(Raw(text)) is None
    assert taints._lists == {}


def test_null_is_no_taint() -> None:
    assert taints_in(Raw(b"null")) == ()


def test_taint_with_a_field_more_is_for_a_reader() -> None:
    decode_slice(Reader.of(make_slice([make_device("d", [full()])]), []))
    assert taints_in(text_of(full(), {**full(), "description": "x"})) is None


def test_lists_longer_than_a_kibibyte_are_not_remembered() -> None:
    decode_slice(Reader.of(make_slice([make_device("d", [full()])]), []))
    size = len(encoded([full()]))
    fits, longer = b" " * (1024 - size), b" " * (1025 - size)
    assert taints_in(Raw(encoded([full()]) + longer))
    assert taints._lists == {}
    assert taints_in(Raw(encoded([full()]) + fits))
    assert len(taints._lists) == 1


def test_full_memory_of_4096_lists_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known = (DeviceTaint("a"),)
    monkeypatch.setattr(taints, "_lists", {b"%d" % number: known for number in range(4095)})
    assert taints_in(Raw(b"null")) == ()
    assert len(taints._lists) == 4096
    assert taints_in(Raw(b" null")) == ()
    assert len(taints._lists) == 1
