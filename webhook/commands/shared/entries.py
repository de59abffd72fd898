"""Findings as entries of a report, each with its position in the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from webhook.api.field import Finding, Path, Severity
from webhook.files.read import File, Manifest
from webhook.files.report import NOT_OURS, NOT_RENDERED, UNREADABLE, Entry, Level, Result, Row
from webhook.files.spots import Position, Spot, explained, find, path_of
from webhook.policy.lint import MISREAD

BAD_REQUEST: Final = "BadRequest"
LEVELS: Final = {Severity.DENY: Level.ERROR, Severity.WARN: Level.WARNING, Severity.AUDIT: Level.INFO}
_HINT: Final = "; it has no API group of ours: --skip-others skips such files"
_TEMPLATE_HINT: Final = "; --skip-others skips templates in folders"
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|(\[[^\]]*\])")


def entries_of(spot: Spot, findings: Iterable[Finding], *, at_keys: bool = False) -> Iterator[Entry]:
    """Yield an entry for each finding about the object at `spot`; `at_keys` shows the key rather than its value."""
    for finding in findings:
        error = explained(finding.error, spot)
        place, found = find(spot, error.path)
        position = place.key_position if at_keys and found else None
        yield Entry(
            LEVELS[finding.severity],
            replace(finding, error=error).body,
            position or place.position,
            error.field,
            error.type.value,
            finding.code,
            finding.rule,
        )


def duplicate_entries(manifest: Manifest) -> Iterator[Entry]:
    """Yield an error for each duplicate key in the manifest."""
    for problem in manifest.problems:
        path = path_of(problem.steps[len(manifest.steps) :]).written
        yield Entry(Level.ERROR, problem.message, problem.position, path, "DuplicateKey")


def remark_entries(manifest: Manifest) -> Iterator[Entry]:
    """Yield a warning for each value that YAML reads in another way than was probably meant."""
    for remark in manifest.remarks:
        path = path_of(remark.steps[len(manifest.steps) :]).written
        yield Entry(Level.WARNING, remark.message, remark.position, path, code=MISREAD)


def by_position(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries in the order of the file."""
    return sorted(entries, key=lambda entry: entry.position or (0, 0))


def with_entries(row: Row, entries: Iterable[Entry]) -> Row:
    """Return the row with its entries: denied if one is an error, else allowed."""
    row = replace(row, entries=tuple(entries))
    return replace(row, result=Result.DENIED if row.count(Level.ERROR) else Result.ALLOWED)


def unreadable_row(file: File, *, skip_others: bool | None = None) -> Row | None:
    """Return a row with what could not be read in a file, or None.

    `skip_others` is the value of the flag, None for a verb without it. With it, a file without an API group of ours is
    skipped, as it always is in a folder, and so is a template in a folder; without it, errors name the flag.
    """
    if not file.unreadable:
        return None
    found = not file.explicit
    if file.foreign and (skip_others or (found and skip_others is not None)):
        return Row(file.name, 1, result=Result.SKIPPED, skipped=NOT_OURS)
    template = found and file.template and skip_others is not None
    if template and skip_others:
        notes = tuple(Entry(Level.INFO, error.message, error.position) for error in file.unreadable)
        return Row(file.name, 1, result=Result.SKIPPED, skipped=NOT_RENDERED, entries=notes)
    hint = _HINT if skip_others is not None and file.foreign else _TEMPLATE_HINT if template else ""
    entries = tuple(
        Entry(Level.ERROR, f"{error.message}{hint}", error.position, reason=UNREADABLE) for error in file.unreadable
    )
    return Row(file.name, result=Result.DENIED, entries=entries)


def position_of(spot: Spot, path: str) -> Position:
    """Return the position of the field at a path, given as text; of its nearest parent where there is no such field."""
    at = Path.root()
    for name, bracketed in _STEP.findall(path):
        at = at.child(name) if name else Path(at, bracketed)
    return find(spot, at)[0].position
