"""Which devices a verb is about: those named, or those of nodes."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from webhook.commands.shared.main import ServerRefusal, WrongUsage
from webhook.commands.shared.words import DEVICES, NODES, RULES, DeviceAddress, is_taint, name_in, split_words, type_in
from webhook.inventory.targets import DeviceNames

if TYPE_CHECKING:
    from webhook.cluster.client.rest import Cluster
    from webhook.commands.shared.node_devices import NodeDevices
    from webhook.commands.shared.snapshot import ReadInventory


class DeviceSelection(NamedTuple):
    """Devices by name; or all of these drivers, or of any, on the named nodes, or on those that a selector selects."""

    addresses: tuple[DeviceAddress, ...] = ()
    nodes: tuple[str, ...] = ()
    labels: str = ""

    @property
    def by_node(self) -> bool:
        """Return whether the cluster has to be read to know the devices."""
        return bool(self.nodes or self.labels)


def add_nodes(parser: argparse.ArgumentParser, what: str) -> None:
    """Add `--node` and `--selector`; `what` says what is done with the devices of the nodes."""
    text = f"{what} all devices of this node, NAME or node/NAME; repeatable"
    parser.add_argument("--node", action="append", default=[], metavar="N", help=text)
    text = f"{what} all devices of the nodes with these labels, such as pool=a100,zone!=z1"
    parser.add_argument("-l", "--selector", default="", metavar="L", help=text)


def parse_selection(options: argparse.Namespace) -> tuple[DeviceSelection, list[str]]:
    """Return the devices, and the words that are taints. Raises WrongUsage."""
    words, nodes = split_nodes(options.words)
    if rule := next((each for each in words if name_in(each, RULES)), None):
        raise WrongUsage(f"{rule} is a rule, and not a device: `status {rule}` shows it")
    addresses, taints = split_words(words)
    nodes = [*[name_in(each, NODES) or each for each in options.node], *nodes]
    if not all(nodes):
        raise WrongUsage("--node must be the name of a node, and not empty")
    selection = DeviceSelection(tuple(dict.fromkeys(addresses)), tuple(dict.fromkeys(nodes)), options.selector)
    if selection.nodes and selection.labels:
        raise WrongUsage("--node and --selector may not be given together")
    if selection.by_node and any(each.pool for each in addresses):
        raise WrongUsage("with --node or --selector only drivers can be named, whose devices on these nodes are meant")
    return selection, taints


def split_nodes(words: list[str]) -> tuple[list[str], list[str]]:
    """Return all other words, and the names of nodes in `node/NAME` and, as after `kubectl taint`, `nodes NAME`."""
    if len(words) > 1 and type_in(words[0]) in DEVICES:
        words = words[1:]
    if len(words) > 1 and type_in(words[0]) in NODES:
        words = [each if "/" in each or is_taint(each) else f"node/{each}" for each in words[1:]]
    nodes = [name_in(each, NODES) for each in words]
    return [each for each, node in zip(words, nodes, strict=True) if not node], [each for each in nodes if each]


async def nodes_of(cluster: Cluster, selection: DeviceSelection) -> frozenset[str]:
    """Return the names of the nodes that are meant. Raises ClusterError."""
    from webhook.commands.shared.snapshot import labels_of_nodes  # noqa: PLC0415

    return frozenset(await labels_of_nodes(cluster, selection.labels) if selection.labels else selection.nodes)


async def addresses_of(cluster: Cluster, selection: DeviceSelection) -> tuple[DeviceAddress, ...]:
    """Return the devices. Raises ClusterError, and ServerRefusal if anything that is named is not there."""
    from webhook.commands.shared.snapshot import CLAIMS, PODS, SLICES, read_inventory  # noqa: PLC0415

    if selection.by_node:
        nodes = await nodes_of(cluster, selection)
        read = await read_inventory(cluster, (SLICES, CLAIMS, PODS), by_node=True)
        refuse_missing(read, selection, nodes)
        found = belonging(read, selection, nodes)
        if not found:
            claims = ", ".join(read.devices.claims_on(nodes))
            raise ServerRefusal(f"error: other nodes can use all that is in use there, by admin access: {claims}")
        return found
    read = await read_inventory(cluster, (SLICES,))
    if missing_addresses(read, selection):
        read = await read_inventory(cluster, (SLICES, CLAIMS))
    refuse_missing(read, selection)
    return selection.addresses


def belonging(
    read: ReadInventory, selection: DeviceSelection, nodes: Collection[str] = ()
) -> tuple[DeviceAddress, ...]:
    """Return the devices that are meant, of those that were read where nodes are named."""
    if not selection.by_node:
        return selection.addresses
    drivers = {each.driver for each in selection.addresses}
    return tuple(each for each in read.devices.on(nodes) if not drivers or each.driver in drivers)


# --- names that match nothing -------------------------------------------------------------------


def refuse_missing(read: ReadInventory, selection: DeviceSelection, nodes: Collection[str] = ()) -> None:
    """Raise ServerRefusal if a device, node or driver that is named is not there, or is of other nodes as well."""
    found, devices = belonging(read, selection, nodes), read.devices
    if not selection.by_node:
        texts = missing_addresses(read, selection)
    else:
        named = {each: {each} for each in selection.nodes} or {f"with labels {selection.labels}": {*nodes}}
        missing = ", ".join(bare(devices, named))
        alone = "" if all(devices.reach.values()) else " alone"  # there are devices that all nodes can use
        texts = [f"error: no driver publishes devices of nodes {missing}{alone}"] if missing else []
    if texts:
        raise ServerRefusal("\n".join(texts))
    drivers = {each.driver for each in found}
    if absent := [each.driver for each in selection.addresses if each.driver not in drivers]:
        raise ServerRefusal(
            f"error: {', '.join(absent)} has no device there that other nodes cannot use, and none in use"
        )
    if selection.by_node and not found and not devices.claims_on(nodes):
        pools = {f"{each.driver}/{each.pool}" for each, reach in devices.reach.items() if not reach.isdisjoint(nodes)}
        where = ", ".join(sorted(pools))
        raise ServerRefusal(f"error: other nodes can use all devices there, and no allocation there holds one: {where}")


def bare(devices: NodeDevices, named: Mapping[str, Collection[str]]) -> list[str]:
    """Return the names of nodes where no device can be used and no allocation holds one."""
    known = frozenset[str]().union(*devices.reach.values())
    return [
        name
        for name, nodes in named.items()
        if known.isdisjoint(nodes) and not devices.on(nodes) and not devices.claims_on(nodes)
    ]


def missing_addresses(read: ReadInventory, selection: DeviceSelection) -> list[str]:
    """Return an error for each of the named devices that no newest slice shows and no allocation has."""
    from webhook.inventory.hardware import is_published  # noqa: PLC0415

    named = {each: DeviceNames.of(each.selector) for each in selection.addresses}
    return [
        f"error: no driver publishes {address}, and no allocation holds it"
        for address, names in named.items()
        if not is_published(read.inventory, names) and not read.inventory.usage.in_use(*names)
    ]
