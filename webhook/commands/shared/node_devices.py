"""Which devices belong to which node: those that only it can use, and those that an allocation there holds.

An inventory keeps no more of nodes than `nodeName` of slices and pods. What devices and allocations say beside it is
read from the objects themselves (`NodePlacement`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from webhook.api.claims import ResourceClaim
from webhook.api.decode import Reader
from webhook.api.offers import term_selects
from webhook.commands.shared.words import DeviceAddress
from webhook.inventory.state import Inventory, key_of, uses

_NAME: Final = "metadata.name"
_NOWHERE: Final[frozenset[str]] = frozenset()


class NodePlacement:
    """The node selectors of devices and allocations, and which allocations have admin access."""

    def __init__(self) -> None:
        self.devices: dict[str, dict[str, Any]] = {}
        """By slice, then by device; None for a device that all nodes can use. Not of slices with `nodeName`."""
        self.claims: dict[str, Any] = {}
        """By `namespace/name`."""
        self.admin: dict[str, frozenset[DeviceAddress]] = {}
        """Likewise: the devices that a claim has by admin access."""
        self.labels: Mapping[str, Mapping[str, str]] = {}
        """Of nodes, if a selector needs them."""

    def add(self, item: Mapping[str, Any]) -> None:
        """Take what a slice or claim says; other kinds say nothing."""
        reader = Reader.of(item, [])
        meta, spec = reader.meta(), reader.child_or_empty("spec")
        if item["kind"] == "ResourceSlice" and not spec.optional_text("nodeName"):
            each_its_own = spec.boolean("perDeviceNodeSelection")
            self.devices[meta.name] = {
                device.text("name"): _selector((device.child("basic") or device) if each_its_own else spec)
                for device in spec.each("devices")
            }
        elif item["kind"] == "ResourceClaim":
            allocation = reader.child_or_empty("status").child_or_empty("allocation")
            results = allocation.child_or_empty("devices").each("results")
            self.claims[key_of(meta)] = allocation.raw.get("nodeSelector")
            self.admin[key_of(meta)] = frozenset(
                [
                    DeviceAddress(each.text("driver"), each.text("pool"), each.text("device"))
                    for each in results
                    if each.boolean("adminAccess")
                ]
            )

    @property
    def needs_labels(self) -> bool:
        """Whether a selector says anything but the names of nodes."""
        selectors = [*self.claims.values(), *[one for each in self.devices.values() for one in each.values()]]
        return any(term.get("matchExpressions") or not _names(term) for one in selectors for term in _terms(one))

    def nodes(self, selector: Any) -> frozenset[str]:
        """Return the nodes that a selector selects: any of its terms, in which all holds."""
        return frozenset(
            node
            for term in _terms(selector)
            for node in _names(term) or self.labels
            if term_selects(term, node, self.labels.get(node, {}))
        )


def _selector(owner: Reader) -> Any:
    name = owner.optional_text("nodeName")
    if not name:
        return owner.raw.get("nodeSelector")
    return {"nodeSelectorTerms": [{"matchFields": [{"key": _NAME, "operator": "In", "values": [name]}]}]}


def _terms(selector: Any) -> Collection[Mapping[str, Any]]:
    return (selector or {}).get("nodeSelectorTerms") or ()


def _names(term: Mapping[str, Any]) -> Collection[str]:
    """Return the nodes that a term names."""
    return next((each["values"] for each in term.get("matchFields") or () if each["operator"] == "In"), ())


class NodeDevices:
    """The answers, from what was read of a cluster."""

    def __init__(self, inventory: Inventory, placement: NodePlacement) -> None:
        self.inventory = inventory
        self.placement = placement

    @cached_property
    def reach(self) -> Mapping[DeviceAddress, frozenset[str]]:
        """The nodes that can use each published device; none for one that all nodes can."""
        found: dict[DeviceAddress, frozenset[str]] = {}
        for (driver, pool), value in self.inventory.pools.items():
            shared = {
                name: self.placement.nodes(selector)
                for each in value.newest
                for name, selector in self.placement.devices.get(each.meta.name, {}).items()
            }
            for node, names in value.by_node.items():
                for name in names:
                    found[DeviceAddress(driver, pool, name)] = frozenset([node]) if node else shared.get(name, _NOWHERE)
        return found

    @cached_property
    def held(self) -> Mapping[DeviceAddress, frozenset[str]]:
        """The nodes of each device that is allocated, as far as its allocations say so."""
        found: dict[DeviceAddress, frozenset[str]] = defaultdict(frozenset)
        for key, claim in self.inventory.claims.items():
            for address in allocated(claim):
                found[address] |= self._pods_nodes(key, claim) | self.placement.nodes(self.placement.claims.get(key))
        return found

    def node_of(self, device: DeviceAddress) -> str:
        """Return the only node that can use a device, or else uses it; empty if there is none."""
        for known in (self.reach.get(device, _NOWHERE), self.held.get(device, _NOWHERE)):
            if len(known) == 1:
                return next(iter(known))
        return ""

    def on(self, nodes: Collection[str]) -> tuple[DeviceAddress, ...]:
        """Return what belongs to the nodes, in order: whole pools, or single devices of pools that others have, too.

        A device that other nodes can use as well is theirs while an allocation there holds it, if not by admin access.
        """
        pools = {
            DeviceAddress(driver, pool)
            for (driver, pool), value in self.inventory.pools.items()
            if all(node in nodes for node in value.by_node)
        }
        devices = {address for address, reach in self.reach.items() if reach and reach.issubset(nodes)}
        for key in self.claims_on(nodes):
            for address in allocated(self.inventory.claims[key]):
                if address.pool in nodes and self.inventory.pools.get(address[:2]) is None:
                    pools.add(DeviceAddress(*address[:2]))  # its driver may come back, with the other devices
                elif address not in self.placement.admin.get(key, ()):
                    devices.add(address)
        return tuple(sorted(pools | {each for each in devices if DeviceAddress(*each[:2]) not in pools}))

    def claims_on(self, nodes: Collection[str]) -> list[str]:
        """Return the claims, by `namespace/name`, whose allocation or pods are on the nodes."""
        return [key for key, claim in self.inventory.claims.items() if self._is_on(key, claim, nodes)]

    def perhaps_on(self, nodes: Collection[str]) -> list[str]:
        """Return those that these nodes and others can use, where no pod says on which node they are."""
        return [
            key
            for key, claim in self.inventory.claims.items()
            if claim.allocation is not None
            and not self._pods_nodes(key, claim)
            and not self.placement.nodes(self.placement.claims.get(key)).isdisjoint(nodes)
        ]

    def _is_on(self, key: str, claim: ResourceClaim, nodes: Collection[str]) -> bool:
        if claim.allocation is None:
            return False
        selected = self.placement.nodes(self.placement.claims.get(key))
        return bool(selected and selected.issubset(nodes)) or not self._pods_nodes(key, claim).isdisjoint(nodes)

    def _pods_nodes(self, key: str, claim: ResourceClaim) -> frozenset[str]:
        names = {*self.inventory.pods_of(key), *[f"{claim.meta.namespace}/{each.name}" for each in claim.reserved_for]}
        pods = [self.inventory.pods.get(each) for each in names]
        return frozenset(
            each.node_name
            for each in pods
            if each is not None and each.node_name and uses(each, claim, generated=False)
        )


def allocated(claim: ResourceClaim) -> Iterator[DeviceAddress]:
    """Yield the devices of a claim."""
    return (DeviceAddress(each.driver, each.pool, each.device) for each in claim.allocation or ())
