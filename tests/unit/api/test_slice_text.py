"""Slices of which a part stays text: what is read, what is not, and what is left to be read whole."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from tests.builders import encoded, make_device, make_slice, make_taint
from webhook.api import slices, taints
from webhook.api.decode import MAX_ENTRIES, UNREADABLE, Reader
from webhook.api.meta import GROUP, SERVED_VERSIONS, GroupVersionKind
from webhook.api.schema import fields_of, type_of
from webhook.api.slices import SliceText, decode_slice, devices_as_written, have_single_values, read_rest
from webhook.api.taints import DeviceTaint, known_list, remember_list, remembered_taints

ATTRIBUTES = {"model": {"string": "A"}, "index": {"int": 1}}
LISTS = {"model": {"strings": ["A"]}}


@pytest.fixture(autouse=True)
def _own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taints, "_taints", {})
    monkeypatch.setattr(taints, "_lists", {})


def in_part(manifest: Any) -> Any:
    return msgspec.json.decode(encoded(manifest), type=SliceText).to_object()


def without_text(value: Any) -> Any:
    """What was left as text, read."""
    return json.loads(msgspec.json.encode(value))


def left_as_text(manifest: Any) -> set[str]:
    """Of the first device."""
    return {name for name, value in in_part(manifest)["spec"]["devices"][0].items() if value.__class__ is Raw}


def read(manifest: Any) -> None:
    errors: list[Any] = []
    decode_slice(Reader.of(manifest, errors))
    assert errors == []


def test_attributes_and_capacity_stay_text_and_taints_that_were_read_before() -> None:
    device = make_device("gpu-0", [make_taint()], attributes=ATTRIBUTES, capacity={"memory": {"value": "1Gi"}}, x=[1])
    manifest = make_slice([device], allNodes=True)
    assert left_as_text(manifest) == {"attributes", "capacity"}
    read(manifest)
    assert left_as_text(manifest) == {"attributes", "capacity", "taints"}
    assert without_text(in_part(manifest)) == manifest


def test_attributes_with_lists_are_read_where_they_may_lower_a_limit() -> None:
    def devices(count: int) -> Any:
        return make_slice([make_device(f"gpu-{number}", attributes=LISTS) for number in range(count)])

    assert left_as_text(devices(64)) == {"attributes"}
    assert left_as_text(devices(65)) == set()
    assert left_as_text(make_slice([make_device(f"gpu-{at}", attributes=ATTRIBUTES) for at in range(65)])) == {
        "attributes"
    }


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"spec": None, "kind": 1, "metadata": []}, id="other types beside the devices"),
        pytest.param({"spec": {}}, id="an empty spec"),
        pytest.param({"spec": {"devices": None, "pool": 5}}, id="null for devices"),
        pytest.param({"spec": {"devices": [None, {}, {"taints": None}]}}, id="null for a device"),
        pytest.param({"spec": {"devices": [{"taints": {}, "attributes": 1, "capacity": "x"}]}}, id="wrong types"),
        pytest.param({"spec": {"devices": [{"name": 1, "attributes": [], "capacity": None}] * 65}}, id="all of them"),
    ],
)
def test_what_is_missing_null_or_of_a_wrong_type_stays_so(manifest: Any) -> None:
    assert without_text(in_part(manifest)) == manifest


@pytest.mark.parametrize(
    ("field", "left"),
    [("capacity", {"attributes", "capacity"}), ("nodeName", {"attributes"}), ("consumesCounters", {"attributes"})],
)
@pytest.mark.parametrize("count", [1, 65])
def test_of_three_fields_those_that_a_review_needs_are_read(field: str, left: set[str], count: int) -> None:
    manifest = make_slice([make_device("gpu-0", attributes=ATTRIBUTES, **{field: {"a": "b"}}) for _ in range(count)])
    assert left_as_text(manifest) == left
    assert in_part(manifest)["spec"]["devices"][-1]["name"] == "gpu-0"
    assert without_text(in_part(manifest)) == manifest


def test_attributes_with_lists_are_read_beside_capacity() -> None:
    manifest = make_slice([make_device("gpu-0", attributes=LISTS, capacity={}) for _ in range(65)])
    assert left_as_text(manifest) == {"capacity"}
    assert without_text(in_part(manifest)) == manifest


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"[]", id="no object"),
        pytest.param(b'{"spec":[]}', id="no spec"),
        pytest.param(b'{"spec":{"devices":{}}}', id="no list of devices"),
        pytest.param(b'{"spec":{"devices":[1]}}', id="no device"),
        pytest.param(b'{"status":{}}', id="an unknown field"),
        pytest.param(b'{"spec":{"unknown":1}}', id="an unknown field of the spec"),
        pytest.param(b'{"spec":{"devices":[{"taints":[{"data":1e999}]}]}}', id="a number that is too large"),
        pytest.param(b'{"spec":{"devices":[{"name":"\xff"}]}}', id="no UTF-8"),
        pytest.param(b'{"spec":{"devices":[{"taints":["\xff"]}]}}', id="no UTF-8 in taints"),
    ],
)
def test_what_is_not_as_servers_write_it_is_refused(text: bytes) -> None:
    with pytest.raises(UNREADABLE):
        msgspec.json.decode(text, type=SliceText).to_object()


@pytest.mark.parametrize("lists", [b'{"a":{"ints":[1e999]}}', b'{"a":["\xff"]}'])
def test_attributes_that_count_and_are_no_json_are_refused(lists: bytes) -> None:
    body = b'{"spec":{"devices":[%s]}}' % b",".join([b'{"attributes":%s}' % lists] * 65)
    with pytest.raises(UNREADABLE):
        msgspec.json.decode(body, type=SliceText).to_object()


@pytest.mark.parametrize(("devices", "fields", "read_whole"), [(128, 32, False), (129, 1, True), (1, 33, True)])
def test_more_than_a_slice_may_hold_is_read_whole(devices: int, fields: int, *, read_whole: bool) -> None:
    device = {f"field-{number}": number for number in range(fields)}
    assert (in_part({"spec": {"devices": [device] * devices}}) is None) is read_whole


def test_every_field_of_a_spec_is_known_in_every_version() -> None:
    known = set(slices._Spec.__struct_encode_fields__)
    for minor in range(33, 38):
        for version in SERVED_VERSIONS:
            root = type_of(GroupVersionKind(GROUP, version, "ResourceSlice"), minor)
            if root is not None:
                assert set(fields_of(fields_of(root)["spec"])) <= known


def test_devices_as_written_have_no_text_left() -> None:
    manifest = make_slice([make_device("gpu-0", [make_taint()], attributes=ATTRIBUTES)])
    read(manifest)
    value = decode_slice(Reader.of(in_part(manifest), []))
    assert devices_as_written(value) == manifest["spec"]["devices"]


def test_what_is_no_json_stays_text_in_devices_as_written() -> None:
    device: Any = {"name": "a", "attributes": Raw(b'["\xff"]'), "capacity": Raw(b'{"m":1}')}
    read_rest(device)
    assert (device["capacity"], device["attributes"].__class__) == ({"m": 1}, Raw)
    for strange in (None, 1, "x", [device]):
        read_rest(strange)


@pytest.mark.parametrize("field", [{}, {"consumesCounters": [{"counterSet": "a"}]}], ids=["usual", "not usual"])
def test_list_that_is_forgotten_meanwhile_is_read_again(field: dict[str, Any]) -> None:
    manifest = make_slice([make_device("gpu-0", [make_taint()], **field)])
    read(manifest)
    found = in_part(manifest)
    assert found["spec"]["devices"][0]["taints"].__class__ is Raw
    taints._lists.clear()
    assert decode_slice(Reader.of(found, [])).devices == decode_slice(Reader.of(manifest, [])).devices


def test_attributes_that_stayed_text_hold_no_list() -> None:
    counters = [{"counterSet": "a"}]
    devices = [make_device(f"gpu-{at}", attributes=ATTRIBUTES, consumesCounters=counters) for at in range(65)]
    errors: list[Any] = []
    value = decode_slice(Reader.of(in_part(make_slice(devices)), errors))
    assert ({each.list_attributes for each in value.devices}, errors) == ({False}, [])


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


def text_of(*entries: Any) -> Raw:
    return Raw(encoded(list(entries)))


def full(value: str = "v") -> dict[str, Any]:
    return make_taint(value=value)


def test_list_is_remembered_once_its_taints_were_read_without_fault() -> None:
    entries = [full("a"), full("b"), {"key": "c", "effect": "None"}]
    assert not remember_list(text_of(*entries), entries)
    read(make_slice([make_device("d", entries)]))
    assert remember_list(text_of(*entries), entries)
    known = known_list(text_of(*entries))
    assert known is not None
    assert [(taint.key, taint.value) for taint in known][1:] == [(entries[1]["key"], "b"), ("c", "")]


@pytest.mark.parametrize("entries", [{}, "x", 1, [1], [None], [{}], [{**full(), "data": {}}], [[]]])
def test_what_has_a_fault_is_not_remembered(entries: Any) -> None:
    decode_slice(Reader.of(make_slice([make_device("d", [full()])]), []))
    assert not remember_list(Raw(encoded(entries)), entries)
    assert taints._lists == {}


@pytest.mark.parametrize("strange", [{"description": "x"}, {"timeAdded": "x"}, {"value": None}, {"other": "x"}])
def test_taint_with_anything_unusual_is_read_each_time(strange: dict[str, Any]) -> None:
    decode_slice(Reader.of(make_slice([make_device("d", [{**full(), **strange}])]), []))
    assert taints._taints == {}


def test_null_is_no_taint() -> None:
    assert remember_list(Raw(b"null"), None)
    assert known_list(Raw(b"null")) == ()


def test_lists_longer_than_a_kibibyte_are_not_remembered() -> None:
    read(make_slice([make_device("d", [full()])]))
    size = len(encoded([full()]))
    longer, fits = (Raw(encoded([full()]) + b" " * (length - size)) for length in (1025, 1024))
    assert not remember_list(longer, [full()])
    assert remember_list(fits, [full()])
    assert len(taints._lists) == 1


def test_full_memory_of_4096_lists_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known = (DeviceTaint("a"),)
    monkeypatch.setattr(taints, "_lists", {b"%d" % number: known for number in range(4095)})
    assert remember_list(Raw(b"null"), None)
    assert len(taints._lists) == 4096
    assert remember_list(Raw(b" null"), None)
    assert len(taints._lists) == 1


def test_list_that_a_reader_refuses_for_its_length_is_not_looked_up() -> None:
    read(make_slice([make_device("d", [full()])]))
    assert remembered_taints([full()] * MAX_ENTRIES)
    assert remembered_taints([full()] * (MAX_ENTRIES + 1)) is None
