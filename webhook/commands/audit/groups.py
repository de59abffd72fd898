"""Findings of an audit, counted by rule and namespace, since there may be thousands."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from webhook.api.counts import counted
from webhook.files.render import as_text, as_values
from webhook.files.report import UNREADABLE, Level
from webhook.files.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.files.report import Report

LINES: Final = 200
"""Findings in a text, unless another limit is given."""
_HEADERS: Final = ("RULE", "NAMESPACE", "ERRORS", "WARNINGS", "OBJECTS")
_NUMBERS: Final = (2, 3, 4)


def grouped(report: Report) -> list[dict[str, Any]]:
    """`rule`, `namespace`, `errors`, `warnings` and `objects` that have any, the most errors first.

    Findings that come from no rule of the policy are grouped by reason, such as `FieldValueTooMany`.
    """
    counts: Counter[tuple[str, str, Level]] = Counter()
    objects: dict[tuple[str, str], set[int]] = {}
    for number, row in enumerate(report.rows):
        for entry in row.entries:
            if entry.level is Level.INFO or entry.reason == UNREADABLE or not row.kind.startswith("ResourceClaim"):
                continue
            rule = entry.rule or entry.code or entry.reason
            counts[rule, row.namespace, entry.level] += 1
            objects.setdefault((rule, row.namespace), set()).add(number)
    found = [
        {
            "rule": rule,
            "namespace": namespace,
            "errors": counts[rule, namespace, Level.ERROR],
            "warnings": counts[rule, namespace, Level.WARNING],
            "objects": len(numbers),
        }
        for (rule, namespace), numbers in objects.items()
    ]
    return sorted(found, key=lambda each: (-each["errors"], -each["warnings"], each["rule"], each["namespace"]))


def as_grouped_text(report: Report, *, limit: int, color: bool) -> str:
    """At most `limit` findings (0 for all), a table of counts by rule and namespace, notes, and totals."""
    lines = as_text(report, color=color, named=True).splitlines()
    findings = len(lines) - len(report.notes) - 1
    counts = _table(report, limit, color=color)
    return "\n".join([*_first_lines(lines[:findings], limit), *counts, *lines[findings:]]) + "\n"


def _first_lines(lines: list[str], limit: int) -> Iterator[str]:
    if not limit or len(lines) <= limit:
        yield from lines
        return
    yield from lines[:limit]
    rest = len(lines) - limit
    yield f"and {counted(rest, 'more finding')}; --limit 0 lists all"


def _table(report: Report, limit: int, *, color: bool) -> Iterator[str]:
    """The table of counts, if there are two objects or more."""
    groups = grouped(report)
    if sum(group["objects"] for group in groups) < 2:
        return
    shown = groups[:limit] if limit else groups
    yield ""
    rows = [[str(value) for value in group.values()] for group in shown]
    yield from table(rows, headers=_HEADERS, right=_NUMBERS, color=color)
    if len(shown) < len(groups):
        yield f"and {len(groups) - len(shown)} more of these"
    yield ""


def as_grouped_values(report: Report) -> dict[str, Any]:
    """The structure of a report, and `groups`."""
    return {**as_values(report), "groups": grouped(report)}
