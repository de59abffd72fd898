"""Rules that were allowed here a moment ago: until the watch shows them, the next reviews must reckon with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.state import Inventory

KEPT_SECONDS: Final = 30.0
"""A rule that has not come by then was refused by somebody else."""
_KEPT_MOST: Final = 10_000


class _Promise(NamedTuple):
    rule: DeviceTaintRule
    until: float


class Promises:
    """What this replica has let through. Others have their own; so many replicas, so many times the limit at worst."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` counts seconds and never goes back."""
        self._clock = clock
        self._kept: list[_Promise] = []

    def add(self, rule: DeviceTaintRule) -> None:
        """One more; a rule of the same name takes the place of what was promised of it before."""
        name = rule.meta.name
        self._kept = [each for each in self._kept if not name or each.rule.meta.name != name][-_KEPT_MOST:]
        self._kept.append(_Promise(rule, self._clock() + KEPT_SECONDS))

    def current(self, inventory: Inventory | None) -> tuple[DeviceTaintRule, ...]:
        """Those that the inventory does not show yet."""
        if not self._kept:
            return ()
        now = self._clock()
        self._kept = [
            each
            for each in self._kept
            if now < each.until and not (inventory is not None and _shown(each.rule, inventory))
        ]
        return tuple(each.rule for each in self._kept)


def _shown(rule: DeviceTaintRule, inventory: Inventory | None) -> bool:
    stored = None if inventory is None else inventory.rules.get(rule.meta.name)
    return (
        stored is not None
        and (stored.selector, stored.taint) == (rule.selector, rule.taint)
        and stored.effective_effect == rule.effective_effect
    )
