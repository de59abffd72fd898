"""Pods that `serve` follows with --watch-pods, as the profiles of the policy in use see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.eviction.profiled_pods import ProfiledPods
from webhook.inventory.gang_impact import KnownPods
from webhook.inventory.gangs import GangSizes

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.inventory.state import Inventory, InventoryObject
    from webhook.policy.model import Policy
    from webhook.policy.ports import NamespaceFacts


class FollowedPods:
    """What is known of the pods of an inventory, under one policy at a time."""

    def __init__(self, inventory: Inventory, facts_of: Callable[[str], NamespaceFacts | None]) -> None:
        """`facts_of`: the labels of a namespace by its name, None if they are not known."""
        self._inventory = inventory
        self._facts_of = facts_of
        self._sizes = GangSizes(inventory)
        self._policy: Policy | None = None
        self._known: KnownPods | None = None

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """One object has changed, and the inventory has applied it."""
        self._sizes.observe(old, new)

    def under(self, policy: Policy) -> KnownPods:
        """What the profiles of this policy say of the pods. Compiled once for each policy."""
        if self._known is None or policy is not self._policy:
            pods = ProfiledPods(self._inventory, policy.eviction, self._facts_of)
            labels = [label for profile in policy.eviction for label in profile.gang_labels]
            self._known = KnownPods(pods.gang_of, pods.exemption_of, self._sizes.by_labels(labels))
            self._policy = policy
        return self._known
