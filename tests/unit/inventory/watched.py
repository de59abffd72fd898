"""An inventory whose changes are followed by what has to be evicted."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.builders import NOW
from webhook.inventory.evictions import Evictions
from webhook.inventory.pools import Evictor
from webhook.inventory.state import Inventory
from webhook.inventory.targets import EvictionScope

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.evictions import Eviction
    from webhook.inventory.state import InventoryObject

OURS = EvictionScope(Evictor.OURS, asked=True)
LATER = NOW + timedelta(seconds=90)


def announced(_: DeviceTaintRule) -> datetime | None:
    return LATER


class Watched:
    """An inventory, and who has to go by it."""

    def __init__(self, *objects: InventoryObject, scope: EvictionScope = OURS) -> None:
        self.inventory = Inventory()
        self.evictions = Evictions(self.inventory, scope, announced)
        for each in objects:
            self.change(None, each)

    def change(self, old: InventoryObject | None, new: InventoryObject | None) -> set[str]:
        """The pods touched."""
        self.inventory.apply(old, new)
        return self.users(self.evictions.touched(old, new))

    def users(self, claims: Iterable[str]) -> set[str]:
        return {pod for claim in claims for pod in self.inventory.pods_of(claim)}

    def of(self, name: str = "pod") -> Eviction | None:
        return self.evictions.eviction_of(self.inventory.pods[f"ml/{name}"])

    def evicts_now(self, name: str) -> bool:
        """Whether a taint evicts the pod that does not wait for its pool."""
        found = self.of(name)
        return found is not None and not found.waits
