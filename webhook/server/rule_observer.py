"""Rules that the watch shows to begin: their impact is counted before their pods are gone.

The replica that admitted a rule knows its impact from the review; the other replicas learn it here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.admission.recent_impact import begins_to_act, victims_of
from webhook.api.rules import DeviceTaintRule
from webhook.inventory.fates import DeviceNames
from webhook.policy.model import InTreeEvictor

if TYPE_CHECKING:
    from webhook.inventory.state import Inventory, InventoryObject
    from webhook.server.review_state import ReviewState


class RuleObserver:
    """Adds rules from the watch to the assumed rules of the window.

    Rules in the first lists are not new: for those, the times of their taints say whether they are in the window. A
    later list counts like a watch, for what it changes.
    """

    def __init__(self, state: ReviewState, inventory: Inventory) -> None:
        """`inventory` must have applied each change before it is observed."""
        self._state = state
        self._inventory = inventory
        self._followed = False

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """One object has changed."""
        if not isinstance(new, DeviceTaintRule) or not self._follows():
            return
        before, assumed = old if isinstance(old, DeviceTaintRule) else None, self._state.assumed_rules
        if assumed.stored(new) or not begins_to_act(new, before):
            return
        in_tree = self._state.policies.active.policy.in_tree_evictor is InTreeEvictor.ACTIVE
        names = DeviceNames.of(new.selector, self._inventory.servers)
        assumed.began(new, names, victims_of(new, self._inventory, in_tree=in_tree))

    def _follows(self) -> bool:
        """Whether the inventory was complete once."""
        if not self._followed:
            sight = self._state.sight
            self._followed = sight is not None and sight().inventory is not None
        return self._followed
