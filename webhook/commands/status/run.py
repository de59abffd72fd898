"""One run of `status`: it looks, and prints what it has found, once or again and again."""

from __future__ import annotations

import difflib
import shutil
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from webhook.api.names import PROGRAM
from webhook.commands.shared.flags import refuse_cluster_beside_dump, refuse_stdin_twice, use_color
from webhook.commands.shared.main import USAGE, ClusterUnreachable
from webhook.commands.shared.output import write, write_more
from webhook.commands.shared.words import NODES, RULES, name_in, type_in
from webhook.commands.status.command import INTERVAL_SECONDS
from webhook.commands.status.inputs import look
from webhook.commands.status.report import as_values
from webhook.commands.status.text import as_text
from webhook.files.structured import STRUCTURED, json_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from webhook.commands.status.report import StatusReport
    from webhook.config.command_line import CommandLine


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Prints the status. Returns 0, or 2 for bad input, an unknown rule or no cluster."""
    refuse_cluster_beside_dump(options, parser)
    refuse_stdin_twice([*options.dump, options.policy], parser)
    if options.watch and options.dump:
        parser.error("--watch and --dump may not be given together")
    if options.interval is not None and not options.watch:
        parser.error("--interval has no effect without --watch")
    if options.time is not None and not options.dump:
        parser.error("--time has no effect without --dump")
    if len(options.names) > 1 and type_in(options.names[0]) in RULES:
        del options.names[0]
    options.names = [name_in(each, RULES) or each for each in options.names]
    first = look(options)
    unknown = _unknown(options.names, first)
    if unknown:
        sys.stderr.write("".join(f"{parser.prog}: {text}\n" for text in unknown))
        return USAGE
    show = _renderer(options)
    chosen = partial(_choose, options.names)
    if not options.watch:
        return write(show(chosen(first)), first.exit_code)
    interval = INTERVAL_SECONDS if options.interval is None else options.interval
    return watch(
        chosen(first), lambda: chosen(look(options)), show, seconds=interval, screen=_on_screen(options.output)
    )


def _unknown(names: Sequence[str], report: StatusReport) -> list[str]:
    known = [line.name for line in report.lines]
    texts = []
    for name in names:
        if node := name_in(name, NODES):
            texts.append(f"{name} is a node: list --node={node} shows what taints its devices")
        elif name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            texts.append(f"there is no DeviceTaintRule {name!r}, and no driver of that name taints devices{hint}")
    return texts


def _choose(names: Sequence[str], report: StatusReport) -> StatusReport:
    """Only the lines of these names, if any are given; a note for those that are gone."""
    if names:
        known = {line.name for line in report.lines}
        report.notes += [f"{name} is gone" for name in names if name not in known]
        report.lines = [line for line in report.lines if line.name in names]
    return report


def _on_screen(output: str) -> bool:
    return output == "text" and sys.stdout.isatty()


def _renderer(options: argparse.Namespace) -> Callable[[StatusReport], str]:
    if options.output in STRUCTURED:
        if options.watch:
            return lambda report: document(options.output, as_values(report))
        return lambda report: STRUCTURED[options.output](as_values(report))
    color = use_color(options.color)

    def text(report: StatusReport) -> str:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        return as_text(report, limit=options.limit, width=width, color=color)

    return text


_CLEAR: Final = "\x1b[2J"
_HOME: Final = "\x1b[H"
_TO_END_OF_LINE: Final = "\x1b[K"
_TO_END_OF_SCREEN: Final = "\x1b[J"
_CUT_LINES, _WRAP_LINES = "\x1b[?7l", "\x1b[?7h"
"""What is wider than the screen would otherwise take more lines than were counted."""


def watch(
    report: StatusReport,
    look: Callable[[], StatusReport],
    show: Callable[[StatusReport], str],
    *,
    seconds: float,
    screen: bool,
) -> int:
    """Shows `report`, then what `look` returns, every so often, until standard output is closed.

    While the cluster does not answer, the last report stays, with a note. Returns the exit code; ends by an interrupt.
    """
    written = write_more(_CLEAR if screen else "", screen=screen)
    while written is None:
        content = show(report)
        written = write_more(framed(content, shutil.get_terminal_size().lines) if screen else content, screen=screen)
        if written is None:
            time.sleep(seconds)
            report = _next(report, look)
    return written


def _next(report: StatusReport, look: Callable[[], StatusReport]) -> StatusReport:
    try:
        return look()
    except ClusterUnreachable as error:
        note = f"this is the last answer, because the cluster cannot be read now: {error}"
        report.notes = [*[each for each in report.notes if not each.startswith("this is the last answer")], note]
        return report


def framed(content: str, height: int) -> str:
    """Text in place of what the screen has shown before: each line is overwritten, so nothing is blank in between."""
    lines = content.splitlines()
    if len(lines) >= height > 1:
        rest = len(lines) - height + 2
        lines = [*lines[: height - 2], f"and {rest} more lines; {PROGRAM} status without --watch shows all"]
    body = "".join(f"{each}{_TO_END_OF_LINE}\n" for each in lines)
    return f"{_HOME}{_CUT_LINES}{body}{_TO_END_OF_SCREEN}{_WRAP_LINES}"


def document(output: str, values: dict[str, Any]) -> str:
    """One of several documents: a line of JSON, or YAML after `---`."""
    if output == "json":
        return json_text(values, indent=None)
    return f"---\n{STRUCTURED[output](values)}"
