"""Expiry of rules, and taints that look forgotten. Pure.

An expired rule is taken back once. If it is restored after that, the worker reports it and leaves it alone: a GitOps
tool that restores the rule and a worker that takes it back would otherwise evict in a loop. `rule_expiry` does it.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.meta import OWN_GROUP, format_time, parse_time
from webhook.api.rules import EXPIRES_AT, condition_of
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE
from webhook.eviction.conditions import ConditionState
from webhook.inventory.scope import can_judge

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from datetime import datetime

    from webhook.api.rules import Condition, DeviceTaintRule
    from webhook.inventory.pools import Pool, PoolId
    from webhook.inventory.state import Inventory

CONTESTED: Final = f"{OWN_GROUP}/ExpiryContested"
"""Condition type. Unknown: the expired rule is being taken back; False: it was; True: it was restored after that."""
UNKNOWN: Final = "Unknown"
ACTING: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})
"""Effects that do something."""


class Expiry(StrEnum):
    """What to do about `/expires-at` now."""

    NONE = "none"
    LATER = "later"
    TAKE_BACK = "take back"
    CONTESTED = "contested"


def expiry_of(rule: DeviceTaintRule, now: datetime) -> tuple[Expiry, float]:
    """What to do now, and for LATER the seconds until the rule expires."""
    expires = parse_time(rule.meta.annotations.get(EXPIRES_AT, ""))
    if expires is None or rule.taint.effect not in ACTING:
        return Expiry.NONE, 0.0
    if now < expires:
        return Expiry.LATER, (expires - now).total_seconds()
    known = condition_of(rule.conditions, CONTESTED)
    # The condition is written once an expiry has passed, so an earlier expiry has been handled already (ADR 13).
    handled_at = None if known is None else known.last_transition_time
    if known is None or handled_at is None or handled_at < expires or is_announced(known, rule):
        return Expiry.TAKE_BACK, 0.0
    return Expiry.CONTESTED, 0.0


def is_announced(known: Condition, rule: DeviceTaintRule) -> bool:
    """Whether the condition says that this generation of the rule is about to be taken back.

    Taking a rule back moves its generation, so that has not happened yet.
    """
    expires = parse_time(rule.meta.annotations.get(EXPIRES_AT, ""))
    at = known.last_transition_time
    in_time = expires is not None and at is not None and at >= expires
    return known.status == UNKNOWN and in_time and known.observed_generation == rule.generation


class ExpiryReason(StrEnum):
    """Reasons of condition ExpiryContested."""

    TAKING_BACK = "TakingBack"
    TAKEN_BACK = "TakenBack"
    RESTORED = "Restored"


def contested_condition(rule: DeviceTaintRule, reason: ExpiryReason) -> ConditionState:
    """Condition ExpiryContested of an expired rule, for each of its reasons."""
    expires = parse_time(rule.meta.annotations.get(EXPIRES_AT, ""))
    expired = "expired" if expires is None else f"expired at {format_time(expires)}"
    match reason:
        case ExpiryReason.TAKING_BACK:
            return ConditionState(UNKNOWN, reason.value, f"{expired}; the effect is about to be set to None")
        case ExpiryReason.TAKEN_BACK:
            return ConditionState("False", reason.value, f"{expired}; effect set to None")
        case ExpiryReason.RESTORED:
            text = f"{expired}, was taken back and then restored; it is left as it is: set a later /expires-at"
            return ConditionState("True", reason.value, text)


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
        if rule.taint.effect in ACTING:
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
            if taint.effect in ACTING and taint.time_added is not None and taint.time_added <= before:
                yield *identity, device, taint.key
