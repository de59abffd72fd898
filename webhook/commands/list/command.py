"""`list`: tainted devices, with every taint of slices and rules on them, and the pods that it concerns."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.commands.shared.device_selection import (
    add_nodes,
    bare,
    belonging,
    nodes_of,
    parse_selection,
    refuse_missing,
)
from webhook.commands.shared.flags import INTERVAL_SECONDS, add_cluster, add_interval, credentials_of
from webhook.commands.shared.main import (
    ClusterUnreachable,
    ServerRefusal,
    asking_server,
    main_of,
)
from webhook.commands.shared.output import document, write, write_more
from webhook.commands.shared.words import DeviceAddress
from webhook.config.command_line import IntermixedLine, program
from webhook.config.texts import as_namespace
from webhook.files.report import visible

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from webhook.commands.list.taints import ListedTaint
    from webhook.commands.shared.device_selection import DeviceSelection
    from webhook.config.command_line import CommandLine

_TABLES: Final = (None, "wide")


class TaintList(NamedTuple):
    """What one look has found."""

    rows: list[ListedTaint]
    notes: tuple[str, ...]
    now: datetime


def run(arguments: Sequence[str]) -> int:
    """Prints the list. Returns 0, 1 if the server refuses or a name is unknown, 2 for wrong usage or no cluster."""
    return main_of(command_line(), arguments, _run)


def _run(options: argparse.Namespace, parser: CommandLine) -> int:
    selection, taints = parse_selection(options, parser)
    if taints:
        parser.error(f"{taints[0]} is no device such as gpu.example.com/node-7/gpu-0")
    if options.interval is not None and not options.watch:
        parser.error("--interval has no effect without --watch")
    first = _look(options, selection, first=True)
    if not options.watch:
        return write(_shown(first, options), 0)
    return _watch(first, lambda: _look(options, selection), options, parser)


def _look(options: argparse.Namespace, selection: DeviceSelection, *, first: bool = False) -> TaintList:
    """What there is. The `first` look refuses names of what is not there."""
    # Late: see commands/shared/main.py.
    import asyncio  # noqa: PLC0415

    from webhook.cluster.client.rest import Cluster, path_of  # noqa: PLC0415
    from webhook.commands.list.taints import listed_taints, notes_without_devices, rules_not_judged  # noqa: PLC0415
    from webhook.commands.shared.cluster_reading import CLAIMS, PODS, RULES, SLICES  # noqa: PLC0415
    from webhook.commands.shared.node_devices import ReadInventory, read_inventory  # noqa: PLC0415

    async def ask() -> tuple[ReadInventory, frozenset[str]]:
        async with Cluster(credentials_of(options)) as cluster:
            nodes = await nodes_of(cluster, selection)
            wished = (RULES, CLAIMS, *((PODS,) if selection.by_node else ()))
            read = await read_inventory(cluster, (SLICES,), wished, by_node=selection.by_node)
            if first and not selection.by_node:
                refuse_missing(read, selection)
            for node in bare(read.devices, {each: (each,) for each in selection.nodes}) if first else ():
                await cluster.get(path_of("", "v1", "nodes", name=node))  # it may only have no devices
            return read, nodes

    with asking_server():
        read, nodes = asyncio.run(ask())
    wanted = frozenset(belonging(read, selection, nodes))
    rows = listed_taints(read.inventory, read.devices, untainted=options.all)
    if selection.by_node or selection.addresses:
        rows = [each for each in rows if any(DeviceAddress(*each.device[:part]) in wanted for part in (1, 2, 3))]
    rows = [each for each in rows if _is_in(each, options.namespace)]
    notes = list(read.notes)
    if not selection.addresses and not selection.by_node and options.namespace is None:
        notes += notes_without_devices(read.inventory)
    unjudged = rules_not_judged(read.inventory)
    if unjudged:
        text = "by class, CEL or unknown fields, so their taints may be on fewer devices than listed"
        notes.append(f"{', '.join(unjudged)} selects {text}")
    return TaintList(rows, tuple(notes), datetime.now(UTC))  # noqa: TID251 -- the shell asks


def _is_in(row: ListedTaint, namespace: str | None) -> bool:
    users = row.users if row.taint is None else row.affected
    return namespace is None or any(each.namespace == namespace for each in users)


def _shown(found: TaintList, options: argparse.Namespace) -> str:
    # Late: see commands/shared/main.py.
    from webhook.commands.list.taints import names_text, table_text, values_of  # noqa: PLC0415
    from webhook.files.report import STRUCTURED  # noqa: PLC0415

    if options.output in ("json", "yaml"):
        values = values_of(found.rows, found.now, found.notes)
        return document(options.output, values) if options.watch else STRUCTURED[options.output](values)
    _say(found.notes)
    if options.output == "name":
        return names_text(found.rows)
    if not found.rows:
        sys.stderr.write(f"No {'' if options.all else 'tainted '}devices found.\n")
    return table_text(found.rows, found.now, wide=options.output == "wide", headers=not options.no_headers)


def _say(notes: Sequence[str]) -> None:
    sys.stderr.write("".join(f"note: {visible(text)}\n" for text in notes))


# --- watching -----------------------------------------------------------------------------------


def _watch(first: TaintList, look: Callable[[], TaintList], options: argparse.Namespace, parser: CommandLine) -> int:
    """As `kubectl get --watch`: the list, then what is added, changed and removed, until standard output is closed."""
    # Late: tests stop the time.
    import time  # noqa: PLC0415

    seconds = INTERVAL_SECONDS if options.interval is None else options.interval
    before, missed = first, ""
    written = write_more(_shown(first, options))
    while written is None:
        time.sleep(seconds)
        try:
            found = look()
        except (ClusterUnreachable, ServerRefusal) as error:
            if str(error) != missed:
                sys.stderr.write(f"{parser.prog}: the cluster cannot be read now: {error}\n")
            missed = str(error)
            continue
        missed = ""
        written = write_more(_change(before, found, options))
        before = found
    return written


def _change(before: TaintList, after: TaintList, options: argparse.Namespace) -> str:
    # Late: see commands/shared/main.py.
    from webhook.commands.list.taints import table_text  # noqa: PLC0415

    known, left = [{each.identity: each for each in rows} for rows in (before.rows, after.rows)]
    changed = [each for each in after.rows if known.get(each.identity) != each]
    gone = [each for each in before.rows if each.identity not in left and each.taint is not None]
    if options.output not in _TABLES:
        rows = _of_same_devices(after, changed, gone)
        return _shown(after._replace(rows=rows), options) if rows else ""
    _say([text for text in after.notes if text not in before.notes])
    wide = options.output == "wide"
    return table_text(gone, after.now, wide=wide, headers=False, removed=True) + table_text(
        changed, after.now, wide=wide, headers=False
    )


def _of_same_devices(
    after: TaintList, changed: Sequence[ListedTaint], gone: Sequence[ListedTaint]
) -> list[ListedTaint]:
    """All rows of devices with a change; one without a taint for those that have lost their last."""
    devices = {each.device for each in (*changed, *gone)}
    rows = [each for each in after.rows if each.device in devices]
    left = {each.device for each in rows}
    bare = {each.device: each._replace(taint=None, source=None) for each in gone if each.device not in left}
    return sorted([*rows, *bare.values()], key=lambda each: each.device)


# --- flags --------------------------------------------------------------------------------------


def command_line() -> CommandLine:
    """The flags of the verb."""
    parser = IntermixedLine(
        program("list"),
        "Lists the devices that are tainted, one line for each taint: those in slices, those of rules, and those of\n"
        "rules that a patch was made into. PODS are the pods that use the device and do not tolerate the taint.",
        "Exit codes: 0 fine, 1 refused by the server or no such device or node, 2 wrong usage or no cluster.",
        (
            "device-taint-webhook list",
            "device-taint-webhook list gpu.example.com/node-7 -o wide",
            "device-taint-webhook list --node node-7 --watch",
            "device-taint-webhook list -l pool=a100 -o name",
        ),
    )
    add = parser.add_argument
    add(
        "words",
        nargs="*",
        metavar="DEVICE...",
        help="only these devices: DRIVER, DRIVER/POOL or DRIVER/POOL/DEVICE; default all",
    )
    add("--all", action="store_true", help="also list devices without taints")
    add_nodes(parser, "list")
    add("-n", "--namespace", type=as_namespace, metavar="NS", help="only taints that concern a pod of this namespace")
    add("-o", "--output", choices=("json", "name", "wide", "yaml"), help="default a table")
    add("--no-headers", action="store_true", help="print no line with the names of the columns")
    add("-w", "--watch", action="store_true", help="then print what is added, changed or <removed>, until interrupted")
    add_interval(parser, " of --watch")
    add_cluster(parser)
    return parser
