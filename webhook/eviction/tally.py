"""The number of pods evicted for a rule, and how many of them count against its ceiling. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.api.rules import counted_pods, evicted_pods

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule


class Tally:
    """Counts evicted pods of one rule since it was created.

    Fewer of them count against the ceiling if admission has judged the rule again, or if another rule with the same
    ceiling counts some of them; more, if the rule has taken over those of a rule that is gone. See `CeilingGroup`.
    """

    __slots__ = ("before", "counting", "evicted")

    def __init__(self, rule: DeviceTaintRule) -> None:
        self.before = evicted_pods(rule.conditions)
        """The count in the rule's condition when this process first saw the rule."""
        self.evicted = 0
        """Pods evicted since then."""
        # A change that no leader saw may have been a narrower selector, so it does not reset the count.
        self.counting = counted_pods(rule.conditions)
        """Pods that count against the ceiling."""

    @property
    def total(self) -> int:
        """All pods evicted for the rule."""
        return self.before + self.evicted

    def count(self, *, elsewhere: bool = False) -> None:
        """One more pod was evicted for the rule. `elsewhere`: another rule with the same ceiling counts it."""
        self.evicted += 1
        self.counting += not elsewhere
