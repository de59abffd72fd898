from __future__ import annotations

import pytest

from webhook.api.field import (
    FieldError,
    Finding,
    Path,
    Severity,
    duplicate,
    forbidden,
    internal_error,
    invalid,
    not_found,
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
        pytest.param(not_found(TAINT, "A"), 'spec.taint: Not found: "A"', "FieldValueNotFound", id="not found"),
        pytest.param(
            internal_error(TAINT, "why"), "spec.taint: Internal error: why", "InternalError", id="internal error"
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


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        pytest.param(
            Finding(Severity.WARN, invalid(TAINT, "x", "is no key"), code="DT001"),
            "spec.taint: is no key",
            id="advice is a sentence",
        ),
        pytest.param(
            Finding(Severity.WARN, invalid(TAINT, "x", "is no key"), rule="team-a"),
            "spec.taint: is no key",
            id="a rule's warning is a sentence",
        ),
        pytest.param(
            Finding(Severity.AUDIT, forbidden(TAINT, "hits 412 devices")),
            "spec.taint: hits 412 devices",
            id="only refusals forbid",
        ),
        pytest.param(
            Finding(Severity.WARN, too_many(TAINT, 17, 16), documented=True),
            "spec.taint: Too many: 17: must have at most 16 items",
            id="a documented rule keeps the API server's words",
        ),
        pytest.param(
            Finding(Severity.DENY, forbidden(TAINT, "not yours"), rule="team-a"),
            "spec.taint: Forbidden: not yours",
            id="a refusal keeps them",
        ),
        pytest.param(
            Finding(Severity.DENY, invalid(TAINT, "x", "is no key"), code="DT001"),
            'spec.taint: Invalid value: "x": is no key',
            id="a refusal with a code keeps them",
        ),
        pytest.param(
            Finding(Severity.WARN, invalid(Path.root(), None, "has no name"), code="DT001"),
            "has no name",
            id="a finding about the whole object has no path",
        ),
    ],
)
def test_only_refusals_and_documented_rules_speak_in_the_api_servers_words(finding: Finding, text: str) -> None:
    assert str(finding) == text


@pytest.mark.parametrize(
    ("finding", "name"),
    [
        (Finding(Severity.WARN, required(TAINT), code="DT001", rule="team-a"), "DT001"),
        (Finding(Severity.WARN, required(TAINT), rule="team-a", documented=True), "team-a"),
        (Finding(Severity.DENY, required(TAINT), documented=True), "documented"),
        (Finding(Severity.DENY, required(TAINT)), "field"),
    ],
)
def test_finding_is_named_after_what_made_it(finding: Finding, name: str) -> None:
    assert finding.name == name


def test_finding_is_neither_documented_nor_turned_down_unless_it_says_so() -> None:
    finding = Finding(Severity.WARN, required(TAINT))
    assert (finding.code, finding.rule, finding.documented, finding.turned_down) == (None, None, False, False)


def test_refusal_that_is_not_enforced_is_a_warning_that_was_turned_down() -> None:
    enforced = Finding.refusal(required(TAINT), enforced=True, rule="team-a", documented=True)
    assert (enforced.severity, enforced.turned_down, enforced.rule, enforced.documented) == (
        *(Severity.DENY, False),
        *("team-a", True),
    )
    turned_down = Finding.refusal(required(TAINT), enforced=False)
    assert (turned_down.severity, turned_down.turned_down, turned_down.rule, turned_down.documented) == (
        *(Severity.WARN, True),
        *(None, False),
    )


@pytest.mark.parametrize("declarative", [False, True])
def test_error_is_of_a_check_before_the_conversion_only_if_that_is_said(declarative: bool) -> None:  # noqa: FBT001
    made = [
        required(TAINT, declarative=declarative),
        invalid(TAINT, "A", "is wrong", declarative=declarative),
        not_supported(TAINT, "A", ["B"], declarative=declarative),
        too_many(TAINT, 17, 16, declarative=declarative),
        too_long(TAINT, 63, declarative=declarative),
        duplicate(TAINT, "A", declarative=declarative),
    ]
    assert [error.declarative for error in made] == [declarative] * len(made)
    usual = [
        required(TAINT),
        invalid(TAINT, "A", "is wrong"),
        not_supported(TAINT, "A", ["B"]),
        too_many(TAINT, 17, 16),
        too_long(TAINT, 63),
        duplicate(TAINT, "A"),
        forbidden(TAINT, "why"),
        internal_error(TAINT, "why"),
        not_found(TAINT, "A"),
        type_invalid(TAINT, 1, "a string"),
    ]
    assert not any(error.declarative for error in usual)
