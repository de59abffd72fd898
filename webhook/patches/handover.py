"""Devices that go from one patch to another, while the other patch lacks rules for them.

A rule may be refused or not be written, and a patch that needs too many rules gets none. Until that is over, rules
whose devices it wins stay where they are: else these would be open although two patches want them closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from webhook.inventory.patch_reach import may_meet
from webhook.inventory.patching import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from webhook.api.rules import DeviceSelector
    from webhook.patches.index import PatchIndex
    from webhook.patches.stored import RuleApply, StoredRule


class _Missing(NamedTuple):
    """A rule by what it would taint; its times change with each attempt."""

    key: str
    effect: str
    selector: DeviceSelector


class _Lacking(NamedTuple):
    patch: str
    missing: frozenset[_Missing] | None
    """None: all of them."""


class Handover:
    """Patches that lack rules, and the owners of rules that stay because of it; owners by uid."""

    def __init__(self, index: PatchIndex) -> None:
        self._index = index
        self._lacking: dict[str, _Lacking] = {}
        self._waiting: set[str] = set()

    def lacks(self, uid: str, patch: str, missing: Sequence[RuleApply] | None) -> list[str]:
        """Which rules a patch lacks from now on (None: all); returns the owners that need no longer wait for others."""
        known = self._lacking.pop(uid, None)
        if missing is None or missing:
            self._lacking[uid] = _Lacking(patch, None if missing is None else _named(missing))
        if known is None or known == self._lacking.get(uid):
            return []
        found, self._waiting = self._waiting, set()
        return sorted(found)

    def has_all(self, uid: str) -> list[str]:
        """An owner lacks nothing, or is gone; returns likewise."""
        return self.lacks(uid, "", ())

    def heir_of(self, uid: str, stored: StoredRule) -> str:
        """The patch that lacks a rule for devices of an owner's rule, by name; empty if there is none."""
        taint, selector = stored.rule.taint, stored.rule.selector
        origin = Origin("taint", taint.key, taint.effect)
        for other, (patch, missing) in self._lacking.items():
            if other == uid or selector is None:
                continue
            near = missing is None or any(
                (each.key, each.effect) == (taint.key, taint.effect) and may_meet(each.selector, selector)
                for each in missing
            )
            if near and self._index.wins_any(patch, origin, selector):
                self._waiting.add(uid)
                return patch
        return ""


def _named(rules: Iterable[RuleApply]) -> frozenset[_Missing]:
    return frozenset([_Missing(each.taint.key, each.taint.effect, each.selector) for each in rules])
