from __future__ import annotations

import pytest

from webhook.api.field import (
    FieldError,
    Finding,
    Path,
    Severity,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    quoted,
    required,
    too_long,
    too_many,
    type_invalid,
)

TAINT = Path.root().child("spec", "taint")
BASIC = Path.root().child("spec", "devices").index(3).only_written("basic").child("taints").index(0).child("effect")
FLAT = Path.root().child("spec", "devices", "requests").index(0).only_normalized("exactly").child("tolerations")


@pytest.mark.parametrize(
    ("path", "normal", "written"),
    [
        pytest.param(Path.root(), "", "", id="the object itself has an empty path"),
        pytest.param(TAINT, "spec.taint", "spec.taint", id="fields are joined by dots"),
        pytest.param(TAINT.child("a", "b"), "spec.taint.a.b", "spec.taint.a.b", id="several steps at once"),
        pytest.param(Path.root().index(2), "[2]", "[2]", id="an entry of a list at the root"),
        pytest.param(TAINT.key("a/b"), "spec.taint[a/b]", "spec.taint[a/b]", id="an entry of a map"),
        pytest.param(
            BASIC,
            "spec.devices[3].taints[0].effect",
            "spec.devices[3].basic.taints[0].effect",
            id="a level that only v1beta1 writes",
        ),
        pytest.param(
            FLAT,
            "spec.devices.requests[0].exactly.tolerations",
            "spec.devices.requests[0].tolerations",
            id="a level that v1beta1 leaves out",
        ),
    ],
)
def test_path_has_a_normalized_and_a_written_reading(path: Path, normal: str, written: str) -> None:
    assert (str(path), path.written) == (normal, written)


def test_paths_are_equal_only_if_both_readings_are() -> None:
    plain = Path.root().child("spec").child("exactly")
    hidden = Path.root().child("spec").only_normalized("exactly")
    assert str(plain) == str(hidden)
    assert plain != hidden
    assert plain == Path.root().child("spec", "exactly")
    assert plain != "spec.exactly"
    assert len({plain, Path.root().child("spec", "exactly"), hidden}) == 2


def test_path_shows_itself_in_failures() -> None:
    assert repr(TAINT) == "Path(spec.taint)"


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        pytest.param("k" * 96, "k" * 96, id="96 characters stand as they are"),
        pytest.param("a" * 50 + "b" * 47, "a" * 47 + "..." + "b" * 46, id="97 are cut in the middle to 96 (P-5)"),
    ],
)
def test_long_map_keys_are_shortened_in_the_middle(key: str, shown: str) -> None:
    assert str(Path.root().child("attributes").key(key)) == f"attributes[{shown}]"


@pytest.mark.parametrize(
    ("error", "text", "reason"),
    [
        pytest.param(required(TAINT), "spec.taint: Required value", "FieldValueRequired", id="required, bare"),
        pytest.param(
            required(TAINT, "is required"),
            "spec.taint: Required value: is required",
            "FieldValueRequired",
            id="required, with a reason",
        ),
        pytest.param(
            invalid(TAINT, "x", "must be y"),
            'spec.taint: Invalid value: "x": must be y',
            "FieldValueInvalid",
            id="invalid text is quoted",
        ),
        pytest.param(
            invalid(TAINT, -1, "must be greater than zero"),
            "spec.taint: Invalid value: -1: must be greater than zero",
            "FieldValueInvalid",
            id="invalid number is not quoted",
        ),
        pytest.param(
            invalid(TAINT, {"a": True}, "must be y"),
            'spec.taint: Invalid value: {"a":true}: must be y',
            "FieldValueInvalid",
            id="invalid structure is JSON",
        ),
        pytest.param(
            not_supported(TAINT, "Evict", {"NoSchedule", "NoExecute", "None"}),
            'spec.taint: Unsupported value: "Evict": supported values: "NoExecute", "NoSchedule", "None"',
            "FieldValueNotSupported",
            id="supported values are sorted",
        ),
        pytest.param(
            too_many(TAINT, 17, 16),
            "spec.taint: Too many: 17: must have at most 16 items",
            "FieldValueTooMany",
            id="too many, plural",
        ),
        pytest.param(
            too_many(TAINT, 2, 1),
            "spec.taint: Too many: 2: must have at most 1 item",
            "FieldValueTooMany",
            id="too many, singular",
        ),
        pytest.param(
            too_long(TAINT, 63),
            "spec.taint: Too long: may not be more than 63 bytes",
            "FieldValueTooLong",
            id="too long leaves the value out",
        ),
        pytest.param(
            forbidden(TAINT, "hits 412 devices"),
            "spec.taint: Forbidden: hits 412 devices",
            "FieldValueForbidden",
            id="forbidden",
        ),
        pytest.param(duplicate(TAINT, "A"), 'spec.taint: Duplicate value: "A"', "FieldValueDuplicate", id="duplicate"),
        pytest.param(
            type_invalid(TAINT, 7, "a string"),
            "spec.taint: Invalid value: 7: must be a string",
            "FieldValueTypeInvalid",
            id="another type",
        ),
        pytest.param(
            required(Path.root(), "must be there"),
            "Required value: must be there",
            "FieldValueRequired",
            id="an error of the whole object has no path",
        ),
    ],
)
def test_error_speaks_in_the_api_servers_words(error: FieldError, text: str, reason: str) -> None:
    assert (str(error), error.type.value) == (text, reason)


def test_declarative_errors_are_told_at_the_path_as_written() -> None:
    assert required(BASIC, declarative=True).field == "spec.devices[3].basic.taints[0].effect"
    assert required(BASIC).field == "spec.devices[3].taints[0].effect"


def test_body_is_the_error_without_its_path() -> None:
    assert invalid(TAINT, "x", "must be y").body == 'Invalid value: "x": must be y'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("ü", '"ü"', id="text stays readable"),
        pytest.param('a"b\n', '"a\\"b\\n"', id="quotes and line breaks are escaped"),
        pytest.param(None, "null", id="nothing is null"),
        pytest.param(
            "x" * 300, '"' + "x" * 215 + "... (302 characters) ..." + "x" * 19 + '"', id="what is long is cut"
        ),
        pytest.param("x" * 254, '"' + "x" * 254 + '"', id="256 characters with their quotes are not cut"),
        pytest.param({1}, '"{1}"', id="what is no JSON is shown all the same"),
    ],
)
def test_values_are_quoted_as_json(value: object, text: str) -> None:
    assert quoted(value) == text


def test_only_rules_of_a_policy_are_policy() -> None:
    error = forbidden(TAINT, "not yours")
    assert Finding(Severity.DENY, error, rule="team-a").policy
    assert not Finding(Severity.DENY, error, code="DT001").policy
