"""The number of pods evicted for a rule, and how many of them count against its ceiling. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.api.rules import CONFIRM_IMPACT
from webhook.eviction.conditions import counted_pods, evicted_pods
from webhook.inventory.rule_delta import only_less

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule


class Tally:
    """Counts evicted pods of one rule since it was created.

    Pods evicted before admission last judged the rule do not count against the ceiling; admission judges a changed
    selector, taint or code. A code takes effect once it is proved, and a code that returns does not allow the same
    number of pods again. Admission does not judge the removal of a code or an update after which the rule can only hit
    less, and may not have judged a code that is not proved, so none of them resets the count.
    """

    __slots__ = ("_code", "_discounted", "_spent", "before", "evicted")

    def __init__(self, rule: DeviceTaintRule) -> None:
        self.before = evicted_pods(rule.conditions)
        """The count in the rule's condition when this process first saw the rule."""
        self.evicted = 0
        """Pods evicted since then."""
        # A change that no leader saw may have been a narrower selector, so it does not reset the count either.
        counted = counted_pods(rule.conditions)
        self._discounted = 0 if counted is None else max(self.before - counted, 0)
        """Pods of `total` that do not count against the ceiling."""
        # Proved or not: if the key is read late, nothing has changed since the last leader.
        self._code = code_of(rule)
        self._spent: dict[str, int] = {}

    @property
    def total(self) -> int:
        """All pods evicted for the rule."""
        return self.before + self.evicted

    @property
    def counting(self) -> int:
        """Pods that count against the ceiling."""
        return self.total - self._discounted

    def follow(self, old: DeviceTaintRule | None, rule: DeviceTaintRule, proved: str) -> None:
        """Follows a change of the rule, from `old` if that is known. `proved`: its code, or empty while not proved."""
        rejudged = old is not None and _judged(old) != _judged(rule) and not only_less(rule, old)
        if not rejudged and proved in ("", self._code):
            return
        if self._code:
            self._spent[self._code] = self.counting
        self._discounted = self.total - self._spent.get(proved, 0)
        self._code = proved


def code_of(rule: DeviceTaintRule) -> str:
    """The rule's confirmation code, proved or not; empty if it has none."""
    return rule.meta.annotations.get(CONFIRM_IMPACT, "")


def _judged(rule: DeviceTaintRule) -> tuple[object, ...]:
    """The fields whose change admission judges, except codes. It lets a later timeAdded pass, so not that one."""
    return rule.selector, rule.taint.key, rule.taint.value, rule.effective_effect
