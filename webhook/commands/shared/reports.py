"""`-o FORMAT` and `-o FORMAT=FILE`: one run prints its report in several formats."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from webhook.commands.shared.codes import code_texts
from webhook.commands.shared.output import write
from webhook.config.command_line import program
from webhook.files.formats import Renderer
from webhook.files.stdin import STDIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from webhook.config.command_line import CommandLine

_USAGE = 2


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
    """`--output`, repeatable, for verbs whose result is a report."""
    known = sorted(formats)

    def as_target(text: str) -> ReportTarget:
        name, equals, file = text.partition("=")
        if name not in known:
            raise ValueError(f"must be one of {', '.join(known)}, or FORMAT=FILE")
        if equals and not file:
            raise ValueError("names no file after the equals sign")
        return ReportTarget(name, "" if file == STDIN else file)

    parser.add_argument(
        "-o",
        "--output",
        type=as_target,
        action=_Targets,
        default=[],
        metavar="FORMAT[=FILE]",
        help="the format, default text; with =FILE in a file, and text still goes to standard output; repeatable",
    )
    parser.values["output"] = tuple(known)


def write_reports(targets: Sequence[ReportTarget], render: Callable[[ReportTarget], str], code: int) -> int:
    """Writes the files, then standard output. Returns the exit code: `code`, or 2 if something could not be written."""
    for target in targets:
        if target.file and not _written(target.file, render(target)):
            code = _USAGE
    return write(render(next((target for target in targets if target.shown), ReportTarget("text"))), code)


def _written(file: str, content: str) -> bool:
    """Whether the file could be written; if not, standard error says why."""
    try:
        Path(file).write_bytes(content.encode())
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        sys.stderr.write(f"{program()}: {file}: cannot be written: {reason}\n")
        return False
    return True


def renderer_of(verb: str) -> Renderer:
    """Prints reports of the verb, with the texts of the warning codes where a format has room for them."""
    return Renderer(verb, code_texts)
