"""`status`: what is being evicted from tainted devices, and what each pod waits for. Changes nothing."""

from __future__ import annotations

import difflib
import logging
import shutil
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.commands.shared.flags import (
    add_cluster,
    add_color,
    add_output,
    add_policy_config_map,
    refuse_cluster_beside_dump,
    refuse_stdin_twice,
    use_color,
)
from webhook.commands.shared.main import USAGE, main_of
from webhook.commands.shared.output import write
from webhook.commands.status.inputs import look
from webhook.commands.status.report import as_values
from webhook.commands.status.text import as_text
from webhook.commands.status.watching import document, watch
from webhook.config.command_line import CommandLine, program
from webhook.config.texts import as_count, as_limit, as_time
from webhook.eviction.modes import InTree, Mode
from webhook.files.structured import STRUCTURED

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from webhook.commands.status.report import StatusReport

_ROWS: Final = 200
"""The default number of table rows: more are hard to read."""
_INTERVAL_SECONDS: Final = 2


def run(arguments: Sequence[str]) -> int:
    """Prints the status. Returns 0, or 2 for bad input, an unknown rule or no cluster."""
    # Otherwise the worker's own code would log to standard error what is in the report.
    logging.getLogger("webhook.eviction").addHandler(logging.NullHandler())
    return main_of(command_line(), arguments, _run)


def _run(options: argparse.Namespace, parser: CommandLine) -> int:
    refuse_cluster_beside_dump(options, parser)
    refuse_stdin_twice([*options.dump, options.policy], parser)
    if options.watch and options.dump:
        parser.error("--watch and --dump may not be given together")
    if options.interval is not None and not options.watch:
        parser.error("--interval has no effect without --watch")
    if options.time is not None and not options.dump:
        parser.error("--time has no effect without --dump")
    first = look(options)
    unknown = _unknown(options.names, first)
    if unknown:
        sys.stderr.write("".join(f"{parser.prog}: {text}\n" for text in unknown))
        return USAGE
    show = _renderer(options)
    chosen = partial(_choose, options.names)
    if not options.watch:
        return write(show(chosen(first)), first.exit_code)
    interval = _INTERVAL_SECONDS if options.interval is None else options.interval
    return watch(
        chosen(first), lambda: chosen(look(options)), show, seconds=interval, screen=_on_screen(options.output)
    )


def _unknown(names: Sequence[str], report: StatusReport) -> list[str]:
    known = [line.name for line in report.lines]
    texts = []
    for name in names:
        if name not in known:
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


# --- flags --------------------------------------------------------------------------------------


def command_line() -> CommandLine:
    """The flags of the verb."""
    parser = CommandLine(
        program("status"),
        "Shows what is being evicted from tainted devices, and what each pod waits for. Changes nothing.",
        "Exit codes: 0 fine, 2 wrong usage, an unknown rule, unreadable input or no cluster.",
        (
            "device-taint-webhook status",
            "device-taint-webhook status firmware --watch",
            "device-taint-webhook status --pods --limit 0 --mode delegated",
            "device-taint-webhook status --watch --interval 10 -o json",
            "device-taint-webhook status firmware --dump dump",
        ),
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="RULE", help="DeviceTaintRules, or drivers, to show with their pods; default all")
    add("--pods", action="store_true", help="also show each pod and what it waits for, as with a RULE")
    add("-w", "--watch", action="store_true", help="show it again and again, until interrupted")
    add(
        "--interval",
        type=as_count,
        metavar="S",
        help=f"seconds between two looks of --watch; default {_INTERVAL_SECONDS}",
    )
    _add_evictors(parser)
    _add_sources(parser)
    add("--time", type=as_time, metavar="T", help="the time of the dump (RFC 3339); default now")
    add(
        "--limit",
        type=as_limit,
        default=_ROWS,
        metavar="N",
        help=f"rows of the table of pods, 0 for all; default {_ROWS}",
    )
    add_output(parser, ("json", "text", "yaml"))
    add_color(parser)
    return parser


def _add_evictors(parser: CommandLine) -> None:
    """Who evicts in the cluster."""
    add = parser.add_argument
    add(
        "--mode",
        choices=[mode.value for mode in Mode],
        metavar="M",
        help="the mode of the worker; default a guess from the conditions that it has written",
    )
    add(
        "--in-tree",
        choices=[InTree.ACTIVE.value, InTree.ABSENT.value],
        metavar="S",
        help="whether the in-tree eviction controller runs; default inTreeEvictor of the policy",
    )


def _add_sources(parser: CommandLine) -> None:
    """A dump or a cluster, and the policy."""
    add = parser.add_argument
    add(
        "--dump",
        action="append",
        default=[],
        metavar="DIR|FILE",
        help="output of kubectl get devicetaintrules,resourceslices,resourceclaims,pods,namespaces,"
        "poddisruptionbudgets -A -o json; repeatable; without this flag the cluster is read",
    )
    add_cluster(parser)
    add("--policy", metavar="F", help="the policy; default the ConfigMap in the dump or the cluster")
    add_policy_config_map(parser)
