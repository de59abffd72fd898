"""How many pods have been evicted for a rule, and how many of them count against its ceiling. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.api.rules import CONFIRM_IMPACT
from webhook.eviction.conditions import evicted_pods

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule


class Tally:
    """Of one rule, since it was created.

    What was evicted before admission last judged the rule does not count: another selector or taint, or another code.
    A code counts from when it is proved, and one that comes back does not allow the same number of pods again. That a
    code is taken away is not judged, and one that is not proved may never have been: neither changes anything.
    """

    __slots__ = ("_code", "_discounted", "_spent", "before", "evicted")

    def __init__(self, rule: DeviceTaintRule) -> None:
        self.before = evicted_pods(rule.conditions)
        """What the rule's condition said when this process first saw the rule."""
        self.evicted = 0
        """Since then."""
        self._discounted = 0
        """How many of all do not count any more."""
        # Whether it was proved or not: with a key that comes late nothing has changed since the last leader.
        self._code = code_of(rule)
        self._spent: dict[str, int] = {}

    @property
    def total(self) -> int:
        """All of them."""
        return self.before + self.evicted

    @property
    def counting(self) -> int:
        """Those that count."""
        return self.total - self._discounted

    def follow(self, old: DeviceTaintRule | None, rule: DeviceTaintRule, proved: str) -> None:
        """The rule is as it is now, and was `old` if that is known. `proved`: its code, or empty while not proved."""
        rejudged = old is not None and _judged(old) != _judged(rule)
        if not rejudged and proved in ("", self._code):
            return
        if self._code:
            self._spent[self._code] = self.counting
        self._discounted = self.total - self._spent.get(proved, 0)
        self._code = proved


def code_of(rule: DeviceTaintRule) -> str:
    """The code that the rule carries, proved or not; empty for none."""
    return rule.meta.annotations.get(CONFIRM_IMPACT, "")


def _judged(rule: DeviceTaintRule) -> tuple[object, ...]:
    """What admission measures when it changes, codes aside. A later timeAdded it lets pass, so that is not among it."""
    return rule.selector, rule.taint.key, rule.taint.value, rule.effective_effect
