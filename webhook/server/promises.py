"""What was allowed here a moment ago: the next reviews must reckon with it, though the inventory may not show it.

A rule is not seen until the watch brings it, and whom it evicted is not seen any more once they are gone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.inventory.impact import Impact

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.admission.decision import Promised
    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.state import Inventory

KEPT_SECONDS: Final = 30.0
"""A rule that has not come by then was refused by somebody else."""
_KEPT_MOST: Final = 10_000
_VICTIMS_MOST: Final = 200_000
"""Pods to remember in all, about 30 MB; with so many no limit is left to be kept."""


class _Promise(NamedTuple):
    rule: DeviceTaintRule
    until: float


class _Hit(NamedTuple):
    at: float
    victims: Impact
    pods: int


class Promises:
    """What this replica has let through. Others have their own; so many replicas, so many times the limit at worst."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` counts seconds and never goes back."""
        self._clock = clock
        self._kept: list[_Promise] = []
        self._hits: deque[_Hit] = deque(maxlen=_KEPT_MOST)
        self._pods = 0
        self._victims: tuple[Impact, ...] | None = ()

    def add(self, promised: Promised) -> None:
        """One more; a rule of the same name takes the place of what was promised of it before."""
        now, rule = self._clock(), promised.rule
        name = rule.meta.name
        self._kept = [each for each in self._kept if not name or each.rule.meta.name != name][-_KEPT_MOST + 1 :]
        self._kept.append(_Promise(rule, now + KEPT_SECONDS))
        victims = Impact(waves=promised.impact.waves, namespaces=promised.impact.namespaces)
        if victims.waves:
            self._remember(_Hit(now, victims, len(victims.pods)))

    def _remember(self, hit: _Hit) -> None:
        while self._hits and (len(self._hits) == _KEPT_MOST or self._pods + hit.pods > _VICTIMS_MOST):
            self._forget()
        self._hits.append(hit)
        self._pods += hit.pods
        self._victims = None

    def _forget(self) -> None:
        self._pods -= self._hits.popleft().pods
        self._victims = None

    def current(self, inventory: Inventory | None) -> tuple[DeviceTaintRule, ...]:
        """The rules that the inventory does not show yet."""
        if not self._kept:
            return ()
        now = self._clock()
        self._kept = [
            each
            for each in self._kept
            if now < each.until and not (inventory is not None and _shown(each.rule, inventory))
        ]
        return tuple(each.rule for each in self._kept)

    def victims(self, seconds: float) -> tuple[Impact, ...]:
        """Whom all rules of so many last seconds hit, as it was when each was allowed."""
        since = self._clock() - seconds
        while self._hits and self._hits[0].at < since:
            self._forget()
        if self._victims is None:
            self._victims = tuple(hit.victims for hit in self._hits)
        return self._victims


def _shown(rule: DeviceTaintRule, inventory: Inventory) -> bool:
    stored = inventory.rules.get(rule.meta.name)
    return (
        stored is not None
        and (stored.selector, stored.taint) == (rule.selector, rule.taint)
        and stored.effective_effect == rule.effective_effect
    )
