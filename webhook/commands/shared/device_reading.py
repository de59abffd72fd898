"""Slices, rules, claims and pods of a cluster as an inventory, with what they say of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.cluster.cache.server_version import read_facts
from webhook.cluster.client.errors import NotFound, Refused, Unavailable
from webhook.cluster.client.list_pages import decoded, list_pages, listed
from webhook.cluster.client.rest import path_of
from webhook.commands.shared.cluster_reading import CLAIMS, PODS, RULES, place_of
from webhook.commands.shared.node_devices import NodeDevices, NodePlacement
from webhook.files.dump import held_in, labels_of
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.cluster.client.rest import Cluster
    from webhook.commands.shared.cluster_reading import Resource
    from webhook.inventory.state import InventoryObject


_LACKING: Final = {
    RULES: "only taints in slices are known",
    CLAIMS: "it is unknown which pods use a device",
    PODS: "it is unknown which nodes some devices are used on",
}
"""What is unknown without a collection that is not needed."""


class ReadInventory(NamedTuple):
    """What was read; `notes` say what could not be, why, and what is unknown for it."""

    inventory: Inventory
    devices: NodeDevices
    notes: tuple[str, ...] = ()


async def read_inventory(
    cluster: Cluster,
    needed: Sequence[Resource],
    wished: Sequence[Resource] = (),
    *,
    by_node: bool = False,
) -> ReadInventory:
    """All objects of these collections. Raises ClusterError, unless one is wished only.

    `by_node`: it will be asked what belongs to a node, for which the labels of nodes may have to be read.
    """
    inventory, placement, notes = Inventory(), NodePlacement(), []
    for collection in (*needed, *wished):
        try:
            found = await _objects(cluster, collection, placement)
        except (Refused, NotFound) as error:
            if collection in needed:
                raise
            why = f"no permission to read {collection.name}, so {_LACKING[collection]}: {error}"
            notes.append(why if isinstance(error, Refused) else f"{error}, so {_LACKING[collection]}")
            continue
        for each in found:
            inventory.apply(None, each)
    inventory.servers = await read_facts(cluster)
    if by_node and placement.needs_labels:
        placement.labels = await labels_of_nodes(cluster)
    return ReadInventory(inventory, NodeDevices(inventory, placement), tuple(notes))


async def _objects(cluster: Cluster, collection: Resource, placement: NodePlacement) -> list[InventoryObject]:
    place = await place_of(cluster, collection)
    if place is None:
        raise collection.not_served

    def kept(item: dict[str, Any]) -> InventoryObject:
        value, errors = held_in(item)
        if errors:
            raise Unavailable(f"GET {place.path}: {item['metadata']['name']} cannot be read: {errors[0]}")
        assert value is not None, "a kind that inventories hold"
        placement.add(item)
        return value

    return await listed(cluster, *place, collection.kind, kept)


async def labels_of_nodes(cluster: Cluster, selector: str = "") -> dict[str, dict[str, str]]:
    """The labels of all nodes, or of those that a label selector selects; the server reads it. Raises ClusterError."""
    path = path_of("", "v1", "nodes")
    found: dict[str, dict[str, str]] = {}
    async for page in list_pages(cluster, path, selector={"labelSelector": selector} if selector else {}):
        nodes = [decoded(item, path) for item in page.items or ()]
        found |= {each["metadata"]["name"]: labels_of(each) for each in nodes}
    return found
