"""`untaint`: deletes the DeviceTaintRules that people have set on devices, and says what else taints them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

from webhook.api.messages import counted
from webhook.commands.shared.device_selection import (
    DeviceSelection,
    add_nodes,
    belonging,
    nodes_of,
    parse_selection,
    refuse_missing,
)
from webhook.commands.shared.flags import add_cluster, ask_cluster
from webhook.commands.shared.main import (
    REFUSED,
    ClusterUnreachable,
    ServerRefusal,
    WrongUsage,
    asking_server,
    refusal_text,
)
from webhook.commands.shared.output import write
from webhook.commands.shared.tainting import ATTEMPTS, DryRun, add_dry_run, write_warnings
from webhook.commands.shared.words import (
    NAME,
    DeviceAddress,
    StoredTaintRule,
    TaintPattern,
    TaintSpec,
    WantedRule,
    as_taint_pattern,
    split_words,
)
from webhook.config.command_line import CommandLine, IntermixedLine, program
from webhook.files.report import visible
from webhook.inventory.pools import selects
from webhook.inventory.targets import DeviceNames

if TYPE_CHECKING:
    from webhook.cluster.client.rest import Cluster
    from webhook.commands.shared.node_devices import NodeDevices
    from webhook.commands.shared.snapshot import ReadInventory, RuleStore
    from webhook.inventory.state import Inventory


class UntaintChoice(NamedTuple):
    """The rules to delete for one address and one pattern, and why other taints of that key stay."""

    address: DeviceAddress
    pattern: TaintPattern
    rules: tuple[StoredTaintRule, ...]
    staying: tuple[str, ...]


class RemovedRule(NamedTuple):
    """The outcome for a rule. `refusal`: why it is still there; `note`: why it is not gone yet."""

    name: str
    refusal: str = ""
    warnings: tuple[str, ...] = ()
    note: str = ""


def run(options: argparse.Namespace, _: CommandLine) -> int:
    """Delete the rules. Return 0, 1 if there is none or one is refused, 2 for wrong usage or no cluster."""
    selection, patterns = _read(options)
    dry_run = DryRun(options.dry_run)
    with asking_server():
        choices, removed = ask_cluster(options, lambda cluster: _untaint(cluster, selection, patterns, dry_run))
    write_warnings([text for each in removed for text in each.warnings])
    refused = [each.refusal for each in removed if each.refusal]
    notes = [*[text for each in choices for text in each.staying], *[each.note for each in removed if each.note]]
    if 0 < len(refused) < len(removed) and dry_run is DryRun.NONE:
        done = f"{counted(len(removed) - len(refused), 'rule')} of {len(removed)} deleted, as printed"
        notes.append(f"{done}; to go on, name only devices and taints that are left")
    sys.stderr.write("".join(f"{text}\n" for text in [*refused, *[f"note: {each}" for each in dict.fromkeys(notes)]]))
    gone = {each.name for each in removed if not each.refusal}
    deleted = [(each.address, rule.rule.meta.name) for each in choices for rule in each.rules]
    lines = [
        f"{NAME}/{name}" if options.output else f"{address} untainted: {NAME}/{name} deleted{dry_run.suffix}"
        for address, name in deleted
        if name in gone
    ]
    return write("".join(f"{line}\n" for line in dict.fromkeys(lines)), REFUSED if refused else 0)


def _read(options: argparse.Namespace) -> tuple[DeviceSelection, list[TaintPattern]]:
    words: list[str] = options.words
    try:
        bare = len(words) > 1 - bool(options.node or options.selector) and not split_words(words)[1]
    except WrongUsage:
        bare = True
    if bare:
        options.words = [*words[:-1], f"{words[-1]}-"]  # a bare key comes last
    selection, removing = parse_selection(options)
    if not selection.by_node and not selection.addresses:
        raise WrongUsage("a device such as gpu.example.com/node-7/gpu-0 is required, or --node")
    if not removing:
        raise WrongUsage("a taint such as key- or key:NoSchedule- is required")
    return selection, list(dict.fromkeys(map(as_taint_pattern, removing)))


async def _untaint(
    cluster: Cluster, selection: DeviceSelection, patterns: Sequence[TaintPattern], dry_run: DryRun
) -> tuple[list[UntaintChoice], list[RemovedRule]]:
    """Delete the rules, or none if there is none for one of the taints, or the server refuses a deletion."""
    from webhook.cluster.client.errors import ClusterError  # noqa: PLC0415
    from webhook.commands.shared.snapshot import CLAIMS, PODS, SLICES, RuleStore, read_inventory  # noqa: PLC0415

    store = await RuleStore.of(cluster)
    stored = await store.all()
    if selection.by_node:
        nodes = await nodes_of(cluster, selection)
        read = await read_inventory(cluster, (SLICES,), (CLAIMS, PODS), by_node=True)
        write_warnings(read.notes)
        choices = choose_on_nodes(selection, nodes, patterns, stored, read)
    else:
        try:
            inventory = (await read_inventory(cluster, (SLICES,))).inventory
        except ClusterError:
            inventory = None  # they only explain what stays
        choices = [choose(each, pattern, stored, inventory) for each in selection.addresses for pattern in patterns]
    missing = [
        "\n".join([f'error: taint "{each.pattern}" not found on {each.address}', *each.staying])
        for each in choices
        if not each.rules
    ]
    if missing:
        raise ServerRefusal("\n".join(missing))
    chosen = {each.rule.meta.name: each for choice in choices for each in choice.rules}
    if dry_run is DryRun.CLIENT:
        return choices, list(map(RemovedRule, chosen))
    if len(chosen) > 1 and dry_run is DryRun.NONE:
        rehearsed = [await remove(store, each, dry_run=True) for each in chosen.values()]
        if any(each.refusal for each in rehearsed):
            return choices, [each for each in rehearsed if each.refusal]
    removed = list[RemovedRule]()
    for each in chosen.values():
        try:
            removed.append(await remove(store, each, dry_run=dry_run is DryRun.SERVER))
        except ClusterError as error:
            if dry_run is DryRun.SERVER:
                raise
            lines = [f"{NAME}/{done.name} deleted" for done in removed if not done.refusal]
            text = f"{error}; it is not known whether rule {each.rule.meta.name} was deleted"
            raise ClusterUnreachable("\n".join([text, *lines])) from None
    return choices, removed


async def remove(store: RuleStore, stored: StoredTaintRule, *, dry_run: bool) -> RemovedRule:
    """Delete the rule with its uid and resource version as preconditions. Raises ClusterError."""
    name = stored.rule.meta.name
    for _ in range(ATTEMPTS):
        response = await store.delete(stored, dry_run=dry_run)
        if response.granted:
            # A Status has no finalizers; the object is in the answer while some are left.
            left = ", ".join((response.body.get("metadata") or {}).get("finalizers") or ())
            note = f"rule {name} is there until its finalizers are gone: {left}" if left else ""
            return RemovedRule(name, "", response.warnings, note)
        if response.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            return RemovedRule(name, refusal_text(str(response.body.get("reason") or ""), response.message))
        found = None if response.code == HTTPStatus.NOT_FOUND else await store.get(name)
        if found is None:
            return RemovedRule(name)
        was, now = [(each.rule.meta.uid, each.rule.selector, each.rule.taint, each.maker) for each in (stored, found)]
        if was != now:
            return RemovedRule(name, f"error: rule {name} was changed meanwhile: look at it again")
        stored = found
    return RemovedRule(name, f"error: rule {name} keeps changing: try again")


# --- which rules, and what stays ----------------------------------------------------------------


def choose_on_nodes(
    selection: DeviceSelection,
    nodes: Collection[str],
    patterns: Sequence[TaintPattern],
    stored: Sequence[StoredTaintRule],
    read: ReadInventory,
) -> list[UntaintChoice]:
    """Return what to delete on nodes: the rules that there are for each pattern, or all addresses if there are none.

    A pool that has a node's name is that node's, also if its driver publishes nothing any more. Raises ServerRefusal.
    """
    drivers = {each.driver for each in selection.addresses}
    here = {*belonging(read, selection, nodes)}
    for rule in stored:
        names = DeviceNames.of(rule.rule.selector)
        if names.driver is None or names.pool not in nodes or names.driver not in (drivers or {names.driver}):
            continue
        if not any(read.inventory.pools.selected(names.driver, names.pool)):
            here.add(DeviceAddress(*[part or "" for part in names]))
    if not here:
        refuse_missing(read, selection, nodes)
        raise ServerRefusal(f'error: taint "{patterns[0]}" not found on {", ".join(sorted(nodes))}')
    choices = []
    for pattern in patterns:
        found = [choose(each, pattern, stored, read.inventory) for each in sorted(here)]
        loose = tuple(_rules_on_shared_devices(pattern, stored, nodes, read.devices))
        found = [each for each in found if each.rules] or found
        choices += [each._replace(staying=each.staying + loose) for each in found]
    return choices


def _rules_on_shared_devices(
    pattern: TaintPattern, stored: Sequence[StoredTaintRule], nodes: Collection[str], devices: NodeDevices
) -> Iterator[str]:
    """Yield a text for each rule on a device that other nodes can use, too, and that no allocation holds any more."""
    for each in stored:
        address = DeviceAddress(*[part or "" for part in DeviceNames.of(each.rule.selector)])
        reach = devices.reach.get(address)
        if reach is None or (reach and (reach.issubset(nodes) or reach.isdisjoint(nodes))) or address in devices.held:
            continue
        if each.is_for(address) and _sets(each, address, pattern):
            yield f"rule {visible(each.rule.meta.name)} taints {address}, which other nodes can use, too: name that"


def _sets(stored: StoredTaintRule, address: DeviceAddress, pattern: TaintPattern) -> bool:
    """Return whether a rule sets such a taint, or was written to do so on just these devices."""
    wanted = WantedRule(address, TaintSpec(pattern.key, "", pattern.effect))
    return pattern.matches(stored.rule.taint.key, stored.rule.taint.effect) or stored.is_for_rule(wanted)


def choose(
    address: DeviceAddress, pattern: TaintPattern, stored: Sequence[StoredTaintRule], inventory: Inventory | None
) -> UntaintChoice:
    """Return what to delete of one address. `inventory` has slices; None if they could not be read."""
    of_key = [each for each in stored if _sets(each, address, pattern)]
    exact = [each for each in of_key if each.is_for(address)]
    staying = [each.maker for each in exact if each.maker]
    staying += filter(None, [_other_rule(address, each) for each in of_key if each not in exact])
    if inventory is not None:
        staying += _slice_taints(address, pattern, inventory)
    rules = tuple([each for each in exact if not each.maker])
    return UntaintChoice(address, pattern, rules, tuple(map(visible, staying)))


def _other_rule(address: DeviceAddress, stored: StoredTaintRule) -> str:
    """Return what to do about a rule for more devices, or for some of these; empty for one for others."""
    selector, name = stored.rule.selector, stored.rule.meta.name
    if selector is None or selector.empty:
        return f"rule {name} taints every device of every driver: kubectl delete devicetaintrule {name}"
    names = {"driver": selector.driver, "pool": selector.pool, "device": selector.device}
    expressions = "; ".join(each.expression or "" for each in selector.selectors)
    parts = {**names, "class": selector.device_class_name, "CEL": expressions or None}
    words = ", ".join(f"{part} {text}" for part, text in parts.items() if text is not None) or "by unknown fields"
    if address.covers(*[part or "" for part in names.values()]):
        return f"rule {name} taints only {words}: untaint that"
    if not selects(selector, *address):
        return ""
    return stored.maker or f"rule {name} also taints other devices, {words}: untaint all of these"


def _slice_taints(address: DeviceAddress, pattern: TaintPattern, inventory: Inventory) -> Iterator[str]:
    """Yield a text for each slice in which the driver publishes such taints."""
    pools = inventory.pools.selected(address.driver, address.pool or None)
    for value in sorted([each for _, pool in pools for each in pool.newest], key=lambda each: each.meta.name):
        taints = [(each.device, each.taint) for each in value.slice_taints]
        taints += [(device.name, taint) for device in value.devices for taint in device.taints]
        names = {device for device, taint in taints if pattern.matches(taint.key, taint.effect)}
        if here := sorted(names & {address.device} if address.device else names):
            which = ", ".join(here[:3]) + (" and others" if len(here) > 3 else "")
            yield (
                f"driver {address.driver} publishes that taint of {which} in ResourceSlice {value.meta.name}, and "
                "would publish it again: only the driver can take it back; a pod that may use the device all the same "
                "has to tolerate it"
            )


# --- flags --------------------------------------------------------------------------------------


def command_line() -> CommandLine:
    """Return the flags of the verb."""
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
    add = parser.add_argument
    text = "devices as DRIVER/POOL/DEVICE, DRIVER/POOL or DRIVER, and taints; the last may lack the minus"
    add("words", nargs="*", metavar="DEVICE... KEY[:EFFECT]-...", help=text)
    add_nodes(parser, "untaint")
    add_dry_run(parser)
    add("-o", "--output", choices=("name",), help="print the names of the rules; default a line for each")
    add_cluster(parser)
    return parser
