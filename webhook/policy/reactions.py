"""What a reaction of the policy does to a device, and which rules can come of reactions at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from webhook.api.rules import EVICT, DeviceSelector, DeviceTaintRule
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.inventory.rule_delta import EFFECT_RANK
from webhook.inventory.targets import DeviceId, number_of
from webhook.policy.model import Reaction

REACTION_KEY: Final = "devicetaint.io/degraded"
"""The key of the taint of every reaction. It has no value: the reasons change, and tolerations should not."""
_DIGEST_BYTES: Final = 8


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
    address, level = _degraded_device(rule), level_of_rule(rule)
    return address is not None and any(each.driver == address.driver and level_of(each) >= level for each in reactions)


def reaction_rule_name(address: DeviceId) -> str:
    """The name of the rule that a device has from reactions, or the first one: see `numbered`."""
    digest = hashlib.blake2b("\n".join(address).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"reaction-{address.device}-{digest}"


def written_by_reaction(rule: DeviceTaintRule) -> tuple[DeviceId, int] | None:
    """The device of a rule that a reaction would write, and the number of its name; None for any other rule.

    Name, taint and selector decide: what else a rule says of itself, its author may have made up.
    """
    address = _degraded_device(rule)
    if address is None or rule.taint.effect not in EFFECT_RANK:
        return None
    number = number_of(rule.meta.name, reaction_rule_name(address))
    return (address, number) if number else None


def _degraded_device(rule: DeviceTaintRule) -> DeviceId | None:
    """The one device that a rule selects, by all its names, if its taint has the key of reactions."""
    selector = rule.selector or DeviceSelector()
    if not (selector.driver and selector.pool and selector.device):
        return None
    address = DeviceId(selector.driver, selector.pool, selector.device)
    is_one = selector == DeviceSelector(*address) and (rule.taint.key, rule.taint.value) == (REACTION_KEY, "")
    return address if is_one else None
