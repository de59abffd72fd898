from __future__ import annotations

from typing import Any

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


def test_color_marks_place_and_level_only() -> None:
    line = as_text(make_report(make_row(make_entry())), color=True).splitlines()[0]
    assert line == "\x1b[1ma.yaml:3:5:\x1b[0m \x1b[1;31merror:\x1b[0m spec.taint.effect: Required value"


def test_values_count_and_have_an_entry_for_each_finding_and_object() -> None:
    values = as_values(FULL)
    counts = {"files": 3, "objects": 3, "skipped": 1, "errors": 1, "warnings": 1, "unreadable": 1}
    assert (values["version"], values["summary"]) == (1, counts)
    assert [finding["severity"] for finding in values["findings"]] == ["warning", "error", "error"]
    found = [values["findings"][0][each] for each in ("file", "line", "column", "field", "message", "code", "rule")]
    assert found == ["a.yaml", 3, 5, "spec.taint.effect", "is empty", "DT001", None]
    assert [row["result"] for row in values["objects"]] == ["denied", "allowed", "skipped", "allowed"]
    assert [(row["document"], row["namespace"], row["skipped"], row["patch"]) for row in values["objects"][:3]] == [
        (1, "", None, list(PATCH)),
        (2, "ml", None, []),
        (3, "", "of other kinds", []),
    ]


ROWS = [["ml/train-0", "100", "no toleration"], ["web/serve", "1000", "gpu op=Exists"]]


LONG = "a sentence of many words " * 40
TABLES: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "columns are as wide as they must be": (
        ROWS,
        {"headers": ("POD", "PRIORITY", "WHY"), "right": (1,)},
        [
            "POD          PRIORITY   WHY",
            "ml/train-0        100   no toleration",
            "web/serve        1000   gpu op=Exists",
        ],
    ),
    "a table needs no header": ([("a", "b"), ("cc", "")], {}, ["a    b", "cc"]),
    "nothing is no line": ([], {"headers": ("POD",)}, []),
    "lines of files are not folded": ([("x", LONG)], {}, [f"x   {LONG.rstrip()}"]),
    "on a screen the last column is folded": (
        [("ml/train-0", "first second third")],
        {"width": 24},
        ["ml/train-0   first", "             second", "             third"],
    ),
    "a word longer than its column begins on a line of its own, and is broken": (
        [("a", "one " + "x" * 18)],
        {"width": 14},
        ["a   one", "    xxxxxxxxxx", "    xxxxxxxx"],
    ),
    "nothing is folded where the other columns fill the screen": (
        [("ml/train-0", "first second")],
        {"width": 12},
        ["ml/train-0   first second"],
    ),
    "wide characters take two columns and combining ones none": (
        [("日本", "x"), ("e\u0301", "y"), ("four", "z")],
        {},
        ["日本   x", "e\u0301      y", "four   z"],
    ),
    "nothing in a cell steers a terminal": ([("a\x1b[31m\n", "x")], {}, [r"a\x1b[31m\n   x"]),
    **{
        f"{name} is no markup": ([(name, "x")], {"color": True}, [f"{name}   x"])
        for name in ("[bold]x[/bold]", ":smile:", "http://example.com/1")
    },
}


@pytest.mark.parametrize(("rows", "settings", "lines"), TABLES.values(), ids=TABLES)
def test_table_is_laid_out(rows: Any, settings: dict[str, Any], lines: list[str]) -> None:
    assert table(rows, **settings) == lines


def test_the_environment_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = table(ROWS, headers=("A", "B", "C"))
    for name, value in (("COLUMNS", "10"), ("FORCE_COLOR", "1"), ("TERM", "dumb"), ("NO_COLOR", "")):
        monkeypatch.setenv(name, value)
    assert table(ROWS, headers=("A", "B", "C")) == expected


def test_the_line_of_headers_is_bold_as_far_as_its_columns_reach() -> None:
    header = table(ROWS, headers=("A", "B", "C"), color=True)[0]
    assert ("\x1b[1m" in header, "\x1b" in table(ROWS, headers=("A", "B", "C"))[0]) == (True, False)
    assert header.replace("\x1b[1m", "").replace("\x1b[0m", "") == "A            B      C            "
