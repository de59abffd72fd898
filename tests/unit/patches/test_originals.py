"""The annotation with what drivers publish under the values of patches."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from tests.unit.patches.patched import slice_of
from webhook.patches.published import (
    ATTRIBUTES,
    CAPACITY,
    Overridden,
    Setting,
    annotation_of,
    content_of,
    kept_in,
    rewrites_in,
    same,
    settings_of,
    with_settings,
    written_devices,
)

MODEL = Setting(ATTRIBUTES, "model")
ROOM = Setting(CAPACITY, "gpu.example.com/room")
ONE, TWO, THREE = ({"int": number} for number in (1, 2, 3))
GIB = {"value": "1Gi"}


def text_of(entry: Any, kind: str = ATTRIBUTES) -> str:
    return json.dumps({"version": 1, "devices": {"gpu-0": {kind: {"model": entry}}}})


def test_annotation_is_read_as_it_was_written() -> None:
    kept = {
        "gpu-0": {
            MODEL: Overridden(ONE, TWO, THREE),
            ROOM: Overridden(None, {**GIB, "requestPolicy": {"default": "1"}}),
        },
        "gpu-1": {MODEL: Overridden(ONE, None), Setting(ATTRIBUTES, "é"): Overridden({"strings": ["a"]}, sent=ONE)},
    }
    text = annotation_of(kept)
    assert kept_in(text) == kept
    assert annotation_of(dict(reversed(kept.items()))) == text
    assert json.loads(text)["devices"]["gpu-1"]["attributes"] == {
        "model": {"was": ONE, "now": None},
        "é": {"was": {"strings": ["a"]}, "sent": ONE},
    }


def test_rewritings_are_counted_in_the_annotation() -> None:
    kept = {"gpu-0": {MODEL: Overridden(ONE, TWO)}}
    assert "rewrites" not in annotation_of(kept)
    assert [rewrites_in(each) for each in (annotation_of(kept, 3), annotation_of(kept), "x", None)] == [3, 0, 0, 0]
    assert rewrites_in(annotation_of(kept, 3).replace("3", '"3"')) == 0


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        "1",
        '{"version": 2, "devices": {"gpu-0": {"attributes": {"model": {"now": null}}}}}',
        '{"devices": {"gpu-0": {"attributes": {"model": {"now": null}}}}}',
        '{"version": 1}',
        '{"version": 1, "devices": []}',
        '{"version": 1, "devices": {"gpu-0": []}}',
        '{"version": 1, "devices": {"gpu-0": {"attributes": 1}}}',
        "[" * 100_000,
        "\ud800",
    ],
)
def test_what_is_not_of_our_making_holds_nothing(text: str | None) -> None:
    assert kept_in(text) == {}


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (1, ATTRIBUTES),
        ({}, ATTRIBUTES),
        ({"was": ONE}, ATTRIBUTES),
        ({"was": 1, "now": None}, ATTRIBUTES),
        ({"was": {}, "now": None}, ATTRIBUTES),
        ({"was": {"int": 1, "bool": True}, "now": None}, ATTRIBUTES),
        ({"was": {"int": True}, "now": None}, ATTRIBUTES),
        ({"was": {"bool": 1}, "now": None}, ATTRIBUTES),
        ({"was": {"version": 1}, "now": None}, ATTRIBUTES),
        ({"was": {"anything": 1}, "now": None}, ATTRIBUTES),
        ({"was": {"s": ["a"]}, "now": None}, ATTRIBUTES),
        ({"was": {"ints": 1}, "now": None}, ATTRIBUTES),
        ({"was": {"strings": ["a", 1]}, "now": None}, ATTRIBUTES),
        ({"was": {"ints": [1, True]}, "now": None}, ATTRIBUTES),
        ({"was": ONE, "now": {"int": "1"}}, ATTRIBUTES),
        ({"was": {}, "now": GIB}, CAPACITY),
        ({"was": {"value": None}, "now": GIB}, CAPACITY),
        ({"was": {"value": "much"}, "now": GIB}, CAPACITY),
        ({"was": GIB, "now": ONE}, CAPACITY),
    ],
)
def test_entries_that_no_server_would_take_are_left_out(entry: Any, kind: str) -> None:
    """A hand may have written them, and what is put back must not make the slice invalid."""
    assert kept_in(text_of(entry, kind)) == {}


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"now": None}, ATTRIBUTES),
        ({"was": ONE, "sent": None}, ATTRIBUTES),
        ({"was": {"bool": True}, "now": {"version": "1.0.0"}, "unknown": 1}, ATTRIBUTES),
        ({"was": {"ints": [1]}, "now": {"bools": [True]}}, ATTRIBUTES),
        ({"was": {"versions": ["1.0.0"]}, "now": {"string": ""}}, ATTRIBUTES),
        ({"was": GIB, "now": {"value": 4}}, CAPACITY),
        ({"now": {"value": "0"}}, CAPACITY),
    ],
)
def test_other_entries_are_read(entry: Any, kind: str) -> None:
    ((name, kept),) = kept_in(text_of(entry, kind)).items()
    (setting,) = kept
    assert (name, setting) == ("gpu-0", Setting(kind, "model"))


def test_entry_that_is_wrong_takes_no_other_with_it() -> None:
    entries = {"wrong": 1, "model": {"now": None}}
    text = json.dumps({"version": 1, "devices": {"gpu-0": {"attributes": entries}, "gpu-1": {"attributes": entries}}})
    assert kept_in(text) == {name: {MODEL: Overridden(None, None)} for name in ("gpu-0", "gpu-1")}


@pytest.mark.parametrize("basic", [False, True], ids=["v1", "v1beta1"])
def test_settings_of_a_device_in_any_version(*, basic: bool) -> None:
    content = {"attributes": {"model": ONE, "odd": 1}, "capacity": {ROOM.name: GIB}, "taints": []}
    device = {"name": "gpu-0", "basic": content} if basic else {"name": "gpu-0", **content}
    assert (content_of(device) is device) is not basic
    assert settings_of(device) == {MODEL: ONE, ROOM: GIB}
    changed = with_settings(device, {MODEL: TWO})
    assert content_of(changed) == {**({} if basic else {"name": "gpu-0"}), "attributes": {"model": TWO}, "taints": []}
    assert changed["name"] == "gpu-0"
    assert content["attributes"] == {"model": ONE, "odd": 1}


def test_settings_of_odd_devices() -> None:
    assert settings_of({"basic": None, "attributes": None, "capacity": []}) == {}


def test_devices_as_they_were_written() -> None:
    value = slice_of({"name": "a", "attributes": {"model": ONE}}, "b")
    expected = [("a", {"name": "a", "attributes": {"model": ONE}}), ("b", {"name": "b"})]
    assert written_devices(value) == expected
    assert written_devices(structs.replace(value, raw_devices=json.dumps(value.raw_devices).encode())) == expected
    assert written_devices(structs.replace(value, raw_devices=None)) == [("a", {}), ("b", {})]
    assert written_devices(structs.replace(value, raw_devices=[1, {"x": 1}, {}])) == [("a", {}), ("b", {"x": 1})]


@pytest.mark.parametrize(
    ("kind", "one", "other", "expected"),
    [
        (ATTRIBUTES, ONE, {"int": 1}, True),
        (ATTRIBUTES, ONE, TWO, False),
        (ATTRIBUTES, ONE, None, False),
        (ATTRIBUTES, None, None, True),
        (ATTRIBUTES, ONE, {"int": True}, False),
        (ATTRIBUTES, {"string": "1Gi"}, {"string": "1024Mi"}, False),
        (ATTRIBUTES, {"string": "x"}, {"version": "x"}, False),
        (ATTRIBUTES, {"strings": ["a"]}, {"strings": ["a", "b"]}, False),
        (ATTRIBUTES, {"strings": ["a"]}, {"strings": ["b"]}, False),
        (ATTRIBUTES, {"strings": ["a"]}, {"strings": ["a"]}, True),
        (ATTRIBUTES, {"strings": ["a"]}, {"strings": "a"}, False),
        (CAPACITY, GIB, {"value": "1024Mi"}, True),
        (CAPACITY, {"value": 4}, {"value": "4"}, True),
        (CAPACITY, GIB, {"value": "1G"}, False),
        (CAPACITY, GIB, None, False),
        (CAPACITY, None, GIB, False),
        (CAPACITY, GIB, {**GIB, "requestPolicy": {}}, False),
        (CAPACITY, {"value": "x"}, {"value": "y"}, False),
        (CAPACITY, {"value": None}, {"value": "0"}, False),
        (CAPACITY, {"value": "0"}, {"value": None}, False),
        (CAPACITY, {"value": []}, {"value": "0"}, False),
        (CAPACITY, {"p": {"validValues": ["1Ki", "2Ki"]}}, {"p": {"validValues": ["1024", "2048"]}}, True),
        (CAPACITY, {"p": {"validValues": ["1Ki", "2Ki"]}}, {"p": {"validValues": ["1024", "2047"]}}, False),
    ],
)
def test_same_to_an_api_server(kind: str, one: Any, other: Any, *, expected: bool) -> None:
    assert same(kind, one, other) is expected
