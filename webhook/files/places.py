"""How tools that read reports find a finding again: the file's path in the repository, and a fingerprint."""

from __future__ import annotations

import os
from collections import Counter
from hashlib import sha256
from typing import Final

from webhook.files.report import Entry, Report, Row
from webhook.files.stdin import STDIN_NAME

_OTHER: Final = "Finding"


def check_name(entry: Entry) -> str:
    """What a tool groups findings by: the warning code, else the policy's rule, else the API server's reason."""
    return entry.code or entry.rule or entry.reason or _OTHER


def repository_path(row: Row) -> str | None:
    """The row's file seen from the current folder, with slashes; an absolute path for files outside it.

    None for what is no file of this machine: standard input, a cluster, or a remark about the run itself.
    """
    if not row.local or row.file == STDIN_NAME or "://" in row.file:
        return None
    here = os.path.normpath(row.file)
    if os.path.isabs(here):  # noqa: PTH117 -- as the file was named: a Path would resolve more
        inside = os.path.relpath(here)
        here = here if inside.startswith(os.pardir) else inside
    elif here.startswith(os.pardir):
        here = os.path.abspath(here)  # noqa: PTH100 -- as above
    return here.replace(os.sep, "/")


class Fingerprints:
    """Fingerprints of the findings of one report: the same in the next run, even if lines above were added.

    They are made of the file, the check, the object and the field, so neither of line nor of message. Findings that
    agree in all of these are numbered in the order of the report.
    """

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def of(self, row: Row, entry: Entry) -> str:
        """64 hexadecimal digits."""
        subject = row.reference or str(row.document)
        about = "\0".join((repository_path(row) or "", check_name(entry), subject, entry.field))
        self._seen[about] += 1
        number = self._seen[about]
        return sha256(f"{about}\0{number}".encode(errors="backslashreplace")).hexdigest()


def in_order(report: Report) -> list[tuple[Row, Entry]]:
    """All entries with their rows: files in the order in which they were read, entries by position."""
    files: dict[str, int] = {}
    for row in report.rows:
        files.setdefault(row.file, len(files))

    def place(pair: tuple[Row, Entry]) -> tuple[int, int, int]:
        row, entry = pair
        return files[row.file], *(entry.position or (0, 0))

    return sorted(report.entries(), key=place)
