"""Slices, rules, claims and pods of a cluster as an inventory, with what they say of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.budgets import DisruptionBudget
from webhook.cluster.client.errors import NotFound, Refused
from webhook.cluster.client.list_pages import decoded, list_pages
from webhook.cluster.client.rest import path_of
from webhook.commands.shared.node_devices import NodeDevices, Placement
from webhook.commands.status.from_cluster import RESOURCES, objects_of
from webhook.commands.status.objects import HeldNamespace
from webhook.files.dump import labels_of
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from collections.abc import Collection

    from webhook.cluster.client.rest import Cluster
    from webhook.commands.status.from_cluster import StatusResource

_RULES, SLICES, CLAIMS, _PODS = RESOURCES[:4]
RULES: Final = _RULES._replace(lacking="only taints in slices are known")
PODS: Final = _PODS._replace(lacking="it is unknown which nodes some devices are used on")


class ReadInventory(NamedTuple):
    """What was read; `notes` say what could not be, why, and what is unknown for it."""

    inventory: Inventory
    devices: NodeDevices
    notes: tuple[str, ...] = ()


async def read_inventory(
    cluster: Cluster,
    needed: Collection[StatusResource],
    wished: Collection[StatusResource] = (),
    *,
    by_node: bool = False,
) -> ReadInventory:
    """All objects of these collections. Raises ClusterError, unless one is wished only.

    `by_node`: it will be asked what belongs to a node, for which the labels of nodes may have to be read.
    """
    inventory, placement, notes = Inventory(), Placement(), []
    for resource in (*needed, *wished):
        try:
            found = await objects_of(cluster, resource, see=placement.add)
        except (Refused, NotFound) as error:
            if resource in needed:
                raise
            why = f"no permission to read {resource.name}, so {resource.lacking}: {error}"
            notes.append(why if isinstance(error, Refused) else f"{error}, so {resource.lacking}")
            continue
        for each in found or ():
            assert not isinstance(each, HeldNamespace | DisruptionBudget), "a kind that inventories hold"
            inventory.apply(None, each)
    if by_node and placement.needs_labels:
        placement.labels = await labels_of_nodes(cluster)
    return ReadInventory(inventory, NodeDevices(inventory, placement), tuple(notes))


async def labels_of_nodes(cluster: Cluster, selector: str = "") -> dict[str, dict[str, str]]:
    """The labels of all nodes, or of those that a label selector selects; the server reads it. Raises ClusterError."""
    path = path_of("", "v1", "nodes")
    found: dict[str, dict[str, str]] = {}
    async for page in list_pages(cluster, path, selector={"labelSelector": selector} if selector else {}):
        nodes = [decoded(item, path) for item in page.items or ()]
        found |= {each["metadata"]["name"]: labels_of(each) for each in nodes}
    return found
