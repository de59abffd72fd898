"""`drain`: taints the devices of a node or pool, has their pods evicted gently, and watches."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Final

from webhook.api.meta import OWN_GROUP
from webhook.api.rules import DESCRIPTION, EVICT
from webhook.api.taints import NO_SCHEDULE
from webhook.commands.shared.addresses import as_device_address
from webhook.commands.shared.confirmations import as_confirmation, texts_by_rule
from webhook.commands.shared.device_selection import DeviceSelection, addresses_of
from webhook.commands.shared.flags import add_cluster, add_policy_config_map, credentials_of, given_cluster_flags
from webhook.commands.shared.output import flushed, write_more
from webhook.commands.shared.rule_objects import NAME, WantedRule
from webhook.commands.shared.server_errors import REFUSED, asking_server, main_as_kubectl
from webhook.commands.shared.taint_output import report_refusals
from webhook.commands.shared.taint_specs import TaintSpec, as_taint_spec
from webhook.commands.shared.tainting import DryRun, OnExisting, TaintOrder, TaintResult, add_dry_run, write_taints
from webhook.config.command_line import IntermixedLine, program
from webhook.config.texts import as_count, as_lifetime
from webhook.files.render import visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from datetime import timedelta

    from webhook.commands.shared.addresses import DeviceAddress
    from webhook.config.command_line import CommandLine

_KEY: Final = f"{OWN_GROUP}/drain"
_INTERVAL_SECONDS: Final = 2
_NO_TIMEOUT: Final = frozenset({"0", "0s"})
_INTERRUPTED: Final = 130
"""128 + SIGINT, as shells count."""


def run(arguments: Sequence[str]) -> int:
    """Drains. Returns 0 once no allocation holds a device, 1 if that is not to be, 2 for wrong usage or no cluster."""

    def body(options: argparse.Namespace, parser: CommandLine) -> int:
        return _run(options, parser, arguments)

    return main_as_kubectl(command_line(), arguments, body)


def _run(options: argparse.Namespace, parser: CommandLine, words: Sequence[str]) -> int:
    selection, taint = _read(options, parser)
    dry_run = DryRun(options.dry_run)
    with asking_server():
        results, order = _taint(options, parser, selection, taint)
    if report_refusals(results, order, parser.prog, words):
        return REFUSED
    lines = [f"{each.wanted.address} {each.operation} by {NAME}/{each.name}{dry_run.suffix}\n" for each in results]
    written = write_more("".join(lines))
    if dry_run is not DryRun.NONE or written is not None:
        return written or 0
    return flushed(_watch(options, parser, [each.name for each in results], _undo(options, selection, taint)))


def _read(options: argparse.Namespace, parser: CommandLine) -> tuple[DeviceSelection, TaintSpec]:
    addresses: list[DeviceAddress] = []
    nodes: list[str] = []
    try:
        for word in options.words:
            if "/" in word:
                addresses.append(as_device_address(word))
            else:
                nodes.append(word)
        taint = as_taint_spec(f"{options.key}:{NO_SCHEDULE}")
    except ValueError as error:
        parser.error(str(error))
    if taint.key != options.key:
        parser.error(f"--key {options.key} must be a key, without a value")
    if sum(map(bool, (addresses, nodes, options.selector))) != 1:
        parser.error("either nodes, or pools such as gpu.example.com/node-7, or --selector is required")
    return DeviceSelection(tuple(addresses), tuple(nodes), options.selector), taint


def _taint(
    options: argparse.Namespace, parser: CommandLine, selection: DeviceSelection, taint: TaintSpec
) -> tuple[list[TaintResult], TaintOrder]:
    # Late: see commands/shared/main.py.
    import asyncio  # noqa: PLC0415

    from webhook.cluster.client.rest import Cluster  # noqa: PLC0415
    from webhook.commands.shared.rule_store import RuleStore  # noqa: PLC0415

    async def ask() -> tuple[list[TaintResult], TaintOrder]:
        async with Cluster(credentials_of(options)) as cluster:
            wanted = tuple(WantedRule(address, taint) for address in await addresses_of(cluster, selection))
            try:
                texts = texts_by_rule(options.confirm, [each.name for each in wanted])
            except ValueError as error:
                parser.error(str(error))
            reason = {} if options.reason is None else {DESCRIPTION: options.reason}
            annotations = {EVICT: "true", **reason}
            order = TaintOrder(wanted, annotations, texts, DryRun(options.dry_run), OnExisting.KEEP)
            return await write_taints(await RuleStore.of(cluster), order), order

    return asyncio.run(ask())


def _undo(options: argparse.Namespace, selection: DeviceSelection, taint: TaintSpec) -> str:
    """The command that opens the devices again."""
    words = [*map(str, selection.addresses), *[f"--node={each}" for each in selection.nodes]]
    words += [f"--selector={selection.labels}"] if selection.labels else []
    words.append(f"{taint.key}:{taint.effect}-")
    words += [f"{flag}={value}" for flag, value in given_cluster_flags(options)]
    return f"{program('untaint')} {shlex.join(words)}"


def _watch(options: argparse.Namespace, parser: CommandLine, rules: Sequence[str], undo: str) -> int:
    # Late: see commands/shared/main.py.
    import logging  # noqa: PLC0415

    from webhook.commands.drain.watching import DrainWatch, watch_drain  # noqa: PLC0415
    from webhook.commands.status.inputs import look  # noqa: PLC0415

    # Otherwise the worker's own code would log to standard error what is in the lines.
    logging.getLogger("webhook.eviction").addHandler(logging.NullHandler())
    timeout: timedelta | None = options.timeout
    seconds = None if timeout is None else timeout.total_seconds()
    interval = _INTERVAL_SECONDS if options.interval is None else options.interval
    try:
        end = watch_drain(DrainWatch(rules, interval, seconds, parser.prog), lambda: look(options))
    except KeyboardInterrupt:
        sys.stderr.write(f"\ninterrupted: the taint stays, and the worker goes on. To take it back: {undo}\n")
        return _INTERRUPTED
    if not end.emptied:
        sys.stderr.write(f"error: not drained: {visible(end.text)}\nThe taint stays. To take it back: {undo}\n")
        return REFUSED
    return write_more(f"drained: {end.text}\nWhen the work is done: {undo}\n") or 0


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
        ),
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="NODE|DRIVER/POOL...", help="nodes, or pools or devices of drivers, to drain")
    add("-l", "--selector", default="", metavar="L", help="drain the nodes with these labels, such as pool=a100")
    add("--key", default=_KEY, metavar="K", help=f"key of the taint; default {_KEY}")
    add("--reason", metavar="TEXT", help="why, for people (annotation devicetaint.io/description)")
    add("--timeout", type=as_timeout, metavar="10m", help="how long to wait until they are empty; default 0, for ever")
    add(
        "--interval",
        type=as_count,
        metavar="S",
        help=f"seconds between two looks; default {_INTERVAL_SECONDS}",
    )
    add(
        "--confirm",
        type=as_confirmation,
        action="append",
        default=[],
        metavar="[RULE=]TEXT",
        help="confirm the impact with the text that a refusal contains; repeatable if there are several rules",
    )
    add_dry_run(parser)
    add_cluster(parser)
    add_policy_config_map(parser)
    # What `status` asks for, which this does not.
    parser.set_defaults(dump=[], policy=None, time=None, mode=None, in_tree=None, pods=True, names=[])
    return parser
