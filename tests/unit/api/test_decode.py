from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.builders import NOW, make_context
from tests.tables import table
from webhook.admission.chain import validate
from webhook.admission.review import decode_review
from webhook.api.claims import ResourceClaim, decode_claim
from webhook.api.decode import Reader, _pruned, salvaged
from webhook.api.field import FieldError, Path
from webhook.api.meta import ObjectMeta
from webhook.api.patches import ResourceSlicePatch, decode_patch
from webhook.api.pods import DisruptionBudget, Pod, PodGroup, decode_budget, decode_pod, decode_pod_group
from webhook.api.rules import Condition, DeviceTaintRule, decode_condition, decode_rule
from webhook.api.taints import DeviceTaint

if TYPE_CHECKING:
    from collections.abc import Callable


# The documentation and earlier policies rely on these numbers, so they are written out.
MAX_ENTRIES = 4096
MAX_TYPE_ERRORS = 100


def at_spec(raw: dict[str, Any]) -> Reader:
    return Reader(raw, [], Path.root().child("spec"))


def texts(errors: list[FieldError]) -> list[str]:
    return [str(error) for error in errors]


def plain(value: Any) -> Any:
    """Readers as what they read."""
    if isinstance(value, Reader):
        return value.raw
    if isinstance(value, Iterator):
        return [plain(each) for each in value]
    return tuple(map(plain, value)) if isinstance(value, tuple) else value


@pytest.mark.parametrize("raw", [{}, {"field": None}], ids=["missing", "null"])
@pytest.mark.parametrize(
    ("method", "zero"),
    [
        *[("text", ""), ("optional_text", None), ("integer", None), ("boolean", None), ("time", None), ("has", False)],
        *[("child", None), ("child_or_empty", {}), ("list", []), ("each", []), ("texts", ()), ("entries", [])],
        *[("map", {}), ("text_map", {})],
    ],
)
def test_missing_and_null_read_as_zero_without_error(method: str, zero: object, raw: dict[str, Any]) -> None:
    reader = at_spec(raw)
    assert plain(getattr(reader, method)("field")) == zero
    assert reader.errors == []


@table(
    "method, value, read_as",
    {
        "text": ("text", "x", "x"),
        "optional text that is empty": ("optional_text", "", ""),
        "smallest integer": ("integer", -(2**63), -(2**63)),
        "greatest integer": ("integer", 2**63 - 1, 2**63 - 1),
        "boolean": ("boolean", False, False),
        "time": ("time", "2026-06-01T12:00:00Z", NOW),
        "child": ("child", {"a": 1}, {"a": 1}),
        "each": ("each", [{"a": 1}], [{"a": 1}]),
        "texts": ("texts", ["a", "b"], ("a", "b")),
        "text map": ("text_map", {"a": "b"}, {"a": "b"}),
        "entries, of which null reads as empty": ("entries", {"a": {"b": 1}, "c": None}, [("a", {"b": 1}), ("c", {})]),
    },
)
def test_value_of_the_right_type_is_read(method: str, value: object, read_as: object) -> None:
    reader = at_spec({"field": value})
    assert plain(getattr(reader, method)("field")) == read_as
    assert reader.errors == []


TEXT, INTEGER, OBJECT = "must be a string", "must be a 64-bit integer", "must be an object"
A_TIME = 'must be a time like "2026-01-31T12:00:00Z" (RFC 3339)'


@table(
    "method, value, read_as, error",
    {
        "a number for a text": ("text", 7, "", f"7: {TEXT}"),
        "an object is told by its size": ("optional_text", {"a": 1, "b": 2}, "", f'"an object of 2 fields": {TEXT}'),
        "true is no number": ("integer", True, None, f"true: {INTEGER}"),
        "a fraction is no integer, even if whole": ("integer", 1.0, None, f"1.0: {INTEGER}"),
        "an integer beyond 64 bits": ("integer", 2**63, None, f"9223372036854775808: {INTEGER}"),
        "an integer below 64 bits": ("integer", -(2**63) - 1, None, f"-9223372036854775809: {INTEGER}"),
        "a number for a boolean": ("boolean", 1, None, "1: must be true or false"),
        "the empty string for a time": ("time", "", None, f'"": {A_TIME}'),
        "seconds for a time": ("time", 1780315200, None, f"1780315200: {A_TIME}"),
        "a list is told by its size": ("child", [1, 2], None, f'"a list of 2 entries": {OBJECT}'),
        "a text for an object that is always there": ("child_or_empty", "x", {}, f'"x": {OBJECT}'),
        "an object for a list": ("each", {}, [], '"an object of 0 fields": must be a list'),
        "a list for a map": ("map", [], {}, f'"a list of 0 entries": {OBJECT}'),
    },
)
def test_value_of_another_type_reads_as_zero_and_is_told(
    method: str, value: object, read_as: object, error: str
) -> None:
    _assert_told(method, value, read_as, f"spec.field: Invalid value: {error}")


@table(
    "method, value, read_as, error",
    {
        "among objects, where null reads as empty": ("each", [{"a": 1}, None, 3], [{"a": 1}, {}, {}], f"[2]: {OBJECT}"),
        "among texts": ("texts", ["a", 1], ("a",), f"[1]: {TEXT}"),
        "in a map of texts, where null reads as empty": (
            *("text_map", {"a": 1, "b": None}, {"a": "", "b": ""}, f"[a]: {TEXT}"),
        ),
        "in a map of objects": ("entries", {"a": 1}, [("a", {})], f"[a]: {OBJECT}"),
    },
)
def test_number_among_others_is_told_at_its_place(method: str, value: Any, read_as: object, error: str) -> None:
    place, _, text = error.partition(": ")
    wrong = value["a"] if isinstance(value, dict) else value[-1]
    _assert_told(method, value, read_as, f"spec.field{place}: Invalid value: {wrong}: {text}")


def _assert_told(method: str, value: object, read_as: object, error: str) -> None:
    reader = at_spec({"field": value})
    assert plain(getattr(reader, method)("field")) == read_as
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


@pytest.mark.parametrize(
    ("decode", "value"),
    [
        (decode_claim, ResourceClaim(ObjectMeta("x"))),
        (decode_patch, ResourceSlicePatch(ObjectMeta("x"), None)),
        (decode_rule, DeviceTaintRule(ObjectMeta("x"), None, DeviceTaint())),
        (decode_condition, Condition()),
        (decode_pod, Pod(ObjectMeta("x"))),
        (decode_pod_group, PodGroup(ObjectMeta("x"))),
        (decode_budget, DisruptionBudget(ObjectMeta("x"))),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_object_with_nothing_but_a_name_says_nothing(decode: Callable[[Reader], object], value: object) -> None:
    assert decode(Reader.of({"metadata": {"name": "x"}}, [])) == value


def test_number_of_type_errors_is_bounded() -> None:
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


# The documentation and earlier policies rely on these numbers, so they are written out.
DEPTH_MAX = 64

UID = "0a5b6c7d-0000-4000-8000-000000000001"
PLACE = '"PARAMETERS"'
KEYLESS = {"operator": "Equal", "value": "v", "effect": "NoSchedule"}


def review(parameters: bytes) -> bytes:
    """A claim that the documents forbid, with these parameters for its driver."""
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": "PARAMETERS"}}]
    exactly = {"deviceClassName": "gpu.example.com", "tolerations": [KEYLESS]}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "training", "namespace": "ml"},
        "spec": {"devices": {"config": config, "requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    resource = {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"}
    request = {"uid": UID, "operation": "CREATE", "resource": resource, "object": claim}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(body).encode().replace(PLACE.encode(), parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        pytest.param(b'{"a":1}', id="nothing odd"),
        pytest.param(b'{"a":"\\ud800"}', id="half of a surrogate pair"),
        pytest.param(b'{"\\udc00":"x"}', id="the other half, in a key"),
        pytest.param(b'{"a":"\xff"}', id="a byte that is no UTF-8"),
        pytest.param(b"[" * 5_000 + b"]" * 5_000, id="5,000 levels of lists"),
        pytest.param(b'{"a":' * 1_500 + b"1" + b"}" * 1_500, id="1,500 levels of objects"),
        pytest.param(b'{"a":"]}]}"}', id="brackets in a text"),
        pytest.param(b"[" * 2_000 + b'"]]\\"]]"' + b"]" * 2_000, id="brackets in a text far down"),
        pytest.param(b'{"a":1e999}', id="a number beyond all bounds"),
        pytest.param(b'{"a":' + b"9" * 5_000 + b"}", id="a whole number of 5,000 digits"),
        pytest.param(b'{"a":-' + b"9" * 9_000 + b"}", id="a negative number of 9,000 digits"),
        pytest.param(b'{"a":' + b"9" * 5_000 + b".5}", id="a fraction of 5,000 digits"),
        pytest.param(b'{"a":1e' + b"9" * 5_000 + b"}", id="an exponent of 5,000 digits"),
    ],
)
def test_claim_is_judged_whatever_its_parameters_are(parameters: bytes) -> None:
    request = decode_review(review(parameters))
    decision = validate(request, make_context())
    assert request.uid == UID
    assert [(error.field, error.type.value) for error in decision.errors] == [
        ("spec.devices.requests[0].exactly.tolerations[0].operator", "FieldValueInvalid")
    ]


def test_only_what_lies_too_deep_is_cut_out() -> None:
    depth = DEPTH_MAX + 2
    body = b'{"keep":[1,2],"deep":' + b"[" * depth + b"7" + b"]" * depth + b',"last":"\\ud800"}'
    value = json.loads(salvaged(body) or b"")
    assert value["keep"] == [1, 2]
    assert value["last"] == "?"
    assert json.dumps(value["deep"]) == "[" * (DEPTH_MAX - 1) + "null" + "]" * (DEPTH_MAX - 1)


def test_sixty_four_levels_are_kept() -> None:
    for levels in (63, 64):
        body = b"[" * levels + b"]" * levels
        assert json.loads(salvaged(body) or b"") == json.loads(body)
    assert json.loads(salvaged(b"[" * 65 + b"]" * 65) or b"") == json.loads(b"[" * 64 + b"null" + b"]" * 64)


def test_whole_numbers_of_up_to_a_thousand_digits_are_kept() -> None:
    longest = b"9" * 1_000
    assert json.loads(salvaged(b"[%s,%s9]" % (longest, longest)) or b"") == [int(longest), None]


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000, b'{"a":}', b"\xff", b"]" * 100])
def test_what_is_no_json_stays_none(body: bytes) -> None:
    assert salvaged(body) is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"x":' + b'\\"' * 500_000, id="quotes that end no string"),
        pytest.param(b'{"x":"' + b"\\" * 999_999, id="backslashes to the end"),
        pytest.param(b'"' * 500_001, id="quotes"),
        pytest.param(b'["a\\"' * 200_000, id="strings in strings"),
    ],
)
def test_string_without_an_end_takes_no_longer_than_its_length(body: bytes) -> None:
    """F3: 240 KB took minutes; a megabyte takes a fraction of a second."""
    started = time.process_time()
    assert salvaged(body) is None
    assert time.process_time() - started < 10


_PLAINEST = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def plainly_pruned(body: bytes) -> bytes:
    """The same cut with a pattern that is plainly right, and slow."""
    kept, depth, start = b"", 0, 0
    for token in _PLAINEST.finditer(body):
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth == DEPTH_MAX + 1:
                kept += body[start : token.start()] + b"null"
        elif token[0] in (b"]", b"}"):
            if depth == DEPTH_MAX + 1:
                start = token.end()
            depth -= 1
    return kept if depth > DEPTH_MAX else kept + body[start:]


@given(
    st.lists(
        st.sampled_from(
            [b'"', b"\\", b'\\"', b"[", b"]", b"{", b"}", b"a", b"\n", b"[" * DEPTH_MAX, b"]" * DEPTH_MAX, b'"]"']
        ),
        max_size=40,
    ).map(b"".join)
)
@example(b"[" * DEPTH_MAX)
def test_cut_is_where_the_plain_pattern_makes_it(body: bytes) -> None:
    assert _pruned(body) == plainly_pruned(body)
