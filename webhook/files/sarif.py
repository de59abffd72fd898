"""A report as SARIF 2.1.0, which code scanning of GitHub, GitLab and Azure DevOps reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from webhook import __version__
from webhook.api.names import PROGRAM
from webhook.files.report import UNREADABLE, Level
from webhook.files.stdin import STDIN_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.files.report import Entry, Report, Row

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "note"}
_OTHER: Final = "Finding"


def sarif_values(report: Report) -> dict[str, Any]:
    """One run: findings as results, by code, policy rule or reason; unreadable input as notifications."""
    results, unread = [], []
    rules: dict[str, int] = {}
    for row, entry in report.entries():
        if entry.reason == UNREADABLE:
            unread.append({"level": "error", "message": {"text": entry.message}, **_places(row, entry)})
        else:
            results.append(_result(row, entry, rules))
    if report.nothing_checked:
        unread.append({"level": "error", "message": {"text": report.nothing_checked}})
    invocation = {
        "executionSuccessful": not unread,
        "exitCode": report.exit_code,
        "toolExecutionNotifications": [*unread, *_notes(report.notes)],
    }
    driver = {
        "name": PROGRAM,
        "semanticVersion": __version__,
        "rules": [{"id": name} for name in rules],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [invocation],
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(row: Row, entry: Entry, rules: dict[str, int]) -> dict[str, Any]:
    name = entry.code or entry.rule or entry.reason or _OTHER
    return {
        "ruleId": name,
        "ruleIndex": rules.setdefault(name, len(rules)),
        "level": _LEVELS[entry.level],
        "message": {"text": entry.text},
        **_places(row, entry),
    }


def _places(row: Row, entry: Entry) -> dict[str, Any]:
    """Where it is: in a file, and in which object and field."""
    place: dict[str, Any] = {}
    if row.file != STDIN_NAME:
        place["physicalLocation"] = {"artifactLocation": {"uri": quote(row.file, errors="replace")}}
        if entry.position is not None:
            region = {"startLine": entry.position.line, "startColumn": entry.position.column}
            place["physicalLocation"]["region"] = region
    if row.reference:
        name = f"{row.reference}: {entry.field}" if entry.field else row.reference
        place["logicalLocations"] = [{"fullyQualifiedName": name}]
    return {"locations": [place]} if place else {}


def _notes(notes: Iterable[str]) -> list[dict[str, Any]]:
    return [{"level": "note", "message": {"text": note}} for note in notes]
