"""`drain`: taints the devices of a node or pool, has their pods evicted gently, and watches."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from webhook.api.meta import OWN_GROUP
from webhook.api.taints import NO_SCHEDULE
from webhook.commands.shared.device_selection import DeviceSelection, split_nodes
from webhook.commands.shared.flags import INTERVAL_SECONDS, add_cluster, add_interval, add_policy_config_map
from webhook.commands.shared.main import REFUSED, asking_server, main_of
from webhook.commands.shared.output import flushed, write_more
from webhook.commands.shared.tainting import DryRun, add_confirm, add_dry_run, report_refusals
from webhook.commands.shared.words import NAME, TaintSpec, as_taint_spec, split_words
from webhook.config.command_line import IntermixedLine, program
from webhook.config.texts import as_lifetime
from webhook.files.report import visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from datetime import timedelta

    from webhook.commands.drain.watching import Closing
    from webhook.config.command_line import CommandLine

_KEY: Final = f"{OWN_GROUP}/drain"
_NO_TIMEOUT: Final = frozenset({"0", "0s"})
_INTERRUPTED: Final = 130
"""128 + SIGINT, as shells count."""


def run(arguments: Sequence[str]) -> int:
    """Drains. Returns 0 once no allocation holds a device, 1 if that is not to be, 2 for wrong usage or no cluster."""
    return main_of(command_line(), arguments, partial(_run, words=arguments))


def _run(options: argparse.Namespace, parser: CommandLine, words: Sequence[str]) -> int:
    selection, taint = _read(options, parser)
    # Late: see commands/shared/main.py.
    from webhook.commands.drain.watching import Closing  # noqa: PLC0415

    closing = Closing(options, parser, selection, taint)
    dry_run = DryRun(options.dry_run)
    with asking_server():
        results, order = closing.close()
    if report_refusals(results, order, parser.prog, words):
        return REFUSED
    lines = [f"{each.wanted.address} {each.operation} by {NAME}/{each.name}{dry_run.suffix}\n" for each in results]
    written = write_more("".join(lines))
    if dry_run is not DryRun.NONE or written is not None:
        return written or 0
    return flushed(_watch(options, parser, closing))


def _read(options: argparse.Namespace, parser: CommandLine) -> tuple[DeviceSelection, TaintSpec]:
    words, nodes = split_nodes(options.words)
    nodes += [each for each in words if "/" not in each]
    try:
        addresses, taints = split_words([each for each in words if "/" in each])
        taint = as_taint_spec(f"{options.key}:{NO_SCHEDULE}")
    except ValueError as error:
        parser.error(str(error))
    if taint.key != options.key:
        parser.error(f"--key {options.key} must be a key, without a value")
    if taints or sum(map(bool, (addresses, nodes, options.selector))) != 1:
        parser.error("either nodes, or pools such as gpu.example.com/node-7, or --selector is required")
    return DeviceSelection(tuple(dict.fromkeys(addresses)), tuple(dict.fromkeys(nodes)), options.selector), taint


def _watch(options: argparse.Namespace, parser: CommandLine, closing: Closing) -> int:
    # Late: see commands/shared/main.py.
    import logging  # noqa: PLC0415

    from webhook.commands.drain.watching import DrainWatch, watch_drain  # noqa: PLC0415
    from webhook.commands.status.run import look  # noqa: PLC0415

    # Otherwise the worker's own code would log to standard error what is in the lines.
    logging.getLogger("webhook.eviction").addHandler(logging.NullHandler())
    timeout: timedelta | None = options.timeout
    seconds = None if timeout is None else timeout.total_seconds()
    interval = INTERVAL_SECONDS if options.interval is None else options.interval
    watch = DrainWatch(closing.rules, interval, seconds, parser.prog)
    try:
        end = watch_drain(watch, lambda: look(options), closing.check)
    except KeyboardInterrupt:
        sys.stderr.write(f"\ninterrupted: the taint stays, and the worker goes on. To take it back: {closing.undo()}\n")
        return _INTERRUPTED
    if not end.emptied:
        text = f"error: not drained: {visible(end.text)}\nThe taint stays. To take it back: {closing.undo()}\n"
        sys.stderr.write(text)
        return REFUSED
    return write_more(f"drained: {visible(end.text)}\nWhen the work is done: {closing.undo()}\n") or 0


# --- flags --------------------------------------------------------------------------------------


def as_timeout(text: str) -> timedelta | None:
    """How long to wait; None for 0, which is for ever. Raises ValueError."""
    return None if text in _NO_TIMEOUT else as_lifetime(text)


def command_line() -> CommandLine:
    """The flags of the verb."""
    parser = IntermixedLine(
        program("drain"),
        "Drains devices: closes those of nodes or pools with a NoSchedule taint, has the eviction worker evict their\n"
        "pods gently (annotation devicetaint.io/evict), and reports until no allocation holds one of them. NoExecute\n"
        "is not used, because Kubernetes itself would delete the pods at once. A second drain goes on watching.",
        "Exit codes: 0 emptied, 1 refused, stopped, blocked or not within --timeout, 2 wrong usage or no cluster, "
        "130 interrupted: the taint stays, and the command that takes it back is printed.",
        (
            "device-taint-webhook drain node-7",
            "device-taint-webhook drain gpu.example.com/node-7 --timeout 30m --reason 'firmware 1.2'",
            "device-taint-webhook drain -l pool=a100 --dry-run=server",
            "device-taint-webhook drain node/node-7 --ignore-daemonsets",
        ),
    )
    add = parser.add_argument
    add(
        "words",
        nargs="*",
        metavar="NODE|DRIVER/POOL...",
        help="nodes (NAME or node/NAME), or pools or devices of drivers, to drain",
    )
    add("-l", "--selector", default="", metavar="L", help="drain the nodes with these labels, such as pool=a100")
    add("--key", default=_KEY, metavar="K", help=f"key of the taint; default {_KEY}")
    add("--reason", metavar="TEXT", help="why, for people (annotation devicetaint.io/description)")
    add("--timeout", type=as_timeout, metavar="10m", help="how long to wait until they are empty; default 0, for ever")
    add_interval(parser)
    add_confirm(parser)
    add(
        "--ignore-daemonsets",
        action="store_true",
        help="end as well when only pods of DaemonSets hold devices, by admin access, and list these",
    )
    add_dry_run(parser)
    add_cluster(parser)
    add_policy_config_map(parser)
    # What `status` asks for, which this does not.
    parser.set_defaults(dump=[], policy=None, time=None, mode=None, in_tree=None, pods=True, names=[])
    return parser
