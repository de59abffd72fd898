"""What a reaction of the policy does to a device, and which rules can come of reactions at all."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from webhook.api.rules import EVICT, DeviceSelector
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.api.rules import DeviceTaintRule
    from webhook.policy.model import Reaction

REACTION_KEY: Final = "devicetaint.io/degraded"
"""The key of the taint of every reaction. It has no value: the reasons change, and tolerations should not."""


class ReactionLevel(IntEnum):
    """What a reaction does to a device, from mild to hard."""

    CLOSE = 1
    """NoSchedule: no new pods."""
    EMPTY = 2
    """NoSchedule, and our worker evicts the pods."""
    EXECUTE = 3
    """NoExecute."""

    @classmethod
    def of(cls, effect: str, *, evict: bool) -> ReactionLevel:
        """The level of a rule with this effect, and with `/evict` or not."""
        if effect == NO_EXECUTE:
            return cls.EXECUTE
        return cls.EMPTY if evict else cls.CLOSE

    @property
    def effect(self) -> str:
        """The effect of the taint."""
        return NO_EXECUTE if self is ReactionLevel.EXECUTE else NO_SCHEDULE


def level_of(reaction: Reaction) -> ReactionLevel:
    """What the policy says that a reaction does."""
    return ReactionLevel.of(reaction.effect, evict=reaction.evict)


def level_of_rule(rule: DeviceTaintRule) -> ReactionLevel:
    """What a rule does, taken for one of a reaction."""
    return ReactionLevel.of(rule.taint.effect, evict=rule.meta.annotations.get(EVICT) == "true")


def may_come_of_reactions(rule: DeviceTaintRule, reactions: Iterable[Reaction]) -> bool:
    """Whether the rule is one that these reactions may ask for: the taint of reactions on one device, by all its names.

    One of the reactions is for the driver of that device, and does at least as much. Whether the device has a signal is
    not asked.
    """
    selector = rule.selector or DeviceSelector()
    names = DeviceSelector(selector.driver, selector.pool, selector.device)
    if selector != names or not (names.driver and names.pool and names.device):
        return False
    if (rule.taint.key, rule.taint.value) != (REACTION_KEY, ""):
        return False
    level = level_of_rule(rule)
    return any(each.driver == names.driver and level_of(each) >= level for each in reactions)
