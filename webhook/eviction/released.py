"""Condition Released of rules that keep devices closed: whether any allocation still holds a selected device.

It is True only if every allocation is known that a scheduler made before it saw the taint: `settle_seconds` after the
rule was first seen in this generation, the changes of claims have to be known up to that moment (`claims_known`). A
claim that tolerates the taint may be allocated at any later time; then it is False again, at once.

A changed claim or slice concerns the rules that select its devices, which are found by name, so that none of the
others is looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product
from typing import Final, NamedTuple

from webhook.api.claims import ResourceClaim
from webhook.api.rules import Condition, DeviceTaintRule, condition_of
from webhook.api.slices import ResourceSlice
from webhook.eviction.conditions import RELEASED, UNSETTLED, ConditionState, first_of, updated
from webhook.eviction.core import Core
from webhook.inventory.hardware import Holders, devices_to_look_at, holders_of, is_held, is_published
from webhook.inventory.pools import acts
from webhook.inventory.state import InventoryObject
from webhook.inventory.targets import DeviceNames, can_judge

TURN_SECONDS: Final = 1.0
"""The minimum time between two writes if the second one changes the status; True ends without a wait."""
DOUBT_SECONDS: Final = 30.0
"""How long the inventory may be out of date before True becomes Unknown, and how often that is looked at."""
_WAIT_SECONDS: Final = 0.5
"""How often to check whether the changes of claims are known."""


class ReleasedReason(StrEnum):
    """Reasons of condition devicetaint.io/Released."""

    RELEASED = "Released"
    NO_DEVICES = "NoDevices"
    IN_USE = "InUse"
    DEVICES_OPEN = "DevicesOpen"
    WAITING = "Waiting"
    OUTDATED = "Outdated"
    SELECTOR_NOT_JUDGED = "SelectorNotJudged"


_TRUE: Final = frozenset({ReleasedReason.RELEASED, ReleasedReason.NO_DEVICES})
_FALSE: Final = frozenset({ReleasedReason.IN_USE, ReleasedReason.DEVICES_OPEN})


def is_true(conditions: Iterable[Condition]) -> bool:
    """Return whether the conditions say that the devices are released."""
    known = condition_of(conditions, RELEASED)
    return known is not None and known.status == "True"


@dataclass(slots=True)
class _Place:
    """Whether devices of some names are held, and the rules that look at them."""

    held: bool
    rules: set[str] = field(default_factory=set)
    up_to_date: set[str] = field(default_factory=set)
    """Of the rules, those that were looked at since the last change of a claim here; the others are queued already."""


class ReleasedOutlook(NamedTuple):
    """What is to be written next.

    `period_seconds`: how long after the last write, because the status is to change; None if it is not.
    `recheck_seconds`: until that may differ without a change; None if it cannot.
    """

    period_seconds: float | None
    recheck_seconds: float | None


class ReleasedConditions:
    """Decides the condition of each rule, and which rules a change concerns. Rules go by name."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._deps = core.deps
        self._places: dict[str, tuple[DeviceNames, ...]] = {}
        """What each rule looks at: first what it selects."""
        self._at: dict[tuple[str | None, ...], _Place] = {}
        self._pools: dict[tuple[str | None, ...], set[str]] = {}
        """Rules by the driver and the pool of what they select."""
        self._doubted_at: float | None = None

    @property
    def held_count(self) -> int:
        """How many rules keep devices closed that an allocation still holds."""
        return sum(any(self._at[names].held for names in places) for places in self._places.values())

    # --- changes ---------------------------------------------------------------------------------

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """Queue the rules that a change of an object concerns; the inventory has applied it."""
        match new if new is not None else old:
            case ResourceClaim():
                self._observe_claim([each for each in (old, new) if isinstance(each, ResourceClaim)])
            case ResourceSlice():
                for pool in {(each.driver, each.pool) for each in (old, new) if isinstance(each, ResourceSlice)}:
                    self._observe_pool(*pool)
            case _:
                pass

    def _observe_claim(self, versions: list[ResourceClaim]) -> None:
        """Queue the rules on the devices of a claim, of which these versions are known: before, and now."""
        if not self._at:
            return
        same = len(versions) == 2 and versions[0].allocation == versions[1].allocation
        if same and versions[0].reserved_for == versions[1].reserved_for:
            return
        found: dict[tuple[str | None, ...], _Place] = {}
        for claim in versions[:1] if same else versions:
            for each in claim.allocation or ():
                for names in product((each.driver, None), (each.pool, None), (each.device, None)):
                    place = self._at.get(names)
                    if place is not None:
                        found[names] = place
        for at, place in found.items():
            self._refresh(at, place)

    def _refresh(self, names: tuple[str | None, ...], place: _Place) -> None:
        """Queue the rules of a place: at once if it became free or held, else when conditions are due again."""
        held = self._deps.inventory.usage.in_use(*names)
        if held != place.held:
            place.held = held
            for name in place.rules:
                self._core.rules.add(name)
        else:
            for name in place.up_to_date:
                self._core.rules.add_after(name, self._deps.settings.condition_seconds)
        place.up_to_date.clear()

    def _observe_pool(self, driver: str, pool: str) -> None:
        """Look up again which devices count, as others may be published."""
        for key in product((driver, None), (pool, None)):
            for name in self._pools.get(key, ()):
                self._core.rules.add_after(name, TURN_SECONDS)

    def forget(self, name: str) -> None:
        """Forget a rule that is gone, or keeps no devices closed that can be judged."""
        places = self._places.pop(name, ())
        for names in places:
            self._at[names].rules.discard(name)
            self._at[names].up_to_date.discard(name)
            if not self._at[names].rules:
                del self._at[names]
        if places:
            pool = places[0][:2]
            self._pools[pool].discard(name)
            if not self._pools[pool]:
                del self._pools[pool]

    def _selected_by(self, rule: DeviceTaintRule) -> DeviceNames:
        return DeviceNames.of(rule.selector, self._deps.inventory.servers)

    def _look_at(self, rule: DeviceTaintRule) -> tuple[DeviceNames, ...]:
        """Return what has to be free for the rule, and follow its changes from now on, unless the rule is gone."""
        inventory, name, selected = self._deps.inventory, rule.meta.name, self._selected_by(rule)
        places = devices_to_look_at(inventory, selected)
        if name not in inventory.rules:
            return places
        if self._places.get(name) != places:
            self.forget(name)
            self._places[name] = places
            self._pools.setdefault(selected[:2], set()).add(name)
            for names in places:
                if names not in self._at:
                    self._at[names] = _Place(inventory.usage.in_use(*names))
                self._at[names].rules.add(name)
        for names in places:
            self._at[names].up_to_date.add(name)
        return places

    # --- the condition ---------------------------------------------------------------------------

    def state_of(self, rule: DeviceTaintRule, seen_at: float) -> tuple[Condition | None, float | None]:
        """Return the condition as it has to be now, and the seconds until it may differ without a change, if any.

        None for a rule that closes no devices and never had it, and while nothing can be said that was not said before.
        `seen_at`: when this generation of the rule was first seen, by the monotonic clock.
        """
        reason = self._reason(rule, seen_at)
        if reason is None:
            return None, None
        known = condition_of(rule.conditions, RELEASED)
        if known is None and reason is ReleasedReason.OUTDATED:
            return None, _WAIT_SECONDS
        state = ConditionState(_status(reason), reason.value, self._message(rule, reason))
        condition = updated(known, RELEASED, state, rule.generation, self._deps.clock.now())
        return condition, self._recheck_seconds(reason, seen_at)

    def outlook(self, rule: DeviceTaintRule, seen_at: float, written: Iterable[Condition]) -> ReleasedOutlook:
        """Return what `state_of` would return now, beside the conditions that were written last."""
        reason = self._reason(rule, seen_at)
        if reason is None:
            return ReleasedOutlook(None, None)
        known, recheck_seconds = condition_of(written, RELEASED), self._recheck_seconds(reason, seen_at)
        if known is not None and known.status == _status(reason):
            return ReleasedOutlook(None, recheck_seconds)
        return ReleasedOutlook(0.0 if is_true(written) else TURN_SECONDS, recheck_seconds)

    def withdrawn(self, rule: DeviceTaintRule, seen_at: float, written: list[Condition]) -> list[Condition] | None:
        """Return the conditions without a True that no longer holds, for an old inventory; None if it may stay.

        An allocation that is seen counts whatever else was missed.
        """
        now = self._deps.clock.seconds()
        if self._doubted_at is None:
            self._doubted_at = now
        if not is_true(written):
            return None
        condition, _ = self.state_of(rule, seen_at)
        if condition is None or (
            condition.reason == ReleasedReason.OUTDATED.value and now - self._doubted_at < DOUBT_SECONDS
        ):
            return None
        return [condition if each.type == RELEASED else each for each in written]

    def _reason(self, rule: DeviceTaintRule, seen_at: float) -> ReleasedReason | None:
        closed = acts(rule.taint.effect)  # also while the rule is being deleted, until it is gone
        if not closed or not (rule.selector is None or can_judge(rule.selector)):
            self.forget(rule.meta.name)
            if closed:
                return ReleasedReason.SELECTOR_NOT_JUDGED
            return None if condition_of(rule.conditions, RELEASED) is None else ReleasedReason.DEVICES_OPEN
        inventory, places = self._deps.inventory, self._look_at(rule)
        # Asked for while devices are still held, so that it is known by the time they are not.
        settled = self._settled(rule, seen_at)
        if is_held(inventory, places):
            return ReleasedReason.IN_USE
        if not self._deps.trusted():
            return ReleasedReason.OUTDATED
        self._doubted_at = None
        if not settled:
            return ReleasedReason.WAITING
        published = is_published(inventory, self._selected_by(rule))
        return ReleasedReason.RELEASED if published else ReleasedReason.NO_DEVICES

    def _settled(self, rule: DeviceTaintRule, seen_at: float) -> bool:
        """Return whether all allocations are known that schedulers made before they saw the taint."""
        known = condition_of(rule.conditions, RELEASED)
        if known is not None and known.status == "True" and known.observed_generation == rule.generation:
            return True  # this process or its predecessor has made sure
        at = seen_at + self._deps.settings.settle_seconds
        return self._deps.clock.seconds() >= at and self._deps.claims_known(at)

    def _recheck_seconds(self, reason: ReleasedReason, seen_at: float) -> float | None:
        if reason in _TRUE:
            return DOUBT_SECONDS
        left = seen_at + self._deps.settings.settle_seconds - self._deps.clock.seconds()
        if left > 0 and reason in (ReleasedReason.WAITING, ReleasedReason.IN_USE):
            return left
        return _WAIT_SECONDS if reason in (ReleasedReason.WAITING, ReleasedReason.OUTDATED) else None

    def _message(self, rule: DeviceTaintRule, reason: ReleasedReason) -> str:
        match reason:
            case ReleasedReason.IN_USE:
                inventory = self._deps.inventory
                return in_use_message(holders_of(inventory, devices_to_look_at(inventory, self._selected_by(rule))))
            case ReleasedReason.DEVICES_OPEN:
                return f"the effect of the taint is {rule.taint.effect}, so the devices may be allocated at any time"
            case _:
                return _MESSAGES[reason]


_MESSAGES: Final = {
    ReleasedReason.RELEASED: "no allocation holds a selected device",
    ReleasedReason.NO_DEVICES: (
        "no allocation holds a selected device, but none is published either: check the selector"
    ),
    ReleasedReason.WAITING: UNSETTLED,
    ReleasedReason.OUTDATED: "it is not certain that all changes of the cluster are known",
    ReleasedReason.SELECTOR_NOT_JUDGED: (
        "the device selector has fields that cannot be judged here, so it is not known which devices count"
    ),
}


def _status(reason: ReleasedReason) -> str:
    return "True" if reason in _TRUE else "False" if reason in _FALSE else "Unknown"


def in_use_message(holders: Holders) -> str:
    """Say who holds the devices, for people: `2 claims hold devices: ml/a (pod a, pod b), ml/c (no pod)`."""
    count = f"more than {holders.claims}" if holders.more else str(holders.claims)
    what = "1 claim holds devices" if count == "1" else f"{count} claims hold devices"
    named = ", ".join(f"{claim} ({first_of(users) or 'no pod'})" for claim, users in holders.first)
    rest = holders.claims - len(holders.first)
    return f"{what}: {named}" + (f" and {'at least ' if holders.more else ''}{rest} more" if rest else "")
