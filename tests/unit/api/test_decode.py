from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import NOW
from webhook.api.decode import Reader
from webhook.api.field import FieldError, Path
from webhook.api.meta import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Callable

# The documentation and earlier policies rely on these numbers, so they are written out.
MAX_ENTRIES = 4096
MAX_TYPE_ERRORS = 100

NULL_READS_AS_ZERO = [
    pytest.param(lambda reader: reader.text("field"), "", id="text"),
    pytest.param(lambda reader: reader.optional_text("field"), None, id="optional text"),
    pytest.param(lambda reader: reader.integer("field"), None, id="integer"),
    pytest.param(lambda reader: reader.boolean("field"), None, id="boolean"),
    pytest.param(lambda reader: reader.time("field"), None, id="time"),
    pytest.param(lambda reader: reader.child("field"), None, id="child"),
    pytest.param(lambda reader: reader.child_or_empty("field").raw, {}, id="child or empty"),
    pytest.param(lambda reader: reader.list("field"), [], id="list"),
    pytest.param(lambda reader: list(reader.each("field")), [], id="each"),
    pytest.param(lambda reader: reader.texts("field"), (), id="texts"),
    pytest.param(lambda reader: reader.map("field"), {}, id="map"),
    pytest.param(lambda reader: reader.text_map("field"), {}, id="text map"),
    pytest.param(lambda reader: list(reader.entries("field")), [], id="entries"),
    pytest.param(lambda reader: reader.has("field"), False, id="has"),
]


def at_spec(raw: dict[str, Any]) -> Reader:
    return Reader(raw, [], Path.root().child("spec"))


def texts(errors: list[FieldError]) -> list[str]:
    return [str(error) for error in errors]


@pytest.mark.parametrize("raw", [{}, {"field": None}], ids=["missing", "null"])
@pytest.mark.parametrize(("read", "zero"), NULL_READS_AS_ZERO)
def test_missing_and_null_read_as_zero_without_error(
    read: Callable[[Reader], object], zero: object, raw: dict[str, Any]
) -> None:
    reader = at_spec(raw)
    assert read(reader) == zero
    assert reader.errors == []


@pytest.mark.parametrize(
    ("read", "value", "read_as"),
    [
        pytest.param(lambda reader: reader.text("field"), "x", "x", id="text"),
        pytest.param(lambda reader: reader.optional_text("field"), "", "", id="optional text that is empty"),
        pytest.param(lambda reader: reader.integer("field"), -(2**63), -(2**63), id="smallest integer"),
        pytest.param(lambda reader: reader.integer("field"), 2**63 - 1, 2**63 - 1, id="greatest integer"),
        pytest.param(lambda reader: reader.boolean("field"), False, False, id="boolean"),
        pytest.param(lambda reader: reader.time("field"), "2026-06-01T12:00:00Z", NOW, id="time"),
        pytest.param(lambda reader: reader.child("field").raw, {"a": 1}, {"a": 1}, id="child"),
        pytest.param(lambda reader: [each.raw for each in reader.each("field")], [{"a": 1}], [{"a": 1}], id="each"),
        pytest.param(lambda reader: reader.texts("field"), ["a", "b"], ("a", "b"), id="texts"),
        pytest.param(lambda reader: reader.text_map("field"), {"a": "b"}, {"a": "b"}, id="text map"),
        pytest.param(
            lambda reader: [(key, each.raw) for key, each in reader.entries("field")],
            {"a": {"b": 1}, "c": None},
            [("a", {"b": 1}), ("c", {})],
            id="entries, of which null reads as empty",
        ),
    ],
)
def test_value_of_the_right_type_is_read(read: Callable[[Reader], object], value: object, read_as: object) -> None:
    reader = at_spec({"field": value})
    assert read(reader) == read_as
    assert reader.errors == []


@pytest.mark.parametrize(
    ("read", "value", "read_as", "error"),
    [
        pytest.param(
            lambda reader: reader.text("field"),
            7,
            "",
            "spec.field: Invalid value: 7: must be a string",
            id="a number for a text",
        ),
        pytest.param(
            lambda reader: reader.optional_text("field"),
            {"a": 1, "b": 2},
            "",
            'spec.field: Invalid value: "an object of 2 fields": must be a string',
            id="an object for a text is told by its size",
        ),
        pytest.param(
            lambda reader: reader.integer("field"),
            True,
            None,
            "spec.field: Invalid value: true: must be a 64-bit integer",
            id="true is no number",
        ),
        pytest.param(
            lambda reader: reader.integer("field"),
            1.0,
            None,
            "spec.field: Invalid value: 1.0: must be a 64-bit integer",
            id="a fraction is no integer, even if whole",
        ),
        pytest.param(
            lambda reader: reader.integer("field"),
            2**63,
            None,
            "spec.field: Invalid value: 9223372036854775808: must be a 64-bit integer",
            id="an integer beyond 64 bits",
        ),
        pytest.param(
            lambda reader: reader.integer("field"),
            -(2**63) - 1,
            None,
            "spec.field: Invalid value: -9223372036854775809: must be a 64-bit integer",
            id="an integer below 64 bits",
        ),
        pytest.param(
            lambda reader: reader.boolean("field"),
            1,
            None,
            "spec.field: Invalid value: 1: must be true or false",
            id="a number for a boolean",
        ),
        pytest.param(
            lambda reader: reader.time("field"),
            "",
            None,
            'spec.field: Invalid value: "": must be a time like "2026-01-31T12:00:00Z" (RFC 3339)',
            id="the empty string for a time",
        ),
        pytest.param(
            lambda reader: reader.time("field"),
            1780315200,
            None,
            'spec.field: Invalid value: 1780315200: must be a time like "2026-01-31T12:00:00Z" (RFC 3339)',
            id="seconds for a time",
        ),
        pytest.param(
            lambda reader: reader.child("field"),
            [1, 2],
            None,
            'spec.field: Invalid value: "a list of 2 entries": must be an object',
            id="a list for an object is told by its size",
        ),
        pytest.param(
            lambda reader: reader.child_or_empty("field").raw,
            "x",
            {},
            'spec.field: Invalid value: "x": must be an object',
            id="a text for an object that is always there",
        ),
        pytest.param(
            lambda reader: [each.raw for each in reader.each("field")],
            {},
            [],
            'spec.field: Invalid value: "an object of 0 fields": must be a list',
            id="an object for a list",
        ),
        pytest.param(
            lambda reader: [each.raw for each in reader.each("field")],
            [{"a": 1}, None, 3],
            [{"a": 1}, {}, {}],
            "spec.field[2]: Invalid value: 3: must be an object",
            id="a number for an object in a list, where null reads as empty",
        ),
        pytest.param(
            lambda reader: reader.texts("field"),
            ["a", 1],
            ("a",),
            "spec.field[1]: Invalid value: 1: must be a string",
            id="a number among texts",
        ),
        pytest.param(
            lambda reader: reader.map("field"),
            [],
            {},
            'spec.field: Invalid value: "a list of 0 entries": must be an object',
            id="a list for a map",
        ),
        pytest.param(
            lambda reader: reader.text_map("field"),
            {"a": 1, "b": None},
            {"a": "", "b": ""},
            "spec.field[a]: Invalid value: 1: must be a string",
            id="a number in a map of texts, where null reads as empty",
        ),
        pytest.param(
            lambda reader: [(key, each.raw) for key, each in reader.entries("field")],
            {"a": 1},
            [("a", {})],
            "spec.field[a]: Invalid value: 1: must be an object",
            id="a number in a map of objects",
        ),
    ],
)
def test_value_of_another_type_reads_as_zero_and_is_told(
    read: Callable[[Reader], object], value: object, read_as: object, error: str
) -> None:
    reader = at_spec({"field": value})
    assert read(reader) == read_as
    assert texts(reader.errors) == [error]
    assert [each.type.value for each in reader.errors] == ["FieldValueTypeInvalid"]


@pytest.mark.parametrize(
    ("value", "error"),
    [
        pytest.param(None, "Invalid value: null: must be an object", id="null"),
        pytest.param([], 'Invalid value: "a list of 0 entries": must be an object', id="a list"),
        pytest.param("x", 'Invalid value: "x": must be an object', id="a text"),
    ],
)
def test_root_that_is_no_object_reads_as_empty(value: object, error: str) -> None:
    errors: list[FieldError] = []
    assert Reader.of(value, errors).raw == {}
    assert texts(errors) == [error]


def test_path_leads_from_the_root_through_objects_lists_and_maps() -> None:
    raw = {"spec": {"devices": [{}, {"basic": {"x": {}}}], "attributes": {"a/b": {"c": 1}}}}
    root = Reader.of(raw, [])
    spec = root.child_or_empty("spec")
    device = spec.entry("devices", 1)
    ((_, attribute),) = spec.entries("attributes")
    assert str(root.path) == ""
    assert str(device.child_or_empty("basic").child_or_empty("x").path) == "spec.devices[1].basic.x"
    assert str(attribute.path) == "spec.attributes[a/b]"


def test_errors_of_all_readers_of_one_object_come_together() -> None:
    root = Reader.of({"a": 1, "b": {"c": 2}, "d": [3]}, [])
    root.text("a")
    root.child_or_empty("b").text("c")
    root.texts("d")
    assert [error.field for error in root.errors] == ["a", "b.c", "d[0]"]


def test_metadata_is_read() -> None:
    raw = {
        "name": "a",
        "generateName": "b-",
        "namespace": "c",
        "uid": "d",
        "resourceVersion": "7",
        "annotations": {"e": "f"},
        "deletionTimestamp": "2026-06-01T12:00:00Z",
        "labels": {"ignored": "here"},
    }
    expected = ObjectMeta("a", "b-", "c", "d", "7", {"e": "f"})
    assert Reader.of({"metadata": raw}, []).meta() == expected


@pytest.mark.parametrize(
    ("raw", "expected", "errors"),
    [
        pytest.param({"name": None, "uid": "d"}, ObjectMeta(uid="d"), [], id="null"),
        pytest.param({"name": 1, "uid": "d"}, ObjectMeta(uid="d"), ["metadata.name"], id="number"),
        pytest.param({"annotations": {"a": None}}, ObjectMeta(annotations={"a": ""}), [], id="null annotation"),
        pytest.param(
            {"annotations": {"a": 1, "b": "c"}},
            ObjectMeta(annotations={"a": "", "b": "c"}),
            ["metadata.annotations[a]"],
            id="annotation that is a number",
        ),
        pytest.param({"name": "a", "\ud800": 1}, ObjectMeta("a"), [], id="half of a surrogate pair"),
        pytest.param([], ObjectMeta(), ["metadata"], id="list"),
    ],
)
def test_metadata_of_a_wrong_type_reads_as_empty(raw: Any, expected: ObjectMeta, errors: list[str]) -> None:
    reader = Reader.of({"metadata": raw}, [])
    assert reader.meta() == expected
    assert [error.field for error in reader.errors] == errors


@pytest.mark.parametrize("raw", [{}, {"metadata": None}, {"metadata": {}}], ids=["missing", "null", "empty"])
def test_metadata_may_be_missing(raw: dict[str, Any]) -> None:
    reader = Reader.of(raw, [])
    assert reader.meta() == ObjectMeta()
    assert reader.errors == []


def test_number_of_type_errors_is_bounded() -> None:
    assert MAX_TYPE_ERRORS == 100
    many = 2 * MAX_TYPE_ERRORS
    raw = {"texts": [1] * many, "map": {str(number): 1 for number in range(many)}, "objects": [1] * many, "text": 1}
    readers: list[Callable[[Reader], object]] = [
        lambda reader: reader.texts("texts"),
        lambda reader: reader.text_map("map"),
        lambda reader: list(reader.each("objects")),
        lambda reader: list(reader.entries("map")),
        lambda reader: [reader.text("text") for _ in range(many)],
    ]
    for read in readers:
        reader = at_spec(raw)
        read(reader)
        assert len(reader.errors) == MAX_TYPE_ERRORS


def test_list_of_absurd_length_is_told_and_not_read() -> None:
    reader = at_spec({"field": [{}] * (MAX_ENTRIES + 1), "right": [{}] * MAX_ENTRIES})
    assert list(reader.each("field")) == []
    assert len(list(reader.each("right"))) == MAX_ENTRIES
    assert texts(reader.errors) == ["spec.field: Too many: 4097: must have at most 4096 items"]
