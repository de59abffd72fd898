"""What `diff` found, as values and as text. While `version` is 1, fields may be added, but none is removed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.counts import counted
from webhook.commands.diff.changes import ChangeKind
from webhook.files.render import line, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.commands.diff.changes import PolicyChange
    from webhook.files.report import Row

VERSION: Final = 1
_WORDS: Final = {
    ChangeKind.REFUSED: "newly refused",
    ChangeKind.ALLOWED: "no longer refused",
    ChangeKind.WARNED: "newly warned about",
    ChangeKind.SILENT: "no longer warned about",
    ChangeKind.DEFAULTS: "changed otherwise by defaults",
}


class ChangedObject(NamedTuple):
    """An object that is judged differently."""

    kind: str
    namespace: str
    name: str
    changes: list[PolicyChange]

    @property
    def reference(self) -> str:
        """`Kind namespace/name`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(slots=True)
class DiffReport:
    """The result. `judged`: how many objects were compared. `rows`: what could not be read."""

    source: str
    judged: int = 0
    changed: list[ChangedObject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 no difference, 1 differences, 2 something could not be read."""
        return 2 if self.rows else int(bool(self.changed))

    @property
    def counts(self) -> Counter[ChangeKind]:
        """Numbers of objects by kind of change; an object may count under several."""
        return Counter(kind for each in self.changed for kind in {change.kind for change in each.changes})


def as_values(report: DiffReport) -> dict[str, Any]:
    """The structure behind JSON and YAML."""
    counts = report.counts
    return {
        "version": VERSION,
        "source": report.source,
        "judged": report.judged,
        "different": len(report.changed),
        "summary": {kind.value: counts[kind] for kind in ChangeKind},
        "objects": [
            {
                "kind": each.kind,
                "namespace": each.namespace,
                "name": each.name,
                "changes": [{**change._asdict(), "kind": change.kind.value} for change in each.changes],
            }
            for each in report.changed
        ],
        "notes": list(report.notes),
        "findings": [finding for row in report.rows for finding in row.findings],
    }


def as_text(report: DiffReport, *, limit: int) -> str:
    """At most `limit` lines of differences (0 for all), then counts and notes."""
    lines = [line(row, entry, color=False) for row in report.rows for entry in row.entries]
    found = list(_lines(report))
    lines += found[:limit] if limit else found
    if limit and len(found) > limit:
        lines.append(f"and {len(found) - limit} more; --limit 0 shows all")
    lines.append(_total(report))
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(map(visible, lines)) + "\n"


def _lines(report: DiffReport) -> Iterator[str]:
    for kind in ChangeKind:
        for each in report.changed:
            for change in each.changes:
                if change.kind is kind:
                    path = f" {change.path}:" if change.path and kind is not ChangeKind.DEFAULTS else ""
                    yield f"{kind.value:<8} {each.reference}:{path} {change.message}"


def _total(report: DiffReport) -> str:
    judged = counted(report.judged, "object")
    if not report.changed:
        return f"{judged} compared: no difference"
    counts = report.counts
    parts = ", ".join(f"{counts[kind]} {_WORDS[kind]}" for kind in ChangeKind if counts[kind])
    return f"{judged} compared, {len(report.changed)} judged differently: {parts}"
