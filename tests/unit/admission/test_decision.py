from __future__ import annotations

from typing import Any

import pytest

from tests.tables import table
from webhook.admission.decision import ALLOWED, REMOVED, Decision, Pointer, apply_patch, patch_for, render
from webhook.api.field import Finding, Path, Severity, forbidden, invalid

# The documentation and earlier policies rely on these numbers, so they are written out.
WARNING_MAX = 256
WARNINGS_MAX = 4096

AT = Path.root().child("spec")
FIELD = Finding(Severity.DENY, invalid(AT, "x", "must be y"))
POLICY = Finding(Severity.DENY, forbidden(AT, "not yours"), rule="team-a")
ADVICE = Finding(Severity.WARN, invalid(AT, "x", "is odd"), "DT001")
SILENT = Finding(Severity.AUDIT, invalid(AT, "x", "is noted"))


@table(
    "decision, allowed, code",
    {
        "nothing found": (ALLOWED, True, 200),
        "advice": (Decision((ADVICE,)), True, 200),
        "something for the audit log": (Decision((SILENT,)), True, 200),
        "a field error": (Decision((FIELD,)), False, 422),
        "a rule of the policy": (Decision((POLICY,)), False, 403),
        "both: the object is wrong whoever asks": (Decision((POLICY, FIELD, ADVICE)), False, 422),
        "a rule of the policy beside advice": (Decision((POLICY, ADVICE)), False, 403),
        "a request that makes no sense": (Decision(problem="request.uid"), False, 400),
    },
)
def test_findings_decide(decision: Decision, *, allowed: bool, code: int) -> None:
    assert (decision.allowed, decision.code) == (allowed, code)


def test_denials_and_errors_are_what_refuses() -> None:
    decision = Decision((ADVICE, FIELD, SILENT, POLICY))
    assert decision.denials == (FIELD, POLICY)
    assert decision.errors == (FIELD.error, POLICY.error)


def advice(text: str, code: str | None = "DT001") -> Finding:
    return Finding(Severity.WARN, invalid(AT, "x", text), code)


@table(
    "finding, warning",
    {
        "advice is a sentence with its code": (ADVICE, "spec: is odd [DT001]"),
        "a rule turned down says all it knows": (advice("must be y", None), 'spec: Invalid value: "x": must be y'),
        "a header has one line": (advice("a\n  b\tc"), "spec: a b c [DT001]"),
        "cut to 256 characters, the code is kept": (advice("x" * 500), "spec: " + "x" * 239 + "... [DT001]"),
        "a character too many, with the code": (advice("x" * 243), "spec: " + "x" * 239 + "... [DT001]"),
        "characters count, not bytes": (advice("ü" * 242), "spec: " + "ü" * 242 + " [DT001]"),
    },
)
def test_warning_is_one_line_of_256_characters_at_most(finding: Finding, warning: str) -> None:
    (text,) = Decision((finding,)).warnings
    assert text == warning
    assert len(text) <= WARNING_MAX


@pytest.mark.parametrize("number", [1, 15, 16, 17, 100, 5000])
def test_warnings_are_4096_characters_at_most_and_the_rest_is_counted(number: int) -> None:
    findings = tuple(advice(f"{each} " + "x" * 300) for each in range(number))
    warnings = Decision(findings).warnings
    assert sum(len(text) for text in warnings) <= WARNINGS_MAX
    if number <= 15:
        assert len(warnings) == number
    else:
        rest = number - len(warnings) + 1
        assert warnings[-1] == ("and 1 more warning" if rest == 1 else f"and {rest} more warnings")
        assert [text.split()[1] for text in warnings[:-1]] == [str(each) for each in range(len(warnings) - 1)]


def test_refusal_shows_its_advice_as_well() -> None:
    assert Decision((FIELD, ADVICE)).warnings == ("spec: is odd [DT001]",)


@pytest.mark.parametrize(("last", "shown"), [(216, 16), (217, 15)])
def test_forty_characters_are_left_for_the_count_of_the_rest(last: int, shown: int) -> None:
    frame = len("spec:  [DT001]")
    lengths = [256] * 15 + [last]
    warnings = Decision(tuple(advice("x" * (length - frame)) for length in lengths)).warnings
    assert [len(text) for text in warnings[:shown]] == lengths[:shown]
    assert warnings[shown:] == (() if shown == 16 else ("and 1 more warning",))


# --- patches --------------------------------------------------------------------------------------


@table(
    "document, edits, operations",
    {
        "a field of an object": ({"a": {}}, [(("a", "b"), 1)], [("add", "/a/b", 1)]),
        "what is there is replaced by add": ({"a": 1}, [(("a",), 2)], [("add", "/a", 2)]),
        "missing parents are made": (
            {},
            [(("a", "b", "c"), 1)],
            [("add", "/a", {}), ("add", "/a/b", {}), ("add", "/a/b/c", 1)],
        ),
        "null parents are made as well": ({"a": None}, [(("a", "b"), 1)], [("add", "/a", {}), ("add", "/a/b", 1)]),
        "a parent is made once": (
            {},
            [(("a", "b"), 1), (("a", "c"), 2)],
            [("add", "/a", {}), ("add", "/a/b", 1), ("add", "/a/c", 2)],
        ),
        "through lists": (
            {"a": [{}, {"b": 1}]},
            [(("a", 1, "b"), 2), (("a", 0, "b"), 3)],
            [("add", "/a/1/b", 2), ("add", "/a/0/b", 3)],
        ),
        "a null entry is replaced, as add would insert": (
            {"a": [1, None, 2]},
            [(("a", 1, "b"), 3)],
            [("replace", "/a/1", {}), ("add", "/a/1/b", 3)],
        ),
        "slashes and tildes are escaped": (
            {"a": {"x/y": {}, "~": {}}},
            [(("a", "x/y", "z"), 1), (("a", "~", "~1"), 2)],
            [("add", "/a/x~1y/z", 1), ("add", "/a/~0/~01", 2)],
        ),
        "nothing to do": ({"a": 1}, [], []),
    },
)
def test_patch_sets_each_pointer(document: Any, edits: list[tuple[Pointer, Any]], operations: list[Any]) -> None:
    expected = tuple({"op": op, "path": path, "value": value} for op, path, value in operations)
    assert patch_for(document, edits) == expected


def test_patch_carried_out_leaves_everything_else_and_the_original_alone() -> None:
    document = {"a": [{"b": 1}, None], "c": {"d/e": 1, "f~": 2}, "g": None}
    edits: list[tuple[Pointer, Any]] = [
        (("a", 0, "x"), 1),
        (("a", 1, "y"), 2),
        (("c", "d/e"), 3),
        (("c", "f~"), 4),
        (("g", "h", "i"), 5),
    ]
    patched = apply_patch(document, patch_for(document, edits))
    assert patched == {"a": [{"b": 1, "x": 1}, {"y": 2}], "c": {"d/e": 3, "f~": 4}, "g": {"h": {"i": 5}}}
    assert document == {"a": [{"b": 1}, None], "c": {"d/e": 1, "f~": 2}, "g": None}


def test_empty_pointer_names_the_document() -> None:
    assert render(()) == ""
    assert apply_patch({"a": 1}, [{"op": "add", "path": "", "value": 2}]) == 2


def test_value_that_is_removed_is_gone_and_its_neighbours_stay() -> None:
    document = {"a": {"b": 1, "c": [{"d": 2, "e": 3}]}, "f": 4}
    patch = patch_for(document, [(("a", "b"), REMOVED), (("a", "c", 0, "d"), REMOVED), (("f",), REMOVED)])
    assert [each["op"] for each in patch] == ["remove"] * 3
    assert apply_patch(document, patch) == {"a": {"c": [{"e": 3}]}}
