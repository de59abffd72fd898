"""`taint`: taints devices by writing DeviceTaintRules, as `kubectl taint` taints nodes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from webhook.api.meta import RULE_VERSIONS, format_time
from webhook.api.rules import EVICT, EXPIRES_AT
from webhook.api.taints import NO_SCHEDULE
from webhook.commands.shared.device_selection import DeviceSelection, add_nodes, addresses_of, parse_selection
from webhook.commands.shared.flags import add_cluster, ask_cluster
from webhook.commands.shared.main import REFUSED, ClusterUnreachable, WrongUsage, asking_server
from webhook.commands.shared.output import write
from webhook.commands.shared.tainting import (
    DryRun,
    TaintOrder,
    TaintResult,
    add_confirm,
    add_dry_run,
    order_of,
    planned,
    report_refusals,
    write_taints,
)
from webhook.commands.shared.words import NAME, DeviceAddress, TaintSpec, as_taint_specs
from webhook.config.command_line import CommandLine, IntermixedLine, program
from webhook.config.texts import as_lifetime
from webhook.files.report import STRUCTURED

if TYPE_CHECKING:
    from webhook.cluster.client.rest import Cluster


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Taint the devices. Return 0, 1 if the server refuses or a taint is there already, 2 for usage or no cluster."""
    selection, taints = _read(options)

    def order_for(addresses: Sequence[DeviceAddress]) -> TaintOrder:
        annotations = {}
        if options.lifetime is not None:
            now = datetime.now(UTC)  # noqa: TID251 -- the shell asks
            annotations[EXPIRES_AT] = format_time(now + options.lifetime)
        if options.evict:
            annotations[EVICT] = "true"
        return order_of(options, addresses, taints, annotations, "overwrite" if options.overwrite else "refuse")

    async def taint(cluster: Cluster) -> tuple[list[TaintResult], TaintOrder]:
        from webhook.cluster.client.errors import Refused  # noqa: PLC0415
        from webhook.commands.shared.snapshot import RuleStore  # noqa: PLC0415

        store, known = await RuleStore.of(cluster), selection.addresses
        if selection.by_node or not options.missing_ok:
            try:
                known = await addresses_of(cluster, selection)
            except Refused:
                await store.all()  # the first that a taint needs is to be named first
                raise
        order = order_for(known)
        return await write_taints(store, order), order

    try:
        with asking_server():
            results, order = ask_cluster(options, taint)
    except ClusterUnreachable as error:
        if options.dry_run != DryRun.CLIENT or selection.by_node:
            raise
        version = RULE_VERSIONS[0]
        sys.stderr.write(f"{parser.prog}: no cluster was asked, so this is of version {version}: {error}\n")
        order = order_for(selection.addresses)
        results = planned(order, (), version)
    refused = report_refusals(results, order, parser)
    written = [each for each in results if not each.refusal]
    return write(_shown(written, options.output, order.dry_run), REFUSED if refused else 0)


def _read(options: argparse.Namespace) -> tuple[DeviceSelection, list[TaintSpec]]:
    selection, words = parse_selection(options)
    removing = next((word for word in words if word.endswith("-")), None)
    if removing is not None:
        where = " ".join(map(str, selection.addresses))
        raise WrongUsage(f"{removing} removes a taint: run {program('untaint')} {where} {removing}")
    if not words:
        raise WrongUsage("a taint such as key=value:NoSchedule is required")
    if not selection.by_node and not selection.addresses:
        raise WrongUsage("a device such as gpu.example.com/node-7/gpu-0 is required, or --node")
    wide = next((each for each in selection.addresses if not each.device), None)
    if wide is not None and not selection.by_node and not options.all:
        raise WrongUsage(f"{wide} is more than one device: pass --all to taint every device of it")
    taints = as_taint_specs(words)
    other = next((each.effect for each in taints if each.effect != NO_SCHEDULE), None)
    if options.evict and other is not None:
        raise WrongUsage(
            f"--evict goes with effect {NO_SCHEDULE}, not {other}: the eviction worker empties such devices"
        )
    return selection, taints


def _shown(results: Sequence[TaintResult], output: str | None, dry_run: DryRun) -> str:
    if output == "name":
        return "".join(f"{NAME}/{each.name}\n" for each in results)
    if output is None:
        return "".join(f"{each.line}{dry_run.suffix}\n" for each in results)
    objects = [dict(each.obj) for each in results]
    if len(objects) == 1:
        return STRUCTURED[output](objects[0])
    return STRUCTURED[output]({"apiVersion": "v1", "kind": "List", "items": objects}) if objects else ""


# --- flags --------------------------------------------------------------------------------------


def command_line() -> CommandLine:
    """Return the flags of the verb."""
    parser = IntermixedLine(
        program("taint"),
        "Taints devices, as kubectl taint does nodes: writes a DeviceTaintRule for each device and each taint.\n"
        "Several devices are several rules; a whole pool or driver is one rule, and needs --all. Warnings of the\n"
        "server say which pods are hit. Effect NoExecute ends pods at once; NoSchedule with --evict lets the worker\n"
        "evict them gently. A pool whose name contains slashes is written with one more at its end.",
        "Exit codes: 0 fine, 1 refused by the server or there already, 2 wrong usage or no cluster.",
        (
            "device-taint-webhook taint gpu.example.com/node-7/gpu-0 example.com/ecc=double-bit:NoSchedule",
            "device-taint-webhook taint gpu.example.com/node-7 --all maint.example.com/firmware:NoSchedule --evict",
            "device-taint-webhook taint --node node-7 maint.example.com/firmware:NoSchedule --for 2h --reason OPS-7",
            "device-taint-webhook taint gpu.example.com/node-7/gpu-0 example.com/ecc:NoExecute --dry-run=server",
        ),
    )
    add = parser.add_argument
    text = (
        "devices as DRIVER/POOL/DEVICE, DRIVER/POOL or DRIVER, and taints; effects are NoSchedule, NoExecute and None"
    )
    add("words", nargs="*", metavar="DEVICE... KEY[=VALUE]:EFFECT...", help=text)
    add("--all", action="store_true", help="taint every device of a DRIVER/POOL or DRIVER that is named")
    add_nodes(parser, "taint")
    add("--overwrite", action="store_true", help="change rules that set the same key and effect on these devices")
    add("--missing-ok", action="store_true", help="also taint devices that are neither published nor allocated yet")
    text = "until then (annotation devicetaint.io/expires-at): the eviction worker ends it, unless it only observes"
    add("--for", dest="lifetime", type=as_lifetime, metavar="2h", help=text)
    text = "have the eviction worker empty the devices gently (annotation devicetaint.io/evict); effect NoSchedule"
    add("--evict", action="store_true", help=text)
    add("--reason", metavar="TEXT", help="why, for people (annotation devicetaint.io/description)")
    add_confirm(parser)
    add_dry_run(parser)
    add("-o", "--output", choices=("json", "name", "yaml"), help="print the rules; default a line for each")
    add_cluster(parser)
    return parser
