"""Expiry of rules, and taints that look forgotten. Pure.

An expired rule is taken back once. If it is restored after that, the worker reports it and leaves it alone: a GitOps
tool that restores the rule and a worker that takes it back would otherwise evict in a loop.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.meta import OWN_GROUP, format_time, parse_time
from webhook.api.rules import EXPIRES_AT
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.eviction.conditions import ConditionState, condition_of
from webhook.inventory.scope import can_judge

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from datetime import datetime

    from webhook.api.rules import DeviceTaintRule
    from webhook.inventory.pools import Pool, PoolId
    from webhook.inventory.state import Inventory

CONTESTED: Final = f"{OWN_GROUP}/ExpiryContested"
"""Condition type: False once an expired rule was taken back, True if it was restored after that."""
_HARD: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})


class Expiry(StrEnum):
    """What to do about `/expires-at` now."""

    NONE = "none"
    LATER = "later"
    TAKE_BACK = "take back"
    CONTESTED = "contested"


def expiry_of(rule: DeviceTaintRule, now: datetime) -> tuple[Expiry, float]:
    """What to do now, and for LATER the seconds until the rule expires."""
    expires = parse_time(rule.meta.annotations.get(EXPIRES_AT, ""))
    if expires is None or rule.taint.effect not in _HARD:
        return Expiry.NONE, 0.0
    if now < expires:
        return Expiry.LATER, (expires - now).total_seconds()
    known = condition_of(rule.conditions, CONTESTED)
    # The condition is written once an expiry has passed, so an earlier expiry has been handled already (ADR 13).
    handled_at = None if known is None else known.last_transition_time
    if handled_at is not None and handled_at >= expires:
        return Expiry.CONTESTED, 0.0
    return Expiry.TAKE_BACK, 0.0


def contested_condition(rule: DeviceTaintRule, *, restored: bool) -> ConditionState:
    """Condition ExpiryContested: the expired rule was taken back, or was `restored` after that."""
    expires = parse_time(rule.meta.annotations.get(EXPIRES_AT, ""))
    when = "" if expires is None else format_time(expires)
    if restored:
        text = f"expired at {when}, was taken back and then restored; it is left as it is: set a later /expires-at"
        return ConditionState("True", "Restored", text)
    return ConditionState("False", "TakenBack", f"expired at {when}; effect set to None")


class Thresholds(NamedTuple):
    """Ages from which taints count as forgotten."""

    idle_days: float = 14.0
    slice_taint_hours: float = 72.0


class StaleTaints(NamedTuple):
    """Names of rules and slice taints that look forgotten."""

    rules_without_devices: tuple[str, ...] = ()
    """Rules that select no published or allocated device."""
    idle_rules: tuple[str, ...] = ()
    """Rules whose devices have not been in use for days."""
    old_slice_taints: tuple[tuple[str, str, str, str], ...] = ()
    """Slice taints as (driver, pool, device, key)."""


def stale_steps(
    inventory: Inventory, idle_since: Mapping[str, datetime], now: datetime, thresholds: Thresholds
) -> Generator[None, None, StaleTaints]:
    """What to report, in steps of one rule or pool each; the inventory may change between two of them.

    `idle_since`, by the uid of the rule: since when none of its devices has been in use.
    """
    idle_before = now - timedelta(days=thresholds.idle_days)
    old_before = now - timedelta(hours=thresholds.slice_taint_hours)
    gone: list[str] = []
    idle: list[str] = []
    old: list[tuple[str, str, str, str]] = []
    for rule in sorted(inventory.rules.values(), key=lambda rule: rule.meta.name):
        if rule.taint.effect in _HARD:
            if not _has_devices(inventory, rule):
                gone.append(rule.meta.name)
            if idle_since.get(rule.meta.uid, now) <= idle_before:
                idle.append(rule.meta.name)
        yield
    for identity, pool in sorted(inventory.pools.items(), key=lambda item: item[0]):
        old += _old_taints(identity, pool, old_before)
        yield
    return StaleTaints(tuple(gone), tuple(idle), tuple(old))


def in_use(inventory: Inventory, rule: DeviceTaintRule) -> bool:
    """Whether a device that the rule selects is allocated; true if the selector cannot be judged."""
    selector = rule.selector
    if selector is None:
        return False
    if not can_judge(selector):
        return True
    return inventory.usage.in_use(selector.driver, selector.pool, selector.device)


def _has_devices(inventory: Inventory, rule: DeviceTaintRule) -> bool:
    """Whether the rule selects a published or allocated device. A name is looked up in each pool, not compared."""
    selector = rule.selector
    if selector is None or in_use(inventory, rule):
        return in_use(inventory, rule)
    for _, pool in inventory.pools.selected(selector.driver, selector.pool):
        if pool.devices if selector.device is None else selector.device in pool.devices:
            return True
    return False


def _old_taints(identity: PoolId, pool: Pool, before: datetime) -> Iterator[tuple[str, str, str, str]]:
    for device in pool.closed:
        for taint in pool.devices[device]:
            if taint.effect in _HARD and taint.time_added is not None and taint.time_added <= before:
                yield *identity, device, taint.key
