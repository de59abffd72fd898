"""A report as workflow commands of GitHub Actions, which shows them beside the lines of a pull request."""

from __future__ import annotations

from collections import Counter
from typing import Final

from webhook.api.counts import counted
from webhook.files.places import check_name, in_order, repository_path
from webhook.files.render import line, summary, visible
from webhook.files.report import Entry, Level, Report, Row
from webhook.files.structured import encodable

ANNOTATIONS: Final = 10
"""Of each level, in one step: GitHub shows no more, and drops the others without a word."""
_COMMANDS: Final = {Level.ERROR: "error", Level.WARNING: "warning", Level.INFO: "notice"}


def as_github(report: Report) -> str:
    """Ten commands of each level, a group with all further findings as text, the notes, and the summary."""
    lines, rest = [], []
    sent: Counter[Level] = Counter()
    for row, entry in in_order(report):
        sent[entry.level] += 1
        if sent[entry.level] <= ANNOTATIONS:
            lines.append(_command(row, entry))
        else:
            rest.append(_plain(encodable(line(row, entry, color=False))))
    if rest:
        title = f"{counted(len(rest), 'more finding')}: GitHub shows {ANNOTATIONS} annotations of each level"
        lines += [f"::group::{title}", *rest, "::endgroup::"]
    lines += [f"::notice::{_escaped(visible(note))}" for note in report.notes]
    return "\n".join([*lines, summary(report)]) + "\n"


def _command(row: Row, entry: Entry) -> str:
    """The annotation of a finding. The message begins with the place, since the log does not show the properties."""
    name, path = _COMMANDS[entry.level], repository_path(row)
    about = {} if path is None else {"file": path}
    if entry.position is not None and about:
        about |= {"line": str(entry.position.line), "col": str(entry.position.column)}
    check = entry.code or entry.rule or entry.reason
    about["title"] = " ".join(filter(None, (check and check_name(entry), row.reference))) or name
    properties = ",".join(f"{key}={_escaped(value, ':,')}" for key, value in about.items())
    place = ":".join(map(str, (row.file, *(entry.position or ()))))
    return f"::{name} {properties}::{_escaped(visible(f'{place}: {entry.text}'))}"


def _escaped(text: str, more: str = "") -> str:
    """The text with those characters escaped that end a value of a workflow command."""
    text = encodable(text).replace("##[", "## [")
    return "".join(f"%{ord(each):02X}" if each in f"%\r\n{more}" else visible(each) for each in text)


def _plain(text: str) -> str:
    """The line so that it is no command: those begin with two colons, or have the older `##[name]` anywhere."""
    text = text.replace("##[", "## [")
    return f"./{text}" if text.lstrip().startswith("::") else text
