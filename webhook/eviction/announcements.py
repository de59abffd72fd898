"""When the eviction that a rule asks for was announced in its condition; before that, no pod is evicted for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.api.rules import condition_of
from webhook.eviction.conditions import EVICTION, ConditionReason

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from webhook.api.rules import Condition, DeviceTaintRule

_ANNOUNCING: Final = frozenset(
    each.value
    for each in (ConditionReason.COMPLETED, ConditionReason.HELD_BY_POD_GROUP, ConditionReason.RETURNS_TO_DEVICE)
)
"""With status False."""


def announced_at(conditions: Iterable[Condition], generation: int) -> datetime | None:
    """When the condition announced an eviction for this generation of the rule; None if it does not.

    Status True announces: pods will be evicted. So do Completed, and the reasons that pods are left alone though they
    are due. Every other reason of status False says that no pod is evicted.
    """
    known = condition_of(conditions, EVICTION)
    if known is None or known.observed_generation != generation:
        return None
    announces = known.status == "True" or known.reason in _ANNOUNCING
    return known.last_transition_time if announces else None


class Announcements:
    """Remembers announcements over times in which there is nothing to evict, and no pod has to be announced again.

    Only this process's memory does that: after a restart a rule with reason NothingToDo is announced again, because the
    condition does not show whether `/evict` was removed and set again.
    """

    def __init__(self, *, acts: bool) -> None:
        """`acts`: whether pods are evicted at all; if not, any condition counts."""
        self._acts = acts
        self._known: dict[str, tuple[int, datetime]] = {}
        """Generation and time, by the uid of the rule."""

    def announced_at(self, rule: DeviceTaintRule) -> datetime | None:
        """When the eviction was announced for this generation of the rule; None: not yet."""
        known = condition_of(rule.conditions, EVICTION)
        current = known is not None and known.observed_generation == rule.generation
        if not self._acts:
            return known.last_transition_time if known is not None and current else None
        uid = rule.meta.uid
        time = announced_at(rule.conditions, rule.generation)
        if time is not None:
            self._known[uid] = rule.generation, time
            return time
        silent = known is None or not current or known.reason == ConditionReason.NOTHING_TO_DO.value
        generation, before = self._known.get(uid, (rule.generation, None))
        if silent and generation == rule.generation:
            return before
        self.forget(uid)
        return None

    def forget(self, rule_uid: str) -> None:
        """The rule is gone, or no longer asks for eviction."""
        self._known.pop(rule_uid, None)
