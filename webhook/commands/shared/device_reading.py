"""Slices, rules and claims of a cluster as an inventory, and which devices belong to which node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.meta import GROUP, RULE_VERSIONS, SERVED_VERSIONS
from webhook.cluster.cache.discovery import served_version
from webhook.cluster.cache.server_version import read_facts
from webhook.cluster.client.errors import NotFound, Refused, Unavailable
from webhook.cluster.client.list_pages import decoded, list_pages, listed
from webhook.cluster.client.rest import path_of
from webhook.commands.shared.addresses import DeviceAddress
from webhook.files.dump import held_in
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

    from webhook.cluster.client.rest import Cluster
    from webhook.inventory.state import InventoryObject


class ReadResource(NamedTuple):
    """A collection. `lacking`: what is unknown without it; empty if nothing works without it."""

    name: str
    kind: str
    versions: tuple[str, ...]
    lacking: str = ""


SLICES: Final = ReadResource("resourceslices", "ResourceSlice", SERVED_VERSIONS)
RULES: Final = ReadResource("devicetaintrules", "DeviceTaintRule", RULE_VERSIONS, "only taints in slices are known")
CLAIMS: Final = ReadResource(
    "resourceclaims", "ResourceClaim", SERVED_VERSIONS, "it is unknown which pods use a device"
)


class ReadInventory(NamedTuple):
    """What was read. `missing`: kinds that could not be; `notes` say why, and what is unknown for it."""

    inventory: Inventory
    missing: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


async def read_inventory(cluster: Cluster, resources: Collection[ReadResource]) -> ReadInventory:
    """All objects of these collections. Raises ClusterError if one is lacking without which nothing works."""
    inventory, missing, notes = Inventory(), set(), []
    for resource in resources:
        try:
            found = await _objects(cluster, resource)
        except Refused as error:
            if not resource.lacking:
                raise
            missing.add(resource.kind)
            notes.append(f"no permission to read {resource.name}, so {resource.lacking}: {error}")
            continue
        except NotFound as error:
            if not resource.lacking:
                raise
            missing.add(resource.kind)
            notes.append(f"{error}, so {resource.lacking}")
            continue
        for each in found:
            inventory.apply(None, each)
    inventory.servers = await read_facts(cluster)
    return ReadInventory(inventory, frozenset(missing), tuple(notes))


async def _objects(cluster: Cluster, resource: ReadResource) -> list[InventoryObject]:
    version = await served_version(cluster, GROUP, resource.versions, resource.name)
    if version is None:
        raise NotFound(f"{resource.name}.{GROUP} is not served in {', '.join(resource.versions)}", code=404)
    path = path_of(GROUP, version, resource.name)

    def kept(item: dict[str, Any]) -> InventoryObject:
        value, errors = held_in(item)
        if errors:
            raise Unavailable(f"GET {path}: {item['metadata']['name']} cannot be read: {errors[0]}")
        assert value is not None, "a kind that inventories hold"
        return value

    return await listed(cluster, path, f"{GROUP}/{version}", resource.kind, kept)


async def nodes_with_labels(cluster: Cluster, selector: str) -> frozenset[str]:
    """The names of the nodes that a label selector selects; the server reads it. Raises ClusterError."""
    query = {"labelSelector": selector}
    path = path_of("", "v1", "nodes")
    names: list[str] = []
    async for page in list_pages(cluster, path, selector=query):
        names += [decoded(item, path)["metadata"]["name"] for item in page.items or ()]
    return frozenset(names)


def node_of_devices(inventory: Inventory) -> dict[DeviceAddress, str]:
    """The node of each published device whose slice names one."""
    return {
        DeviceAddress(driver, pool, device): node
        for (driver, pool), found in inventory.pools.items()
        for node, devices in found.by_node.items()
        if node
        for device in devices
    }


def addresses_on(inventory: Inventory, nodes: Collection[str]) -> tuple[DeviceAddress, ...]:
    """What is published for these nodes, in order: whole pools, or single devices of a pool that others have, too."""
    return tuple(sorted(_addresses_on(inventory, nodes)))


def _addresses_on(inventory: Inventory, nodes: Collection[str]) -> Iterator[DeviceAddress]:
    for (driver, pool), found in inventory.pools.items():
        of_node = found.by_node
        if all(node in nodes for node in of_node):
            yield DeviceAddress(driver, pool)
        else:
            here = [name for node, names in of_node.items() if node in nodes for name in names]
            yield from [DeviceAddress(driver, pool, device) for device in here]
