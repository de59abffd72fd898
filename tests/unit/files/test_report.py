from __future__ import annotations

import pytest

from webhook.files.report import (
    UNREADABLE,
    Entry,
    Level,
    Report,
    Result,
    Row,
    as_text,
    as_values,
    summary,
    table,
)
from webhook.files.spots import Position


def make_entry(level: Level = Level.ERROR, message: str = "Required value", line: int = 3, **fields: str) -> Entry:
    return Entry(
        level, message, Position(line, 5), **{"field": "spec.taint.effect", "reason": "FieldValueRequired", **fields}
    )


def make_row(*entries: Entry, file: str = "a.yaml", document: int = 1, **fields: object) -> Row:
    given = {
        "api_version": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "name": "gpu-7",
        "operation": "CREATE",
        "position": Position(1, 1),
        "result": Result.DENIED if any(entry.level is Level.ERROR for entry in entries) else Result.ALLOWED,
    }
    return Row(file, document, entries=entries, **{**given, **fields})  # type: ignore[arg-type]


def make_report(*rows: Row) -> Report:
    report = Report(files=len({row.file for row in rows}))
    for row in rows:
        report.add(row)
    return report


PATCH = ({"op": "add", "path": "/spec/taint/timeAdded", "value": "2026-06-01T12:00:00Z"},)
FULL = make_report(
    make_row(make_entry(Level.WARNING, "is empty", code="DT001"), make_entry(line=2), patch=PATCH),
    make_row(document=2, namespace="ml", kind="ResourceClaim", name="c"),
    make_row(document=3, kind="Deployment", name="d", result=Result.SKIPPED, skipped="of other kinds"),
    make_row(make_entry(Level.INFO, "would set x", field="", reason=""), file="b.yaml"),
    Row("c.yaml", result=Result.DENIED, entries=(Entry(Level.ERROR, "cannot be read: no", reason=UNREADABLE),)),
)


def test_text_has_a_line_per_entry_by_position_and_a_summary() -> None:
    assert as_text(FULL) == (
        "a.yaml:2:5: error: DeviceTaintRule gpu-7: spec.taint.effect: Required value\n"
        "a.yaml:3:5: warning: DeviceTaintRule gpu-7: spec.taint.effect: is empty [DT001]\n"
        "b.yaml:3:5: info: would set x\n"
        "c.yaml: error: cannot be read: no\n"
        "3 files, 3 objects: 1 error, 1 warning, 1 unreadable; skipped: 1 of other kinds\n"
    )


def test_text_names_code_and_rule() -> None:
    report = make_report(make_row(make_entry(code="DT001", rule="no-wildcards")))
    assert as_text(report).splitlines()[0].endswith("Required value [DT001] (rule no-wildcards)")


def test_color_marks_place_and_level_only() -> None:
    line = as_text(make_report(make_row(make_entry())), color=True).splitlines()[0]
    assert line == "\x1b[1ma.yaml:3:5:\x1b[0m \x1b[1;31merror:\x1b[0m spec.taint.effect: Required value"


def test_text_cannot_steer_a_terminal() -> None:
    report = make_report(make_row(make_entry(message="a\x1b[2J\n\u202eb\ud800"), file="x\r.yaml"))
    first, _ = as_text(report).splitlines()
    assert first == "x\\r.yaml:3:5: error: spec.taint.effect: a\\x1b[2J\\n\\u202eb\\ud800"


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (Report(), "0 files, 0 objects: 0 errors, 0 warnings"),
        (make_report(make_row()), "1 file, 1 object: 0 errors, 0 warnings"),
        (make_report(make_row(make_entry(), make_entry())), "1 file, 1 object: 2 errors, 0 warnings"),
    ],
)
def test_summary_counts(report: Report, text: str) -> None:
    assert summary(report) == text


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (make_report(make_row(make_entry(Level.WARNING), make_entry(Level.INFO))), 0),
        (make_report(make_row(make_entry())), 1),
        (FULL, 2),
    ],
)
def test_exit_code_tells_findings_from_unreadable_input(report: Report, code: int) -> None:
    assert report.exit_code == code


def test_values_are_what_the_reference_says() -> None:
    identity = {"file": "a.yaml", "document": 1, "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule"}
    identity |= {"namespace": "", "name": "gpu-7"}
    values = as_values(FULL)
    assert values["version"] == 1
    assert values["summary"] == {
        "files": 3,
        "objects": 3,
        "skipped": 1,
        "errors": 1,
        "warnings": 1,
        "unreadable": 1,
    }
    assert values["findings"][0] == identity | {
        "line": 3,
        "column": 5,
        "severity": "warning",
        "reason": "FieldValueRequired",
        "field": "spec.taint.effect",
        "message": "is empty",
        "code": "DT001",
        "rule": None,
    }
    assert [finding["severity"] for finding in values["findings"]] == ["warning", "error", "error"]
    assert values["objects"][0] == identity | {
        "line": 1,
        "column": 1,
        "operation": "CREATE",
        "result": "denied",
        "skipped": None,
        "patch": list(PATCH),
        "differences": [],
        "explanation": None,
    }
    assert [row["result"] for row in values["objects"]] == ["denied", "allowed", "skipped", "allowed"]


def test_a6_warnings_count_for_the_exit_code_only_if_they_are_to() -> None:
    report = make_report(make_row(make_entry(Level.WARNING)))
    assert report.exit_code == 0
    report.strict = True
    assert report.exit_code == 1


ROWS = [["ml/train-0", "100", "no toleration"], ["web/serve", "1000", "gpu op=Exists"]]


def test_columns_are_as_wide_as_they_must() -> None:
    assert table(ROWS, headers=("POD", "PRIORITY", "WHY"), right=(1,)) == [
        "POD          PRIORITY   WHY",
        "ml/train-0        100   no toleration",
        "web/serve        1000   gpu op=Exists",
    ]


def test_a_table_needs_no_header() -> None:
    assert table([("a", "b"), ("cc", "")]) == ["a    b", "cc"]


def test_nothing_is_no_line() -> None:
    assert table([], headers=("POD",)) == []


def test_lines_of_files_are_not_folded() -> None:
    long = "a sentence of many words " * 40
    assert table([("x", long)]) == [f"x   {long.rstrip()}"]


def test_on_a_screen_the_last_column_is_folded() -> None:
    assert table([("ml/train-0", "first second third")], width=24) == [
        "ml/train-0   first",
        "             second",
        "             third",
    ]


@pytest.mark.parametrize("name", ["[bold]x[/bold]", ":smile:", "http://example.com/1"])
def test_names_are_no_markup(name: str) -> None:
    assert table([(name, "x")], color=True) == [f"{name}   x"]


def test_nothing_in_a_cell_steers_a_terminal() -> None:
    assert table([("a\x1b[31m\n", "x")]) == [r"a\x1b[31m\n   x"]


def test_headers_are_bold_only_in_color() -> None:
    assert "\x1b[1m" in table(ROWS, headers=("A", "B", "C"), color=True)[0]
    assert "\x1b" not in table(ROWS, headers=("A", "B", "C"))[0]


def test_the_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = table(ROWS, headers=("A", "B", "C"))
    for name, value in (("COLUMNS", "10"), ("FORCE_COLOR", "1"), ("TERM", "dumb"), ("NO_COLOR", "")):
        monkeypatch.setenv(name, value)
    assert table(ROWS, headers=("A", "B", "C")) == expected


def test_a_word_longer_than_its_column_begins_on_a_line_of_its_own_and_is_broken() -> None:
    assert table([("a", "one " + "x" * 18)], width=14) == ["a   one", "    xxxxxxxxxx", "    xxxxxxxx"]


def test_nothing_is_folded_where_the_other_columns_fill_the_screen() -> None:
    assert table([("ml/train-0", "first second")], width=12) == ["ml/train-0   first second"]


def test_wide_characters_take_two_columns_and_combining_ones_none() -> None:
    assert table([("日本", "x"), ("e\u0301", "y"), ("four", "z")]) == ["日本   x", "e\u0301      y", "four   z"]


def test_the_line_of_headers_is_bold_as_far_as_its_columns_reach() -> None:
    header = table(ROWS, headers=("A", "B", "C"), color=True)[0]
    assert header.replace("\x1b[1m", "").replace("\x1b[0m", "") == "A            B      C            "
