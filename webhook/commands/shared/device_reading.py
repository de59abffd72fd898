"""Slices, rules, claims and pods of a cluster as an inventory, with what they say of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.api.meta import GROUP, RULE_VERSIONS, SERVED_VERSIONS
from webhook.cluster.cache.discovery import read_facts, served_version
from webhook.cluster.client.errors import NotFound, Refused, Unavailable
from webhook.cluster.client.list_pages import decoded, list_pages, listed
from webhook.cluster.client.rest import path_of
from webhook.commands.shared.node_devices import NodeDevices, NodePlacement
from webhook.files.dump import held_in, labels_of
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from collections.abc import Collection

    from webhook.cluster.client.rest import Cluster
    from webhook.inventory.state import InventoryObject


class ReadResource(NamedTuple):
    """A collection. `lacking`: what is unknown without it, where it is not needed."""

    name: str
    kind: str
    versions: tuple[str, ...]
    lacking: str = ""
    group: str = GROUP


SLICES: Final = ReadResource("resourceslices", "ResourceSlice", SERVED_VERSIONS)
RULES: Final = ReadResource("devicetaintrules", "DeviceTaintRule", RULE_VERSIONS, "only taints in slices are known")
CLAIMS: Final = ReadResource(
    "resourceclaims", "ResourceClaim", SERVED_VERSIONS, "it is unknown which pods use a device"
)
PODS: Final = ReadResource("pods", "Pod", ("v1",), "it is unknown which nodes some devices are used on", "")


class ReadInventory(NamedTuple):
    """What was read; `notes` say what could not be, why, and what is unknown for it."""

    inventory: Inventory
    devices: NodeDevices
    notes: tuple[str, ...] = ()


async def read_inventory(
    cluster: Cluster,
    needed: Collection[ReadResource],
    wished: Collection[ReadResource] = (),
    *,
    by_node: bool = False,
) -> ReadInventory:
    """All objects of these collections. Raises ClusterError, unless one is wished only.

    `by_node`: it will be asked what belongs to a node, for which the labels of nodes may have to be read.
    """
    inventory, placement, notes = Inventory(), NodePlacement(), []
    for resource in (*needed, *wished):
        try:
            found = await _objects(cluster, resource, placement)
        except (Refused, NotFound) as error:
            if resource in needed:
                raise
            why = f"no permission to read {resource.name}, so {resource.lacking}: {error}"
            notes.append(why if isinstance(error, Refused) else f"{error}, so {resource.lacking}")
            continue
        for each in found:
            inventory.apply(None, each)
    inventory.servers = await read_facts(cluster)
    if by_node and placement.needs_labels:
        placement.labels = await labels_of_nodes(cluster)
    return ReadInventory(inventory, NodeDevices(inventory, placement), tuple(notes))


async def _objects(cluster: Cluster, resource: ReadResource, placement: NodePlacement) -> list[InventoryObject]:
    version: str | None = resource.versions[0]
    if resource.group:
        version = await served_version(cluster, resource.group, resource.versions, resource.name)
    if version is None:
        raise NotFound(f"{resource.name}.{GROUP} is not served in {', '.join(resource.versions)}", code=404)
    path = path_of(resource.group, version, resource.name)

    def kept(item: dict[str, Any]) -> InventoryObject:
        value, errors = held_in(item)
        if errors:
            raise Unavailable(f"GET {path}: {item['metadata']['name']} cannot be read: {errors[0]}")
        assert value is not None, "a kind that inventories hold"
        placement.add(item)
        return value

    return await listed(cluster, path, f"{resource.group}/{version}".lstrip("/"), resource.kind, kept)


async def labels_of_nodes(cluster: Cluster, selector: str = "") -> dict[str, dict[str, str]]:
    """The labels of all nodes, or of those that a label selector selects; the server reads it. Raises ClusterError."""
    path = path_of("", "v1", "nodes")
    found: dict[str, dict[str, str]] = {}
    async for page in list_pages(cluster, path, selector={"labelSelector": selector} if selector else {}):
        nodes = [decoded(item, path) for item in page.items or ()]
        found |= {each["metadata"]["name"]: labels_of(each) for each in nodes}
    return found
