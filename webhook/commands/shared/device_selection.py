"""Which devices a verb is about: those named, or those of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from webhook.commands.shared.server_errors import ServerRefusal
from webhook.commands.shared.taint_specs import split_words

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from webhook.cluster.client.rest import Cluster
    from webhook.commands.shared.addresses import DeviceAddress
    from webhook.config.command_line import CommandLine


class DeviceSelection(NamedTuple):
    """Devices by name; or all of these drivers, or of any, on the named nodes, or on those that a selector selects."""

    addresses: tuple[DeviceAddress, ...] = ()
    nodes: tuple[str, ...] = ()
    labels: str = ""

    @property
    def by_node(self) -> bool:
        """Whether slices have to be read to know the devices."""
        return bool(self.nodes or self.labels)


def add_nodes(parser: argparse.ArgumentParser, what: str) -> None:
    """`--node` and `--selector`; `what` says what is done with the devices of the nodes."""
    parser.add_argument(
        "--node",
        action="append",
        default=[],
        metavar="N",
        help=f"{what} all devices of this node, by the node of their slices; repeatable",
    )
    parser.add_argument(
        "-l",
        "--selector",
        default="",
        metavar="L",
        help=f"{what} all devices of the nodes with these labels, such as pool=a100,zone!=z1",
    )


def parse_selection(options: argparse.Namespace, parser: CommandLine) -> tuple[DeviceSelection, list[str]]:
    """The devices, and the words that are taints. Exits as argparse does if both or neither way is used."""
    try:
        addresses, taints = split_words(options.words)
    except ValueError as error:
        parser.error(str(error))
    selection = DeviceSelection(tuple(dict.fromkeys(addresses)), tuple(options.node), options.selector)
    if selection.nodes and selection.labels:
        parser.error("--node and --selector may not be given together")
    if selection.by_node and any(each.pool for each in addresses):
        parser.error("with --node or --selector only drivers can be named, whose devices on these nodes are meant")
    return selection, taints


async def addresses_of(cluster: Cluster, selection: DeviceSelection) -> tuple[DeviceAddress, ...]:
    """The devices. Raises ClusterError, and ServerRefusal if the nodes have none."""
    if not selection.by_node:
        return selection.addresses
    # Late: see commands/shared/main.py.
    from webhook.commands.shared.device_reading import (  # noqa: PLC0415
        SLICES,
        addresses_on,
        nodes_with_labels,
        read_inventory,
    )

    nodes = await nodes_with_labels(cluster, selection.labels) if selection.labels else frozenset(selection.nodes)
    inventory = (await read_inventory(cluster, (SLICES,))).inventory
    found = of_drivers(addresses_on(inventory, nodes), selection.addresses)
    if not found:
        which = f"with labels {selection.labels}" if selection.labels else ", ".join(selection.nodes)
        raise ServerRefusal(f"error: no driver publishes devices of nodes {which}")
    return found


def of_drivers(found: Iterable[DeviceAddress], drivers: tuple[DeviceAddress, ...]) -> tuple[DeviceAddress, ...]:
    """Those of the named drivers; all if none is named."""
    names = {each.driver for each in drivers}
    return tuple(each for each in found if not names or each.driver in names)
