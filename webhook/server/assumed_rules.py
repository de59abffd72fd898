"""Rules that began to act recently: later reviews must count them, although the inventory may not show them.

The inventory shows a rule only after the watch delivered it, and no longer shows the pods that it has evicted. The
scheduler's assume cache solves the same problem for pods that it has just bound.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from webhook.api.meta import ObjectMeta
from webhook.api.rules import RULE_ANNOTATIONS
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.extent import names_of
from webhook.inventory.impact import Impact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from webhook.admission.decision import AssumedPatch, AssumedRule
    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.fates import DeviceNames
    from webhook.inventory.state import Inventory

KEPT_SECONDS: Final = 30.0
"""A rule that the watch has not shown by then was refused by another webhook, or by the API server."""
_KEPT_MOST: Final = 10_000
_KEPT_OF_PATCH: Final = 1000
"""Rules of one patch; the patch controller writes none at all where there would be this number."""
_KEPT_CHARACTERS: Final = 16_000_000
"""Of these rules; the oldest are forgotten first."""
_VICTIMS_MOST: Final = 200_000
"""Pods to remember in all, about 30 MB; no limit of a policy is higher than that."""


class _Assumed(NamedTuple):
    rule: DeviceTaintRule
    until: float
    characters: int

    @classmethod
    def of(cls, rule: DeviceTaintRule, until: float) -> _Assumed:
        """With those annotations alone that say how it acts, each of which has a few characters."""
        said = {name: text[:64] for name, text in rule.meta.annotations.items() if name in RULE_ANNOTATIONS}
        kept = structs.replace(rule, meta=ObjectMeta(name=rule.meta.name, annotations=said))
        return cls(kept, until, len(str(kept)))


class _Hit(NamedTuple):
    at: float
    victims: Impact
    pods: int
    at_once: bool
    """Whether the in-tree controller carries the rule out."""


class AssumedRules:
    """Rules that this replica allowed, and rules that its watch showed to begin, whichever replica allowed them.

    Rules that several replicas allow before any of them sees the others' can exceed a limit together: each replica
    applies the limit to what it knows.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` counts seconds and never goes back."""
        self._clock = clock
        self._kept: list[_Assumed] = []
        self._hits: deque[_Hit] = deque(maxlen=_KEPT_MOST)
        self._pods = 0
        self._victims: tuple[Impact, ...] | None = ()
        self._victims_at_once: tuple[Impact, ...] = ()
        self._closing: OrderedDict[DeviceNames, float] = OrderedDict()
        """Devices, and when a rule last began to act on them; the oldest first."""
        self._closed: tuple[DeviceNames, ...] | None = ()

    def add(self, assumed: AssumedRule | AssumedPatch) -> None:
        """Remembers a rule that was just allowed here, instead of an earlier one of the same name; or all of a patch.

        What a patch hits is remembered once, however many rules come of it.
        """
        now, rules = self._clock(), assumed.rules[:_KEPT_OF_PATCH]
        names = {rule.meta.name for rule in rules} - {""}
        kept = [each for each in self._kept if each.rule.meta.name not in names]
        kept = [*kept, *[_Assumed.of(rule, now + KEPT_SECONDS) for rule in rules]][-_KEPT_MOST:]
        sums = list(accumulate(each.characters for each in reversed(kept)))
        self._kept = kept[len(kept) - bisect_right(sums, _KEPT_CHARACTERS) :]
        self._closing_now(assumed.names)
        self._hit(assumed.impact, at_once=any(rule.taint.effect == NO_EXECUTE for rule in rules))

    def knows(self, rule: DeviceTaintRule) -> bool:
        """Whether this very rule was allowed here a moment ago, so that its impact is remembered already."""
        now = self._clock()
        return any(now < each.until and _same(each.rule, rule) for each in self._kept)

    def began(self, rule: DeviceTaintRule, impact: Impact) -> None:
        """Remembers what a rule hits that begins to act now."""
        self._closing_now((names_of(rule.selector),))
        self._hit(impact, at_once=rule.taint.effect == NO_EXECUTE)

    def _closing_now(self, devices: Iterable[DeviceNames]) -> None:
        now = self._clock()
        for names in devices:
            self._closing[names] = now
            self._closing.move_to_end(names)
            if len(self._closing) > _KEPT_MOST:
                self._closing.popitem(last=False)
        self._closed = None

    def _hit(self, impact: Impact, *, at_once: bool) -> None:
        victims = Impact(waves=impact.waves, namespaces=impact.namespaces)
        if victims.waves:
            self._remember(_Hit(self._clock(), victims, len(victims.pods), at_once))

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
        """The rules allowed here that the inventory does not show yet."""
        if not self._kept:
            return ()
        now = self._clock()
        self._kept = [
            each
            for each in self._kept
            if now < each.until and not (inventory is not None and _shown(each.rule, inventory))
        ]
        return tuple(each.rule for each in self._kept)

    def victims_at_once(self, seconds: float) -> tuple[Impact, ...]:
        """The same as `victims` for rules with effect NoExecute alone, not for those that only ask our worker."""
        self.victims(seconds)
        return self._victims_at_once

    def victims(self, seconds: float) -> tuple[Impact, ...]:
        """What each rule hit that began in the last `seconds`, counted when it began."""
        since = self._clock() - seconds
        while self._hits and self._hits[0].at < since:
            self._forget()
        if self._victims is None:
            self._victims = tuple(hit.victims for hit in self._hits)
            self._victims_at_once = tuple(hit.victims for hit in self._hits if hit.at_once)
        return self._victims

    def closed(self, seconds: float) -> tuple[DeviceNames, ...]:
        """The devices on which rules began to act in the last `seconds`."""
        since = self._clock() - seconds
        while self._closing and next(iter(self._closing.values())) < since:
            self._closing.popitem(last=False)
            self._closed = None
        if self._closed is None:
            self._closed = tuple(self._closing)
        return self._closed


def _shown(rule: DeviceTaintRule, inventory: Inventory) -> bool:
    stored = inventory.rules.get(rule.meta.name)
    return stored is not None and _same(stored, rule)


def _same(one: DeviceTaintRule, other: DeviceTaintRule) -> bool:
    return (one.meta.name, one.selector, one.taint, one.effective_effect) == (
        other.meta.name,
        other.selector,
        other.taint,
        other.effective_effect,
    )
