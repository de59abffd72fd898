"""Writes to standard output, which may be closed, full, or read by a program that stops early, and reports to files."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.commands.shared.main import USAGE
from webhook.config.command_line import program
from webhook.files import STDIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from webhook.config.command_line import CommandLine
    from webhook.files.report import Report

_STEERING: Final = re.compile(
    r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
    r"|\x1b(?!\[(?:0|1|32|36|1;31|1;33)m)"
)
"""All that moves a cursor, ends a line or turns the direction of text, but not our colors."""


def steady(text: str) -> str:
    """Return the text with everything escaped that steers a terminal, its lines and our colors apart."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def write(content: str, code: int) -> int:
    """Write everything at once. Returns the exit code: `code`, or 2 if it could not be written."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(steady(content).encode())  # whatever the locale says: files and CI expect UTF-8
    except OSError as error:
        return _not_written(error, code)
    return flushed(code)


def write_more(content: str, *, screen: bool = False) -> int | None:
    """Write a part of what is still to come, which may steer the terminal if it is a `screen`.

    Returns None if more may follow, else the exit code to end with.
    """
    try:
        sys.stdout.buffer.write((content if screen else steady(content)).encode())
        sys.stdout.flush()
    except OSError as error:
        return _not_written(error, 0)
    return None


def document(output: str, values: dict[str, Any]) -> str:
    """Return one of several documents: a line of JSON, or YAML after `---`."""
    # Late: most verbs print no such documents.
    from webhook.files.report import STRUCTURED, json_text  # noqa: PLC0415

    if output == "json":
        return json_text(values, indent=None)
    return f"---\n{STRUCTURED[output](values)}"


def flushed(code: int) -> int:
    """Flush everything and return the exit code. Else a full disk would end in code 120 and a traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return _not_written(error, code)
    return code


def _not_written(error: OSError, code: int) -> int:
    # the interpreter would try again on exit, and report an error
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return code  # a reader that stops early is no error
    sys.stderr.write(f"{program()}: standard output: {error.strerror or error}\n")
    return USAGE


def without_output() -> bool:
    """Return whether standard output is closed (`>&-`); a standard error that is closed is opened to nowhere."""
    if sys.stderr is None:  # Python's types say that this cannot be
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 -- for as long as we run
    return sys.stdout is None


class ReportTarget(NamedTuple):
    """A format, and the file that gets it; without a file it is standard output."""

    format: str
    file: str = ""

    @property
    def shown(self) -> bool:
        """Whether it may have colors and the width of a terminal."""
        return not self.file


class _Targets(argparse.Action):
    """Collects the targets, and refuses two for the same place."""

    def __call__(
        self, _: argparse.ArgumentParser, namespace: argparse.Namespace, value: Any, option: str | None = None
    ) -> None:
        del option
        targets: list[ReportTarget] = list(getattr(namespace, self.dest))
        if any(value.file == each.file for each in targets):
            again = f"two reports in {value.file}" if value.file else "more than one format for standard output"
            raise argparse.ArgumentError(self, f"{again}; -o FORMAT=FILE writes one to a file")
        setattr(namespace, self.dest, [*targets, value])


def add_reports(parser: CommandLine, formats: Iterable[str]) -> None:
    """Add `--output`, repeatable, for verbs whose result is a report."""
    known = sorted(formats)

    def as_target(text: str) -> ReportTarget:
        name, equals, file = text.partition("=")
        if name not in known:
            raise ValueError(f"must be one of {', '.join(known)}, or FORMAT=FILE")
        if equals and not file:
            raise ValueError("names no file after the equals sign")
        return ReportTarget(name, "" if file == STDIN else file)

    help_text = "the format, default text; with =FILE in a file, and text still goes to standard output; repeatable"
    parser.add_argument(
        "-o", "--output", type=as_target, action=_Targets, default=[], metavar="FORMAT[=FILE]", help=help_text
    )
    parser.values["output"] = tuple(known)


def write_reports(targets: Sequence[ReportTarget], render: Callable[[ReportTarget], str], code: int) -> int:
    """Write the files, then standard output. Returns the exit code: `code`, or 2 if something could not be written."""
    for target in targets:
        if target.file and not _written(target.file, render(target)):
            code = USAGE
    return write(render(next((target for target in targets if target.shown), ReportTarget("text"))), code)


def _written(file: str, content: str) -> bool:
    """Return whether the file could be written; if not, standard error says why."""
    try:
        Path(file).write_bytes(content.encode())
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        sys.stderr.write(f"{program()}: {file}: cannot be written: {reason}\n")
        return False
    return True


def render(verb: str, output: str, report: Report, *, color: bool = False) -> str:
    """Return a report of the verb, with the texts of the warning codes where a format has room for them."""
    # Late: most verbs print no report.
    from webhook.commands.shared.codes import codes  # noqa: PLC0415
    from webhook.files.ci_formats import rendered  # noqa: PLC0415

    return rendered(verb, output, report, codes, color=color)
