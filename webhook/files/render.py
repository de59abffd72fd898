"""A report as text, as values for JSON and YAML, and as JUnit for CI viewers.

The structure of JSON and YAML is stable: fields may be added, none goes or changes its meaning while `version` is 1.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from webhook.api.counts import counted
from webhook.api.names import PROGRAM
from webhook.files.report import UNREADABLE, Entry, Level, Report, Result, Row
from webhook.files.stdin import STDIN_NAME

VERSION: Final = 1

_COLORS: Final = {Level.ERROR: "\x1b[1;31m", Level.WARNING: "\x1b[1;33m", Level.INFO: "\x1b[36m"}
_BOLD: Final = "\x1b[1m"
_PLAIN: Final = "\x1b[0m"


def as_text(report: Report, *, color: bool = False, named: bool = False) -> str:
    """`FILE:LINE:COL: error: path: message [DT001]`, by file and position, and a summary.

    Lines name the object as well for standard input and for files with several objects; with `named`, always.
    """
    crowded = _crowded(report)
    lines = [line(row, entry, color=color, named=named or row.file in crowded) for row, entry in in_order(report)]
    lines += [visible(f"note: {note}") for note in report.notes]
    return "\n".join([*lines, summary(report)]) + "\n"


def in_order(report: Report) -> list[tuple[Row, Entry]]:
    """All entries with their rows: files in the order in which they were read, entries by position."""
    files: dict[str, int] = {}
    for row in report.rows:
        files.setdefault(row.file, len(files))

    def place(pair: tuple[Row, Entry]) -> tuple[int, int, int]:
        row, entry = pair
        return files[row.file], *(entry.position or (0, 0))

    return sorted(report.entries(), key=place)


def _crowded(report: Report) -> set[str]:
    """The files with several objects, where a line number alone does not identify the object."""
    objects = Counter(row.file for row in report.rows if row.document)
    return {file for file, number in objects.items() if number > 1 or file == STDIN_NAME}


def line(row: Row, entry: Entry, *, color: bool, named: bool = False) -> str:
    """One entry of a text report."""
    where = row.file if entry.position is None else f"{row.file}:{entry.position.line}:{entry.position.column}"
    text = entry.text
    if named and row.reference and not text.startswith(f"{row.reference}: "):
        text = f"{row.reference}: {text}"
    # as in the answers of the webhook
    tail = f" [{entry.code}]" if entry.code else ""
    tail += f" (rule {entry.rule})" if entry.rule else ""
    level = entry.level.value
    if color:
        return f"{_BOLD}{visible(where)}:{_PLAIN} {_COLORS[entry.level]}{level}:{_PLAIN} {visible(text + tail)}"
    return f"{visible(where)}: {level}: {visible(text + tail)}"


def visible(text: str) -> str:
    """The text on one line, with everything escaped that could steer a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def shortened(text: str, most: int) -> str:
    """Return a text of at most that many characters; the end of a longer one is dots."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def summary(report: Report) -> str:
    """`3 files, 7 objects: 2 errors, 1 warning`, and what was left out."""
    found = [counted(report.errors, "error"), counted(report.warnings, "warning")]
    if report.unreadable:
        found.append(f"{report.unreadable} unreadable")
    text = f"{counted(report.files, report.source)}, {counted(report.judged, 'object')}: {', '.join(found)}"
    if report.skipped:
        reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(report.skipped.items()))
        text += f"; skipped: {reasons}"
    return text


def as_values(report: Report) -> dict[str, Any]:
    """The structure behind JSON and YAML.

    `findings` is flat, one entry per thing to say, each with the object it belongs to; `objects` has a row per
    object, with the JSON patch that /mutate would answer; the policy that they are reviewed against is not one of
    them. Lines and columns count from 1 and are null for a whole file; `document` counts from 1 and is 0 for a
    whole file.
    """
    return {
        "version": VERSION,
        "summary": {
            "files": report.files,
            "objects": report.judged,
            "skipped": report.skipped.total(),
            "errors": report.errors,
            "warnings": report.warnings,
            "unreadable": report.unreadable,
        },
        "findings": [
            {**_identity(row), **entry.values, "code": entry.code, "rule": entry.rule}
            for row, entry in report.entries()
            if entry.level is not Level.INFO
        ],
        "objects": [_object_values(row) for row in report.rows if row.document and not row.judges],
        "notes": list(report.notes),
    }


def _object_values(row: Row) -> dict[str, Any]:
    return {
        **_identity(row),
        "line": row.position.line if row.position else None,
        "column": row.position.column if row.position else None,
        "operation": row.operation,
        "result": row.result.value,
        "skipped": row.skipped or None,
        "patch": list(row.patch),
        "differences": [dict(difference) for difference in row.differences],
        "explanation": None if row.explanation is None else dict(row.explanation),
    }


def _identity(row: Row) -> dict[str, Any]:
    return {
        "file": row.file,
        "document": row.document,
        "apiVersion": row.api_version,
        "kind": row.kind,
        "namespace": row.namespace,
        "name": row.name,
    }


def as_junit(report: Report, *, verb: str = "check") -> str:
    """One suite per file, one test case per object; warnings go to the case's output."""
    from xml.etree import ElementTree as ET  # noqa: PLC0415 -- only here, and only to write

    root = ET.Element("testsuites", {"name": f"{PROGRAM} {verb}"})
    totals = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    by_file: defaultdict[str, list[Row]] = defaultdict(list)
    for row in report.rows:
        by_file[row.file].append(row)
    for file, rows in by_file.items():
        suite = ET.SubElement(root, "testsuite", {"name": _xml(file)})
        counts = dict.fromkeys(totals, 0)
        for row in rows:
            if row.judges and not row.entries:
                continue
            outcome = _case(suite, row, ET.SubElement)
            counts["tests"] += 1
            if outcome:
                counts[outcome] += 1
        suite.attrib.update({name: str(number) for name, number in counts.items()})
        for name, number in counts.items():
            totals[name] += number
    root.attrib.update({name: str(number) for name, number in totals.items()})
    ET.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _case(suite: Any, row: Row, element: Callable[..., Any]) -> str:
    """Adds the test case of a row; returns the counter to increase, or an empty text."""
    where = f" (document {row.document})" if row.document > 1 else ""
    name = (row.reference or "object") + where if row.document else "read"
    attributes = {"name": _xml(name), "classname": _xml(row.file), "file": _xml(row.file)}
    if row.position:
        attributes["line"] = str(row.position.line)
    case = element(suite, "testcase", attributes)
    outcome = ""
    errors = [entry for entry in row.entries if entry.level is Level.ERROR]
    if errors:
        outcome = "errors" if any(entry.reason == UNREADABLE for entry in errors) else "failures"
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        failure = element(case, outcome.removesuffix("s"), {"message": _xml(first.text + more), "type": first.reason})
        failure.text = _xml("\n".join(_lines(row, errors)))
    elif row.result is Result.SKIPPED:
        outcome = "skipped"
        element(case, "skipped", {"message": _xml(row.skipped)})
    others = [entry for entry in row.entries if entry.level is not Level.ERROR]
    if others:
        element(case, "system-out").text = _xml("\n".join(_lines(row, others)))
    return outcome


def _lines(row: Row, entries: Iterable[Entry]) -> Iterator[str]:
    return (line(row, entry, color=False) for entry in entries)


def _xml(text: str) -> str:
    """The text without characters that XML 1.0 cannot represent."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)
