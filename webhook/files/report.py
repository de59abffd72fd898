"""The results of a run over files, a row per object and an entry per finding, and how reports and tables are printed.

The structure of JSON and YAML is stable: fields may be added, none goes or changes its meaning while `version` is 1.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from webhook.api.messages import counted
from webhook.files import STDIN_NAME

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

    @property
    def identity(self) -> dict[str, Any]:
        """The same, field by field, as every structure has it."""
        return {
            "file": self.file,
            "document": self.document,
            "apiVersion": self.api_version,
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
        }

    def failed(self, message: str, reason: str = UNREADABLE) -> Row:
        """Deny the row for one error, at its own position; `reason` is as in Entry."""
        return replace(self, result=Result.DENIED, entries=(Entry(Level.ERROR, message, self.position, reason=reason),))

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The entries as `status` and `preview` have them in JSON and YAML."""
        return [{"file": self.file, **entry.values} for entry in self.entries]

    def count(self, level: Level) -> int:
        """Count the entries of a level."""
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
        """Add an object or file."""
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
        """Yield all entries with their rows."""
        for row in self.rows:
            for entry in row.entries:
                yield row, entry

    @property
    def exit_code(self) -> int:
        """0 fine, 1 findings, 2 something could not be read, or there was nothing to check."""
        if self.unreadable or self.nothing_checked:
            return 2
        return 1 if self.errors or (self.strict and self.warnings) else 0


_WIDTH: Final = 120


def encodable(value: Any) -> Any:
    """Return the value without half surrogate pairs, which file names may contain and UTF-8 cannot encode."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {encodable(key): encodable(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [encodable(entry) for entry in value]
    return value


def json_text(value: Any, indent: int | None = 2) -> str:
    """Return a value as JSON with a final newline, keys in their order; on one line without `indent`."""
    return _readable(lambda raw: json.dumps(encodable(value), indent=indent, ensure_ascii=not raw)) + "\n"


def _readable(dump: Callable[[bool], str]) -> str:
    """Keep characters beyond ASCII (true), unless one of them steers a terminal. JSON takes DEL for none."""
    text = dump(True)  # noqa: FBT003 -- a callback's argument
    return text if text.replace("\n", "").isprintable() else dump(False).replace("\x7f", "\\u007f")  # noqa: FBT003


def yaml_text(value: Any) -> str:
    """Return a value as YAML, in the same way."""
    import yaml  # noqa: PLC0415 -- only here; the reader has it already

    return _readable(lambda raw: yaml.safe_dump(encodable(value), sort_keys=False, allow_unicode=raw, width=_WIDTH))


STRUCTURED: Final[Mapping[str, Callable[[Any], str]]] = {"json": json_text, "yaml": yaml_text}
"""By the value of `-o`."""
FORMATS: Final = ("text", "json", "yaml", "junit", "github", "gitlab", "sarif")
"""Of a whole report, by the value of `-o`."""


def json_list(objects: Sequence[dict[str, Any]]) -> str:
    """Return manifests as a v1 List in JSON, which kubectl takes apart."""
    return json_text({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def yaml_stream(objects: Sequence[dict[str, Any]]) -> str:
    """Return manifests as YAML documents; texts of several lines become literal blocks, which are easier to read."""
    import yaml  # noqa: PLC0415 -- only here; most commands read YAML and write none

    class Dumper(yaml.SafeDumper):
        """With literal blocks."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    options: Any = {"Dumper": Dumper, "explicit_start": True, "sort_keys": False, "width": _WIDTH}
    return _readable(lambda raw: yaml.dump_all(encodable(list(objects)), allow_unicode=raw, **options))


_COLORS: Final = {Level.ERROR: "\x1b[1;31m", Level.WARNING: "\x1b[1;33m", Level.INFO: "\x1b[36m"}


def as_text(report: Report, *, color: bool = False, named: bool = False) -> str:
    """Return lines `FILE:LINE:COL: error: path: message [DT001]`, by file and position, and a summary.

    Lines name the object as well for standard input and for files with several objects; with `named`, always.
    """
    objects = Counter(row.file for row in report.rows if row.document)
    lines = []
    for row, entry in in_order(report):
        crowded = objects[row.file] > (0 if row.file == STDIN_NAME else 1)  # a line number alone names no object
        lines.append(line(row, entry, color=color, named=named or crowded))
    lines += [visible(f"note: {note}") for note in report.notes]
    return "\n".join([*lines, summary(report)]) + "\n"


def in_order(report: Report) -> list[tuple[Row, Entry]]:
    """Sort all entries with their rows: files in the order in which they were read, entries by position."""
    files = {file: at for at, file in enumerate(dict.fromkeys(row.file for row in report.rows))}
    return sorted(report.entries(), key=lambda pair: (files[pair[0].file], pair[1].position or (0, 0)))


def line(row: Row, entry: Entry, *, color: bool, named: bool = False) -> str:
    """Return one entry of a text report."""
    where = row.file if entry.position is None else f"{row.file}:{entry.position.line}:{entry.position.column}"
    text = entry.text
    if named and row.reference and not text.startswith(f"{row.reference}: "):
        text = f"{row.reference}: {text}"
    # as in the answers of the webhook
    tail = f" [{entry.code}]" if entry.code else ""
    tail += f" (rule {entry.rule})" if entry.rule else ""
    place, level = f"{visible(where)}:", f"{entry.level.value}:"
    if color:
        place, level = painted(place), painted(level, _COLORS[entry.level])
    return f"{place} {level} {visible(text + tail)}"


def painted(text: str, color: str = "\x1b[1m") -> str:
    """Paint the text in a color, bold by default."""
    return f"{color}{text}\x1b[0m"


def visible(text: str) -> str:
    """Return the text on one line, with everything escaped that could steer a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def shortened(text: str, most: int) -> str:
    """Return a text of at most that many characters; the end of a longer one is dots."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def summary(report: Report) -> str:
    """Return `3 files, 7 objects: 2 errors, 1 warning`, and what was left out."""
    found = [counted(report.errors, "error"), counted(report.warnings, "warning")]
    if report.unreadable:
        found.append(f"{report.unreadable} unreadable")
    text = f"{counted(report.files, report.source)}, {counted(report.judged, 'object')}: {', '.join(found)}"
    if report.skipped:
        reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(report.skipped.items()))
        text += f"; skipped: {reasons}"
    return text


def as_values(report: Report) -> dict[str, Any]:
    """Return the structure behind JSON and YAML.

    `findings` is flat, one entry per thing to say, each with the object it belongs to; `objects` has a row per
    object, with the JSON patch that /mutate would answer; the policy that they are reviewed against is not one of
    them. Lines and columns count from 1 and are null for a whole file; `document` counts from 1 and is 0 for a
    whole file.
    """
    return {
        "version": 1,
        "summary": {
            "files": report.files,
            "objects": report.judged,
            "skipped": report.skipped.total(),
            "errors": report.errors,
            "warnings": report.warnings,
            "unreadable": report.unreadable,
        },
        "findings": [
            {**row.identity, **entry.values, "code": entry.code, "rule": entry.rule}
            for row, entry in report.entries()
            if entry.level is not Level.INFO
        ],
        "objects": [_object_values(row) for row in report.rows if row.document and not row.judges],
        "notes": list(report.notes),
    }


def _object_values(row: Row) -> dict[str, Any]:
    return {
        **row.identity,
        "line": row.position.line if row.position else None,
        "column": row.position.column if row.position else None,
        "operation": row.operation,
        "result": row.result.value,
        "skipped": row.skipped or None,
        "patch": list(row.patch),
        "differences": [dict(difference) for difference in row.differences],
        "explanation": None if row.explanation is None else dict(row.explanation),
    }


_GAP: Final = "   "
_WORD: Final = re.compile(r"(?:\A\s*)?\S+\s*")


def table(
    rows: Iterable[Sequence[str]],
    *,
    headers: Sequence[str] = (),
    right: Collection[int] = (),
    width: int | None = None,
    color: bool = False,
) -> list[str]:
    """Return the lines of a table, without blanks at their ends; none for no rows. All rows have as many cells.

    `right` holds the indexes of right-aligned columns. `width` is that of the terminal, in columns: where a line would
    be longer, the cells of the last column are folded. Without one, or where the other columns fill the terminal,
    nothing is folded. `color` prints the headers in bold.
    """
    cells = [[visible(cell) for cell in row] for row in rows]
    if not cells:
        return []
    if headers:
        cells.insert(0, list(headers))
    widths = [max(map(_columns, column)) for column in zip(*cells, strict=True)]
    room = 0 if width is None else width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    if 0 < room < widths[-1]:
        widths[-1] = room
    lines = []
    for number, (*others, last) in enumerate(cells):
        for part, piece in enumerate(_folded(last, widths[-1])):
            line = [*(others if part == 0 else [""] * len(others)), piece]
            padded = [_padded(cell, widths[at], right=at in right) for at, cell in enumerate(line)]
            if color and headers and number == 0:
                lines.append(painted(_GAP).join(map(painted, padded)))
            else:
                lines.append(_GAP.join(padded).rstrip())
    return lines


def _columns(text: str) -> int:
    """Count the columns of a terminal that a text takes: wide East Asian characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in text if not unicodedata.combining(each))


def _padded(text: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - _columns(text))
    return blanks + text if right else text + blanks


def _folded(text: str, width: int) -> Iterator[str]:
    """Fold a text into lines of at most `width` columns, between words; a longer word begins on a line of its own."""
    line = ""
    for word in _WORD.findall(text):
        if _columns(line + word.rstrip()) <= width:
            line += word
            continue
        if line:
            yield line.rstrip()
        line = ""
        for each in word.rstrip():
            if _columns(line + each) > width:
                yield line
                line = ""
            line += each
        line += " " * (len(word) - len(word.rstrip()))
    yield line.rstrip()
