from __future__ import annotations

import pytest

from tests.tables import table
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
from webhook.api.messages import counted, nearest

TAINT = Path.root().child("spec", "taint")
BASIC = Path.root().child("spec", "devices").index(3).only_written("basic").child("taints").index(0).child("effect")
FLAT = Path.root().child("spec", "devices", "requests").index(0).only_normalized("exactly").child("tolerations")


@table(
    "path, normal, written",
    {
        "the object itself has an empty path": (Path.root(), "", None),
        "fields are joined by dots": (TAINT, "spec.taint", None),
        "several steps at once": (TAINT.child("a", "b"), "spec.taint.a.b", None),
        "an entry of a list at the root": (Path.root().index(2), "[2]", None),
        "an entry of a map": (TAINT.key("a/b"), "spec.taint[a/b]", None),
        "a level that only v1beta1 writes": (
            *(BASIC, "spec.devices[3].taints[0].effect", "spec.devices[3].basic.taints[0].effect"),
        ),
        "a level that v1beta1 leaves out": (
            *(FLAT, "spec.devices.requests[0].exactly.tolerations", "spec.devices.requests[0].tolerations"),
        ),
    },
)
def test_path_has_a_normalized_and_a_written_reading(path: Path, normal: str, written: str | None) -> None:
    assert (str(path), path.written) == (normal, normal if written is None else written)


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


SORTED = '"Evict": supported values: "NoExecute", "NoSchedule", "None"'


@table(
    "error, text, reason",
    {
        "required, bare": (required(TAINT), "Required value", "Required"),
        "required, with a reason": (required(TAINT, "is required"), "Required value: is required", "Required"),
        "invalid text is quoted": (invalid(TAINT, "x", "must be y"), 'Invalid value: "x": must be y', "Invalid"),
        "invalid number is not quoted": (invalid(TAINT, -1, "is odd"), "Invalid value: -1: is odd", "Invalid"),
        "invalid structure is JSON": (invalid(TAINT, {"a": True}, "b"), 'Invalid value: {"a":true}: b', "Invalid"),
        "supported values are sorted": (
            *(not_supported(TAINT, "Evict", {"NoSchedule", "NoExecute", "None"}), f"Unsupported value: {SORTED}"),
            "NotSupported",
        ),
        "too many, plural": (too_many(TAINT, 17, 16), "Too many: 17: must have at most 16 items", "TooMany"),
        "too many, singular": (too_many(TAINT, 2, 1), "Too many: 2: must have at most 1 item", "TooMany"),
        "too long leaves the value out": (too_long(TAINT, 63), "Too long: may not be more than 63 bytes", "TooLong"),
        "forbidden": (forbidden(TAINT, "hits 412 devices"), "Forbidden: hits 412 devices", "Forbidden"),
        "duplicate": (duplicate(TAINT, "A"), 'Duplicate value: "A"', "Duplicate"),
        "another type": (type_invalid(TAINT, 7, "a string"), "Invalid value: 7: must be a string", "TypeInvalid"),
        "not found": (not_found(TAINT, "A"), 'Not found: "A"', "NotFound"),
    },
)
def test_error_speaks_in_the_api_servers_words(error: FieldError, text: str, reason: str) -> None:
    assert (str(error), error.type.value) == (f"spec.taint: {text}", f"FieldValue{reason}")


def test_internal_error_is_of_no_value_and_an_error_of_the_whole_object_has_no_path() -> None:
    error = internal_error(TAINT, "why")
    assert (str(error), error.type.value) == ("spec.taint: Internal error: why", "InternalError")
    assert str(required(Path.root(), "must be there")) == "Required value: must be there"


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


NO_KEY, TOO_MANY = invalid(TAINT, "x", "is no key"), too_many(TAINT, 17, 16)
WORDS = "Too many: 17: must have at most 16 items"


@table(
    "finding, text",
    {
        "advice is a sentence": (Finding(Severity.WARN, NO_KEY, code="DT001"), "is no key"),
        "a rule's warning is a sentence": (Finding(Severity.WARN, NO_KEY, rule="team-a"), "is no key"),
        "only refusals forbid": (Finding(Severity.AUDIT, forbidden(TAINT, "hits 412 devices")), "hits 412 devices"),
        "a documented rule keeps the API server's words": (Finding(Severity.WARN, TOO_MANY, documented=True), WORDS),
        "a refusal keeps them": (
            *(Finding(Severity.DENY, forbidden(TAINT, "not yours"), rule="team-a"), "Forbidden: not yours"),
        ),
        "a refusal with a code keeps them": (
            *(Finding(Severity.DENY, NO_KEY, code="DT001"), 'Invalid value: "x": is no key'),
        ),
    },
)
def test_only_refusals_and_documented_rules_speak_in_the_api_servers_words(finding: Finding, text: str) -> None:
    assert str(finding) == f"spec.taint: {text}"


def test_finding_about_the_whole_object_has_no_path() -> None:
    assert str(Finding(Severity.WARN, invalid(Path.root(), None, "has no name"), code="DT001")) == "has no name"


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
    assert enforced == Finding(Severity.DENY, required(TAINT), rule="team-a", documented=True, turned_down=False)
    turned_down = Finding.refusal(required(TAINT), enforced=False)
    assert turned_down == Finding(Severity.WARN, required(TAINT), turned_down=True)


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


# --- numbers in messages, and what was probably meant ---------------------------------------------


@pytest.mark.parametrize(("number", "text"), [(0, "0 pods"), (1, "1 pod"), (2, "2 pods")])
def test_only_one_is_singular(number: int, text: str) -> None:
    assert counted(number, "pod") == text


CODES = [f"DT{number:03}" for number in (*range(1, 22), *range(101, 120))]


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("firmwar", ["firmware", "fan"], "firmware"),
        ("fimrware", ["firmware", "fan"], "firmware"),
        ("f", ["firmware", "fan"], "fan or firmware"),
        ("train", [f"train-{number}" for number in range(3)], "train-0, train-1 or train-2"),
        ("train", [f"train-{number}" for number in range(4)], ""),
        ("train-9", [f"train-{number}" for number in range(4)], ""),
        (
            "gpu.example.com/node-1/gpu-9",
            [f"gpu.example.com/node-{n}/gpu-0" for n in range(4)],
            "gpu.example.com/node-1/gpu-0",
        ),
        ("DT9", CODES, ""),
        ("DT130", CODES, ""),
        ("x", ["firmware"], ""),
        ("", ["firmware"], ""),
        ("firmware", [], ""),
    ],
)
def test_nearest(word: str, known: list[str], meant: str) -> None:
    assert nearest(word, known) == meant
    assert nearest(word, known, quote='"').replace('"', "") == meant
