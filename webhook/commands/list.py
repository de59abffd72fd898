"""`list`: tainted devices, with every taint of slices and rules on them, and the pods that it concerns.

A rule that selects by class or CEL is listed on each device that its names allow, since only its names are read here.
The structure of JSON and YAML is stable: while `version` is 1, fields may be added, but none is removed or changes its
meaning. docs/kubectl.md explains it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, product
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs

from webhook.api.meta import format_time, time_text
from webhook.api.rules import DATA, DESCRIPTION, EVICT, EXPIRES_AT, DeviceTaintRule, condition_of
from webhook.api.taints import NO_EXECUTE, DeviceTaint
from webhook.commands.shared.device_selection import (
    DeviceSelection,
    add_nodes,
    bare,
    belonging,
    nodes_of,
    parse_selection,
    refuse_missing,
)
from webhook.commands.shared.flags import INTERVAL_SECONDS, add_cluster, add_interval, ask_cluster
from webhook.commands.shared.main import ClusterUnreachable, ServerRefusal, asking_server
from webhook.commands.shared.output import document, write, write_more
from webhook.commands.shared.words import DeviceAddress
from webhook.config.command_line import CommandLine, IntermixedLine, program
from webhook.config.texts import as_namespace
from webhook.eviction.conditions import EVICTION, IN_TREE
from webhook.files.report import shortened, table, visible
from webhook.inventory.pools import FOR_EVER, tolerates
from webhook.inventory.targets import DeviceNames

if TYPE_CHECKING:  # these load a client, or most of an inventory
    from webhook.cluster.client.rest import Cluster
    from webhook.commands.shared.snapshot import ReadInventory
    from webhook.inventory.impact import Taint
    from webhook.inventory.state import Inventory

_NONE: Final = "<none>"
_PODS_SHOWN: Final = 3
_DATA_SHOWN: Final = 64
_HEADERS: Final = ("NAME", "TAINT", "EFFECT", "SOURCE", "AGE", "PODS")
_WIDE: Final = ("NODE", "RULE", "EVICTION", "EXPIRES", "REASON", "DATA")


class TaintSource(msgspec.Struct, frozen=True):
    """What sets a taint. `kind`: slice, rule or patch; `rule`: the rule's name, if it is one."""

    kind: str
    name: str
    rule: str | None = None


class AffectedUser(msgspec.Struct, frozen=True):
    """A pod, or another consumer of claims, that uses the device; `tolerates`: the taint, for ever."""

    namespace: str
    resource: str
    name: str
    tolerates: bool


class ListedTaint(msgspec.Struct, frozen=True, rename="camel"):
    """One taint on one device. `eviction`: the reason of the worker's condition, or else the in-tree controller's."""

    key: str
    value: str | None
    effect: str
    evict: bool
    time_added: str | None
    source: TaintSource
    eviction: str | None
    expires_at: str | None
    reason: str | None
    data: str | None
    users: tuple[AffectedUser, ...]

    @property
    def affected(self) -> list[AffectedUser]:
        """The users that do not tolerate it."""
        return [each for each in self.users if not each.tolerates]

    def concerns(self, namespace: str) -> bool:
        """Return whether one of these is in the namespace."""
        return any(each.namespace == namespace for each in self.affected)


class ListedDevice(msgspec.Struct, frozen=True):
    """A device with its taints, those of its slice first."""

    driver: str
    pool: str
    device: str
    node: str | None
    taints: tuple[ListedTaint, ...]

    @property
    def address(self) -> DeviceAddress:
        """Its name."""
        return DeviceAddress(self.driver, self.pool, self.device)


class TaintList(msgspec.Struct, frozen=True):
    """What one look has found."""

    version: int
    time: str
    devices: list[ListedDevice]
    notes: list[str]


Row = tuple[ListedDevice, ListedTaint | None]
"""A line of the table: a device, here without its taints, and one of these; None for a device without any."""


def run(options: argparse.Namespace, parser: CommandLine) -> int:
    """Print the list. Return 0, 1 if the server refuses or a name is unknown, 2 for wrong usage or no cluster."""
    selection, taints = parse_selection(options)
    if taints:
        parser.error(f"{taints[0]} is no device such as gpu.example.com/node-7/gpu-0")
    if options.interval is not None and not options.watch:
        parser.error("--interval has no effect without --watch")
    first = _look(options, selection, first=True)
    if not options.watch:
        return write(_shown(first, options), 0)
    return _watch(first, lambda: _look(options, selection), options, parser)


def _look(options: argparse.Namespace, selection: DeviceSelection, *, first: bool = False) -> TaintList:
    """Return what there is. The `first` look refuses names of what is not there."""
    from webhook.cluster.client.rest import path_of  # noqa: PLC0415
    from webhook.commands.shared.snapshot import CLAIMS, PODS, RULES, SLICES, read_inventory  # noqa: PLC0415

    async def ask(cluster: Cluster) -> tuple[ReadInventory, frozenset[str]]:
        nodes = await nodes_of(cluster, selection)
        wished = (RULES, CLAIMS, *((PODS,) if selection.by_node else ()))
        read = await read_inventory(cluster, (SLICES,), wished, by_node=selection.by_node)
        if first and not selection.by_node:
            refuse_missing(read, selection)
        for node in bare(read.devices, {each: (each,) for each in selection.nodes}) if first else ():
            await cluster.get(path_of("", "v1", "nodes", name=node))  # it may only have no devices
        return read, nodes

    with asking_server():
        read, nodes = ask_cluster(options, ask)
    devices, namespace = listed_devices(read), options.namespace
    if selection.by_node or selection.addresses:
        wanted = frozenset(belonging(read, selection, nodes))
        devices = [each for each in devices if any(DeviceAddress(*each.address[:n]) in wanted for n in (1, 2, 3))]
    if namespace is not None:
        devices = [
            structs.replace(each, taints=tuple(one for one in each.taints if one.concerns(namespace)))
            for each in devices
        ]
    devices = [each for each in devices if each.taints or (options.all and namespace is None)]
    everything = selection == DeviceSelection() and namespace is None
    notes = [*read.notes, *_notes(read.inventory, everything=everything)]
    return TaintList(1, format_time(datetime.now(UTC)), devices, notes)  # noqa: TID251 -- the shell asks


def _notes(inventory: Inventory, *, everything: bool) -> Iterator[str]:
    """Yield notes on rules that select more, or less, than the list shows.

    `everything`: also one on all that select no published device: a node that is gone leaves such rules behind.
    """
    from webhook.admission.impact_text import first_names  # noqa: PLC0415
    from webhook.inventory.hardware import is_published  # noqa: PLC0415
    from webhook.inventory.targets import can_judge  # noqa: PLC0415

    selectors = {name: rule.selector for name, rule in sorted(inventory.rules.items())}
    if everything:
        names = {name: DeviceNames.of(each, inventory.servers) for name, each in selectors.items()}
        idle = [name for name, each in names.items() if not is_published(inventory, each)]
        if len(idle) == 1:
            yield f"rule {idle[0]} selects no published device"
        elif idle:
            yield f"{len(idle)} rules select no published device: {first_names(idle)}"
    if unjudged := [name for name, each in selectors.items() if each is not None and not can_judge(each)]:
        text = "by class, CEL or unknown fields, so their taints may be on fewer devices than listed"
        yield f"{', '.join(unjudged)} selects {text}"


# --- what there is ------------------------------------------------------------------------------


def listed_devices(read: ReadInventory) -> list[ListedDevice]:
    """Return all devices with all taints: slices before rules, then by name.

    Devices that an allocation holds are among them, also where no slice shows them any more.
    """
    from webhook.inventory.impact import Taint  # noqa: PLC0415

    inventory, rules = read.inventory, defaultdict[DeviceNames, list[DeviceTaintRule]](list)
    for _, rule in sorted(inventory.rules.items()):
        rules[DeviceNames.of(rule.selector, inventory.servers)].append(rule)
    slice_of = {
        (driver, pool, device.name): value.meta.name
        for (driver, pool), published in inventory.pools.items()
        for value in published.newest
        for device in value.devices
    }
    found: list[ListedDevice] = []
    for device in sorted({DeviceAddress(*each) for each in (*slice_of, *inventory.usage.unpublished(inventory.pools))}):
        taints: list[ListedTaint] = []
        pool = inventory.pools.get(device[:2])
        for taint in () if pool is None else pool.taints_of(device.device):
            users = _users(inventory, device, Taint.of_slice(taint, in_tree=True))
            taints.append(_listed(taint, TaintSource("slice", slice_of[device]), users))
        naming = (rules.get(DeviceNames(*names), ()) for names in product(*((each, None) for each in device)))
        for rule in sorted(chain.from_iterable(naming), key=lambda each: each.meta.name):
            # Without a selector it evicts no pod.
            users = () if rule.selector is None else _users(inventory, device, Taint.of_rule(rule, in_tree=True))
            kind, name = ("patch", rule.origin.name) if rule.origin.patch else ("rule", rule.meta.name)
            taints.append(_listed(rule.taint, TaintSource(kind, name, rule.meta.name), users, rule))
        found.append(ListedDevice(*device, read.devices.node_of(device) or None, tuple(taints)))
    return found


def _listed(
    taint: DeviceTaint, source: TaintSource, users: tuple[AffectedUser, ...], rule: DeviceTaintRule | None = None
) -> ListedTaint:
    annotations, eviction = {} if rule is None else rule.meta.annotations, None
    if rule is not None and rule.effective_effect == NO_EXECUTE:
        said = condition_of(rule.conditions, EVICTION) or condition_of(rule.conditions, IN_TREE)
        if said is not None and said.observed_generation in (0, rule.generation):
            eviction = said.reason or None
    return ListedTaint(
        taint.key,
        taint.value or None,
        taint.effect,
        annotations.get(EVICT) == "true",
        time_text(taint.time_added),
        source,
        eviction,
        annotations.get(EXPIRES_AT) or None,
        annotations.get(DESCRIPTION) or None,
        annotations.get(DATA) or None,
        users,
    )


def _users(inventory: Inventory, device: DeviceAddress, taint: Taint) -> tuple[AffectedUser, ...]:
    """Return who has the device, by its claims; a pod with several of these tolerates the taint if all of them do."""
    found: dict[tuple[str, str, str], bool] = {}
    for key in inventory.usage.claims_on(*device):
        claim = inventory.claims[key]
        results = [each for each in claim.allocation or () if (each.driver, each.pool, each.device) == device]
        if taint.taint.effect == NO_EXECUTE:
            stays = all(taint.fate(inventory.servers, each.tolerations) == FOR_EVER for each in results)
        else:
            stays = all(any(tolerates(one, taint.taint) for one in each.tolerations) for each in results)
        for consumer in claim.reserved_for:
            user = claim.meta.namespace, consumer.resource, consumer.name
            found[user] = found.get(user, True) and stays
    return tuple(AffectedUser(*user, stays) for user, stays in sorted(found.items()))


# --- text ---------------------------------------------------------------------------------------


def _shown(found: TaintList, options: argparse.Namespace) -> str:
    if options.output in ("json", "yaml"):
        from webhook.files.report import STRUCTURED  # noqa: PLC0415

        values = msgspec.to_builtins(found)
        return document(options.output, values) if options.watch else STRUCTURED[options.output](values)
    _say(found.notes)
    if options.output == "name":
        return "".join(f"{each.address}\n" for each in found.devices)
    if not found.devices:
        sys.stderr.write(f"No {'' if options.all else 'tainted '}devices found.\n")
    return _table(_rows(found), options, headers=not options.no_headers)


def _say(notes: Iterable[str]) -> None:
    sys.stderr.write("".join(f"note: {visible(text)}\n" for text in notes))


def _rows(found: TaintList) -> list[Row]:
    return [(structs.replace(each, taints=()), taint) for each in found.devices for taint in each.taints or (None,)]


def _table(rows: Iterable[Row], options: argparse.Namespace, *, headers: bool = False, removed: bool = False) -> str:
    """Return columns as kubectl prints them; empty for no rows. `removed`: these taints are gone."""
    now = datetime.now(UTC)  # noqa: TID251 -- the shell asks
    wide = options.output == "wide"
    titles = (*_HEADERS, *(_WIDE if wide else ())) if headers else ()
    cells = []
    for device, taint in rows:
        first: list[str] = [str(device.address)]
        more: list[str | None] = [device.node]
        if taint is not None:
            name = f"{taint.key}={taint.value}" if taint.value else taint.key
            effect = "<removed>" if removed else f"{taint.effect},evict" if taint.evict else taint.effect
            since = None if taint.time_added is None else now - datetime.fromisoformat(taint.time_added)
            age = "<unknown>" if since is None else human_duration(int(since.total_seconds()))
            source, data = taint.source, shortened(taint.data or "", _DATA_SHOWN)
            first += [name, effect, f"{source.kind}/{source.name}", age, _pods(taint.affected, wide=wide)]
            more += [source.rule, taint.eviction, taint.expires_at, taint.reason, data]
        first += [_NONE] * (len(_HEADERS) - len(first))
        more += [None] * (len(_WIDE) - len(more))
        cells.append([*first, *([each or _NONE for each in more] if wide else ())])
    return "".join(f"{line}\n" for line in table(cells, headers=titles))


def _pods(users: Sequence[AffectedUser], *, wide: bool) -> str:
    """Return the first ones, and how many more there are, as kubectl shows endpoints."""
    shown = users if wide else users[:_PODS_SHOWN]
    names = [f"{'' if each.resource == 'pods' else f'{each.resource}/'}{each.namespace}/{each.name}" for each in shown]
    text = ",".join(names) or _NONE
    return f"{text} + {len(users) - len(shown)} more..." if len(shown) < len(users) else text


_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
_STEPS: Final = (
    (120, "s", ""),
    (10 * _UNITS["m"], "m", "s"),
    (3 * _UNITS["h"], "m", ""),
    (8 * _UNITS["h"], "h", "m"),
    (2 * _UNITS["d"], "h", ""),
    (8 * _UNITS["d"], "d", "h"),
    (2 * _UNITS["y"], "d", ""),
    (8 * _UNITS["y"], "y", "d"),
    (math.inf, "y", ""),
)
"""Below the first number of seconds: the unit, and the smaller unit that is added, if any."""


def human_duration(seconds: int) -> str:
    """Return `45s`, `5m30s`, `90m`, `3h20m` or `2d`; a clock that is behind by a second does no harm."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    unit, smaller = next(units for below, *units in _STEPS if seconds < below)
    whole, rest = divmod(seconds, _UNITS[unit])
    more = rest // _UNITS[smaller] if smaller else 0
    return f"{whole}{unit}" + (f"{more}{smaller}" if more else "")


# --- watching -----------------------------------------------------------------------------------


def _watch(first: TaintList, look: Callable[[], TaintList], options: argparse.Namespace, parser: CommandLine) -> int:
    """Print as `kubectl get --watch`: the list, then what is added, changed and removed, until output is closed."""
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
    known, left = _rows(before), _rows(after)
    same, values = set(known), {(_identity(row), row[1] and row[1].value) for row in left}
    changed = [row for row in left if row not in same]
    # A driver may set several taints that differ in their values only; if there are as many, one has changed.
    fewer = Counter(map(_identity, known)) - Counter(map(_identity, left))
    fallen = [(row, row[1].value) for row in known if row[1] is not None and _identity(row) in fewer]
    gone = [row for row, value in fallen if (_identity(row), value) not in values]
    if options.output in (None, "wide"):
        _say(text for text in after.notes if text not in before.notes)
        return _table(gone, options, removed=True) + _table(changed, options)
    addresses = {device.address for device, _ in (*changed, *gone)}
    # A device that has lost its last taint may not be listed any more; it is shown without any.
    known_as = {device.address: device for device, _ in gone} | {each.address: each for each in after.devices}
    devices = [known_as[address] for address in sorted(addresses)]
    return _shown(structs.replace(after, devices=devices), options) if devices else ""


def _identity(row: Row) -> tuple[object, ...]:
    """Return what tells a row from others while a list is watched."""
    device, taint = row
    return (device.address, taint and (taint.source, taint.key, taint.effect))


# --- flags --------------------------------------------------------------------------------------


def command_line() -> CommandLine:
    """Define the flags of the verb."""
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
    text = "only these devices: DRIVER, DRIVER/POOL or DRIVER/POOL/DEVICE; default all"
    add("words", nargs="*", metavar="DEVICE...", help=text)
    add("--all", action="store_true", help="also list devices without taints")
    add_nodes(parser, "list")
    add("-n", "--namespace", type=as_namespace, metavar="NS", help="only taints that concern a pod of this namespace")
    add("-o", "--output", choices=("json", "name", "wide", "yaml"), help="default a table")
    add("--no-headers", action="store_true", help="print no line with the names of the columns")
    add("-w", "--watch", action="store_true", help="then print what is added, changed or <removed>, until interrupted")
    add_interval(parser, " of --watch")
    add_cluster(parser)
    return parser
