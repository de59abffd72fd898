"""The results of a run over files: a row per object, an entry per finding. `render` prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webhook.files.spots import Position


class Level(StrEnum):
    """The severity of an entry. An unreadable document is an error with its own exit code."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Result(StrEnum):
    """The verdict on an object."""

    ALLOWED = "allowed"
    DENIED = "denied"
    SKIPPED = "skipped"


NOT_OURS = "not readable and without our API groups"
"""Why a file is skipped that is not YAML as Kubernetes has it, where files of other kinds are."""
NOT_RENDERED = "templates that name our API groups, not rendered"
"""Why such a file is skipped."""
UNREADABLE = "Unreadable"
"""The reason of entries about input that could not be read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One finding. `reason` is the API server's (FieldValueInvalid ...) or ours (DuplicateKey, Unreadable)."""

    level: Level
    message: str
    position: Position | None = None
    field: str = ""
    reason: str = ""
    code: str | None = None
    rule: str | None = None

    @property
    def text(self) -> str:
        """The message after the path, if it has one."""
        return f"{self.field}: {self.message}" if self.field else self.message

    @property
    def values(self) -> dict[str, Any]:
        """What every structure has of it."""
        return {
            "line": self.position.line if self.position else None,
            "column": self.position.column if self.position else None,
            "severity": self.level.value,
            "reason": self.reason,
            "field": self.field,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class Row:
    """One object, or a whole file where `document` is 0, with its findings."""

    file: str
    document: int = 0
    position: Position | None = None
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    operation: str = ""
    result: Result = Result.ALLOWED
    skipped: str = ""
    """Why it was not reviewed."""
    patch: tuple[dict[str, Any], ...] = ()
    differences: tuple[dict[str, Any], ...] = ()
    """What a candidate policy would say instead: path, what, rule, change."""
    local: bool = True
    """Whether it is about a file of this machine, and not about a cluster or the run itself."""
    judges: bool = False
    """It is the policy that objects are reviewed against, so it does not count as an object."""
    explanation: Mapping[str, Any] | None = None
    """Why the policy decided as it did, if requested: who, notes, walks."""
    entries: tuple[Entry, ...] = ()

    @property
    def reference(self) -> str:
        """`Kind namespace/name`, without what is not known."""
        name = f"{self.namespace}/{self.name}" if self.namespace and self.name else self.name
        return " ".join(filter(None, (self.kind, name)))

    def failed(self, message: str, reason: str = UNREADABLE) -> Row:
        """The same row, denied for one error, at its own position; `reason` is as in Entry."""
        return replace(self, result=Result.DENIED, entries=(Entry(Level.ERROR, message, self.position, reason=reason),))

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The entries as `status` and `preview` have them in JSON and YAML."""
        return [{"file": self.file, **entry.values} for entry in self.entries]

    def count(self, level: Level) -> int:
        """How many entries of a level there are."""
        return sum(entry.level is level for entry in self.entries)


@dataclass(slots=True)
class Report:
    """Everything a run found. `judged` and `skipped` count objects, `skipped` by the reason.

    `files` counts what was read, for which `source` is the word. `notes` say what cannot be known. With `strict`
    warnings count as errors for the exit code. Findings with a code in `ignored` are left out.
    """

    files: int = 0
    rows: list[Row] = field(default_factory=list)
    judged: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    errors: int = 0
    warnings: int = 0
    unreadable: int = 0
    source: str = "file"
    notes: list[str] = field(default_factory=list)
    strict: bool = False
    ignored: frozenset[str] = frozenset()
    nothing_checked: str = ""
    """What to say of a run that checked nothing, where that is an error."""

    def add(self, row: Row) -> None:
        """One more object or file."""
        if any(entry.code in self.ignored for entry in row.entries):
            row = replace(row, entries=tuple(entry for entry in row.entries if entry.code not in self.ignored))
        self.rows.append(row)
        if row.document and not row.judges and row.result is not Result.SKIPPED:
            self.judged += 1
        elif row.document and not row.judges:
            self.skipped[row.skipped] += 1
        self.warnings += row.count(Level.WARNING)
        unreadable = sum(entry.reason == UNREADABLE for entry in row.entries)
        self.unreadable += unreadable
        self.errors += row.count(Level.ERROR) - unreadable

    def entries(self) -> Iterator[tuple[Row, Entry]]:
        """All entries with their rows."""
        for row in self.rows:
            for entry in row.entries:
                yield row, entry

    @property
    def exit_code(self) -> int:
        """0 fine, 1 findings, 2 something could not be read, or there was nothing to check."""
        if self.unreadable or self.nothing_checked:
            return 2
        return 1 if self.errors or (self.strict and self.warnings) else 0
