"""`untaint`: deletes the DeviceTaintRules that people have set on devices."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from webhook.api.counts import counted
from webhook.commands.shared.device_selection import DeviceSelection, add_nodes, nodes_of, parse_selection
from webhook.commands.shared.flags import add_cluster, credentials_of
from webhook.commands.shared.main import REFUSED, ServerRefusal, asking_server, main_of
from webhook.commands.shared.output import write
from webhook.commands.shared.tainting import DryRun, add_dry_run, write_warnings
from webhook.commands.shared.words import NAME, TaintPattern, as_taint_pattern, split_words
from webhook.config.command_line import IntermixedLine, program

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from webhook.cluster.client.rest import Cluster
    from webhook.commands.untaint.choice import RemovedRule, UntaintChoice
    from webhook.config.command_line import CommandLine


def run(arguments: Sequence[str]) -> int:
    """Deletes the rules. Returns 0, 1 if there is none or one is refused, 2 for wrong usage or no cluster."""
    return main_of(command_line(), arguments, _run)


def _run(options: argparse.Namespace, parser: CommandLine) -> int:
    selection, patterns = _read(options, parser)
    with asking_server():
        choices, removed = _ask(options, selection, patterns)
    write_warnings(list(dict.fromkeys(text for each in removed for text in each.warnings)))
    refused = [each.refusal for each in removed if each.refusal]
    notes = [text for each in choices for text in each.staying]
    notes += [
        f"rule {each.stored.rule.meta.name} is there until its finalizers are gone: {', '.join(each.finalizers)}"
        for each in removed
        if each.finalizers
    ]
    if 0 < len(refused) < len(removed) and options.dry_run == DryRun.NONE:
        done = f"{counted(len(removed) - len(refused), 'rule')} of {len(removed)} deleted, as printed"
        notes.append(f"{done}; to go on, name only devices and taints that are left")
    sys.stderr.write("".join(f"{text}\n" for text in [*refused, *[f"note: {each}" for each in dict.fromkeys(notes)]]))
    return write(_shown(choices, removed, options), REFUSED if refused else 0)


def _read(options: argparse.Namespace, parser: CommandLine) -> tuple[DeviceSelection, list[TaintPattern]]:
    words: list[str] = options.words
    try:
        if len(words) > 1 - bool(options.node or options.selector) and not split_words(words)[1]:
            options.words = [*words[:-1], f"{words[-1]}-"]  # a bare key comes last
    except ValueError:
        options.words = [*words[:-1], f"{words[-1]}-"]
    selection, removing = parse_selection(options, parser)
    if not selection.by_node and not selection.addresses:
        parser.error("a device such as gpu.example.com/node-7/gpu-0 is required, or --node")
    if not removing:
        parser.error("a taint such as key- or key:NoSchedule- is required")
    try:
        return selection, list(dict.fromkeys(map(as_taint_pattern, removing)))
    except ValueError as error:
        parser.error(str(error))


def _ask(
    options: argparse.Namespace, selection: DeviceSelection, patterns: Sequence[TaintPattern]
) -> tuple[list[UntaintChoice], list[RemovedRule]]:
    # Late: see commands/shared/main.py.
    import asyncio  # noqa: PLC0415

    from webhook.cluster.client.rest import Cluster  # noqa: PLC0415

    async def ask() -> tuple[list[UntaintChoice], list[RemovedRule]]:
        async with Cluster(credentials_of(options)) as cluster:
            return await _untaint(cluster, selection, patterns, DryRun(options.dry_run))

    return asyncio.run(ask())


async def _untaint(
    cluster: Cluster, selection: DeviceSelection, patterns: Sequence[TaintPattern], dry_run: DryRun
) -> tuple[list[UntaintChoice], list[RemovedRule]]:
    """All of it, or nothing if there is no rule for one of the taints, or the server refuses a deletion."""
    # Late: see commands/shared/main.py.
    from webhook.cluster.client.errors import ClusterError  # noqa: PLC0415
    from webhook.commands.shared.cluster_reading import (  # noqa: PLC0415
        CLAIMS,
        PODS,
        SLICES,
        RuleStore,
    )
    from webhook.commands.shared.node_devices import read_inventory  # noqa: PLC0415
    from webhook.commands.untaint.choice import RemovedRule, choose, choose_on_nodes, remove  # noqa: PLC0415

    store = await RuleStore.of(cluster)
    stored = await store.all()
    if selection.by_node:
        nodes = await nodes_of(cluster, selection)
        read = await read_inventory(cluster, (SLICES,), (CLAIMS, PODS), by_node=True)
        choices = choose_on_nodes(selection, nodes, patterns, stored, read)
    else:
        try:
            inventory = (await read_inventory(cluster, (SLICES,))).inventory
        except ClusterError:
            inventory = None  # they only explain what stays
        choices = [choose(each, pattern, stored, inventory) for each in selection.addresses for pattern in patterns]
    refusals = [each.refusal for each in choices if each.refusal]
    if refusals:
        raise ServerRefusal("\n".join(refusals))
    chosen = {each.rule.meta.name: each for choice in choices for each in choice.rules}.values()
    if dry_run is DryRun.CLIENT:
        return choices, [RemovedRule(each) for each in chosen]
    if len(chosen) > 1 and dry_run is DryRun.NONE:
        rehearsed = [await remove(store, each, dry_run=True) for each in chosen]
        if any(each.refusal for each in rehearsed):
            return choices, [each for each in rehearsed if each.refusal]
    return choices, [await remove(store, each, dry_run=dry_run is DryRun.SERVER) for each in chosen]


def _shown(choices: Sequence[UntaintChoice], removed: Sequence[RemovedRule], options: argparse.Namespace) -> str:
    gone = {each.stored.rule.meta.name for each in removed if not each.refusal}
    lines: dict[str, None] = {}
    for choice in choices:
        for stored in choice.rules:
            name = stored.rule.meta.name
            if name in gone:
                line = f"{NAME}/{name}"
                suffix = DryRun(options.dry_run).suffix
                lines[line if options.output == "name" else f"{choice.address} untainted: {line} deleted{suffix}"] = (
                    None
                )
    return "".join(f"{line}\n" for line in lines)


# --- flags --------------------------------------------------------------------------------------


def command_line() -> CommandLine:
    """The flags of the verb."""
    parser = IntermixedLine(
        program("untaint"),
        "Removes taints of devices: deletes the DeviceTaintRules that set them on just these devices.\n"
        "Not those that a controller writes (patches, reactions, hardware), nor taints that a driver publishes in\n"
        "slices: it says what to do about these. A rule is only deleted if it has not changed since it was read.",
        "Exit codes: 0 fine, 1 no such taint or refused by the server, 2 wrong usage or no cluster.",
        (
            "device-taint-webhook untaint gpu.example.com/node-7/gpu-0 example.com/ecc-",
            "device-taint-webhook untaint gpu.example.com/node-7 maint.example.com/firmware:NoSchedule-",
            "device-taint-webhook untaint --node node-7 maint.example.com/firmware",
        ),
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="DEVICE... KEY[:EFFECT]-...",
        help="devices as DRIVER/POOL/DEVICE, DRIVER/POOL or DRIVER, and taints; the last may lack the minus",
    )
    add_nodes(parser, "untaint")
    add_dry_run(parser)
    parser.add_argument(
        "-o", "--output", choices=("name",), help="print the names of the rules; default a line for each"
    )
    add_cluster(parser)
    return parser
