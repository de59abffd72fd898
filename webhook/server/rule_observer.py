"""Rules as the watch shows them to begin: what they hit is remembered before their pods are gone.

The replica that admitted a rule knows it from the review; this is how the others come to know it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.admission.recent_impact import begins_to_act, victims_of
from webhook.api.rules import DeviceTaintRule
from webhook.policy.model import InTreeEvictor

if TYPE_CHECKING:
    from webhook.inventory.state import Held, Inventory
    from webhook.server.review_state import ReviewState


class RuleObserver:
    """Feeds the memory of the window from the watch on rules.

    What the first lists bring is not new: a replica that has just started knows what the inventory shows by the times
    of its taints. A later list tells only what changed, like a watch.
    """

    def __init__(self, state: ReviewState, inventory: Inventory) -> None:
        """`inventory` has each change applied when it is observed."""
        self._state = state
        self._inventory = inventory
        self._followed = False

    def observe(self, old: Held | None, new: Held | None) -> None:
        """One object has changed."""
        if not isinstance(new, DeviceTaintRule) or not self._follows():
            return
        before = old if isinstance(old, DeviceTaintRule) else None
        if not begins_to_act(new, before) or self._state.assumed_rules.knows(new):
            return
        in_tree = self._state.policies.active.policy.in_tree_evictor is InTreeEvictor.ACTIVE
        self._state.assumed_rules.began(new, victims_of(new, self._inventory, in_tree=in_tree))

    def _follows(self) -> bool:
        """Whether everything was read once."""
        if not self._followed:
            sight = self._state.sight
            self._followed = sight is not None and sight().inventory is not None
        return self._followed
