"""Rules that have one ceiling, because admission has judged them as one impact. Pure.

These are the rules of a ResourceSlicePatch, or a rule with those that `/scope: hardware` adds to it; any other rule is
a group of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.inventory.rule_delta import only_less

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule
    from webhook.eviction.tally import Tally


class CeilingGroup:
    """The counts of these rules, by uid, and why they are stopped.

    Pods evicted before admission last judged the impact do not count against the limits of the policy. No confirmation
    restarts the count: it says itself how many pods were evicted before. Admission does not judge an update after which
    less can be hit, so that does not restart it either, nor does a change of the rules that a patch or another rule is
    expanded into.
    """

    def __init__(self) -> None:
        self.tallies: dict[str, Tally] = {}
        self.stopped = ""
        """Why no pod is evicted; empty if pods are."""
        self.held = set[str]()
        """Rules that are suspended, because the group is stopped."""
        self._left = 0
        """Pods counted for rules that are gone, while there is no other rule to take them over."""

    @property
    def counting(self) -> int:
        """Pods evicted for these rules that count against the ceiling, each once."""
        return self._left + sum([each.counting for each in self.tallies.values()])

    def add(self, rule: str, tally: Tally) -> None:
        """One more rule. The first one takes over what was counted for rules that are gone."""
        self.tallies[rule] = tally
        tally.counting += self._left
        self._left = 0

    def remove(self, rule: str) -> str:
        """A rule that is gone, or counts elsewhere. Returns the rule that has taken over its count, or an empty text.

        Otherwise a patch would start from zero whenever its rules are replaced.
        """
        self.held.discard(rule)
        return self.take_over(self.tallies.pop(rule).counting)

    def take_over(self, counting: int) -> str:
        """Counts pods that were evicted for a deleted rule. Returns the rule that counts them, or an empty text."""
        # The newest rule: those that replace others come first, and the others may all be about to go.
        heir = next(reversed(self.tallies), "") if counting else ""
        if heir:
            self.tallies[heir].counting += counting
        else:
            self._left += counting
        return heir

    def restart(self) -> None:
        """Admission has judged the impact again, by the limits of the policy."""
        for tally in self.tallies.values():
            tally.counting = 0
        self._left = 0


def rule_rejudged(old: DeviceTaintRule | None, new: DeviceTaintRule) -> bool:
    """Whether admission has judged an update of a rule, its confirmation aside; `old`: None if it was not known."""
    return old is not None and judged_of(old) != judged_of(new) and not only_less(new, old)


def judged_of(rule: DeviceTaintRule) -> tuple[object, ...]:
    """The fields whose change admission judges, except the confirmation. A later timeAdded passes, so not that one."""
    return rule.selector, rule.taint.key, rule.taint.value, rule.effective_effect
