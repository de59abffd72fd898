"""A report as GitLab's Code Quality: a subset of Code Climate's format that GitLab shows in merge requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from webhook.files.places import Fingerprints, check_name, repository_path
from webhook.files.report import UNREADABLE, Level

if TYPE_CHECKING:
    from webhook.files.report import Entry, Report

_SEVERITIES: Final = {Level.ERROR: "critical", Level.WARNING: "minor", Level.INFO: "info"}


def code_quality_values(report: Report) -> list[dict[str, Any]]:
    """An issue for each finding: description, check_name, fingerprint, severity, and location with path and line."""
    fingerprints = Fingerprints()
    return [
        {
            "description": entry.text if not row.reference else f"{row.reference}: {entry.text}",
            "check_name": check_name(entry),
            "fingerprint": fingerprints.of(row, entry),
            "severity": _severity(entry),
            # what is no file of the repository is listed all the same, under the name that it has in the text
            "location": {
                "path": repository_path(row) or row.file,
                "lines": {"begin": entry.position.line if entry.position else 1},
            },
        }
        for row, entry in report.entries()
    ]


def _severity(entry: Entry) -> str:
    return "major" if entry.reason == UNREADABLE else _SEVERITIES[entry.level]
