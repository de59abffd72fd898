"""Expiry of rules, and taints that look forgotten.

An expired rule is taken back once. If it is restored after that, the worker reports it and leaves it alone: a GitOps
tool that restores the rule and a worker that takes it back would otherwise evict in a loop.

First the condition that says so is written, then the rule is changed. If the process ends between the two, the next
one finds the condition with the rule's generation, and so knows that the rule was not changed yet. Once the generation
has moved, a rule that acts again has been restored, and stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple, NoReturn

from msgspec import structs

from webhook.api.meta import OWN_GROUP, format_time, parse_time
from webhook.api.rules import EXPIRES_AT, Condition, DeviceTaintRule, condition_of
from webhook.eviction.conditions import ConditionState, updated
from webhook.eviction.ports import Dependencies
from webhook.flowcontrol.loop import LastingFault
from webhook.flowcontrol.workqueue import TimeSlice
from webhook.inventory.hardware import is_published, is_written_for_hardware
from webhook.inventory.pools import Pool, PoolId, acts
from webhook.inventory.state import Inventory
from webhook.inventory.targets import DeviceNames, can_judge

CONTESTED: Final = f"{OWN_GROUP}/ExpiryContested"
"""Condition type. Unknown: the expired rule is being taken back; False: it was, or has another expiry; True: it was
restored after it was taken back."""
UNKNOWN: Final = "Unknown"
log = logging.getLogger(__name__)
_WATCH_SECONDS: Final = 1.0
"""How long the watch may take to show a write. A change of a rule names the version that was read, and the write of the
condition makes another one, so it would be refused before that."""
_SOON_SECONDS: Final = 0.2
_NAMED_MOST: Final = 20
_LOOK_SECONDS: Final = 60.0
_IDLE: Final = timedelta(days=14)
_OLD: Final = timedelta(hours=72)
"""From which ages rules whose devices are not in use, and taints in slices, count as forgotten."""


class Expiry(StrEnum):
    """What to do about `/expires-at` now."""

    NONE = "none"
    LATER = "later"
    TAKE_BACK = "take back"
    CONTESTED = "contested"


def expiry_of(rule: DeviceTaintRule, now: datetime) -> tuple[Expiry, float]:
    """Return what to do now, and for LATER the seconds until the rule expires."""
    expires = parse_time(rule.meta.annotations.get(EXPIRES_AT, ""))
    if expires is None or not acts(rule.taint.effect):
        return Expiry.NONE, 0.0
    if now < expires:
        return Expiry.LATER, (expires - now).total_seconds()
    known = condition_of(rule.conditions, CONTESTED)
    # The condition is written once an expiry has passed, so an earlier expiry has been handled already (ADR 13).
    handled_at = None if known is None or known.reason == ExpiryReason.IN_TIME else known.last_transition_time
    if known is None or handled_at is None or handled_at < expires or is_announced(known, rule):
        return Expiry.TAKE_BACK, 0.0
    return Expiry.CONTESTED, 0.0


def is_announced(known: Condition, rule: DeviceTaintRule) -> bool:
    """Return whether the condition says that this generation of the rule is about to be taken back.

    Taking a rule back moves its generation, so that has not happened yet.
    """
    expires = parse_time(rule.meta.annotations.get(EXPIRES_AT, ""))
    at = known.last_transition_time
    in_time = expires is not None and at is not None and at >= expires
    return known.status == UNKNOWN and in_time and known.observed_generation == rule.generation


def has_expired_owner(
    rule: DeviceTaintRule, inventory: Inventory, what: Callable[[DeviceTaintRule], tuple[Expiry, float]]
) -> bool | None:
    """Tell whether a rule is for the hardware of one that has expired, taken back or not; None: that one is not there.

    `what` returns as `expiry_of`.
    """
    origin = rule.origin
    if not origin.rule or not origin.belongs_to:
        return False
    owner = inventory.rules.get(origin.name)
    if owner is None or owner.meta.uid != origin.belongs_to:
        return None
    acting = structs.replace(owner, taint=structs.replace(owner.taint, effect=rule.taint.effect))
    found, _ = what(acting)
    expired = found is Expiry.TAKE_BACK or (found is Expiry.CONTESTED and not acts(owner.taint.effect))
    return expired and is_written_for_hardware(rule, acting, inventory.pools)


class ExpiryReason(StrEnum):
    """Reasons of condition ExpiryContested."""

    TAKING_BACK = "TakingBack"
    TAKEN_BACK = "TakenBack"
    RESTORED = "Restored"
    CHANGED = "ExpiryChanged"
    IN_TIME = "ExpiryChangedInTime"


def contested_condition(rule: DeviceTaintRule, reason: ExpiryReason) -> ConditionState:
    """Make condition ExpiryContested of a rule that has expired, for each of its reasons."""
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
        case ExpiryReason.CHANGED:
            return ConditionState("False", reason.value, "the expiry was changed")
        case ExpiryReason.IN_TIME:
            return ConditionState("False", reason.value, "the expiry was changed before the rule was taken back")


class ForgottenTaints(NamedTuple):
    """Names of rules and slice taints that look forgotten."""

    rules_without_devices: tuple[str, ...] = ()
    """Rules that select no published or allocated device."""
    idle_rules: tuple[str, ...] = ()
    """Rules whose devices have not been in use for days."""
    old_slice_taints: tuple[tuple[str, str, str, str], ...] = ()
    """Slice taints as (driver, pool, device, key)."""


def forgotten_steps(
    inventory: Inventory, idle_since: Mapping[str, datetime], now: datetime
) -> Generator[None, None, ForgottenTaints]:
    """Yield what to report, in steps of one rule or pool each; the inventory may change between two of them.

    `idle_since`, by the uid of the rule: since when none of its devices has been in use.
    """
    gone: list[str] = []
    idle: list[str] = []
    old: list[tuple[str, str, str, str]] = []
    for rule in sorted(inventory.rules.values(), key=lambda rule: rule.meta.name):
        if acts(rule.taint.effect):
            if not _has_devices(inventory, rule):
                gone.append(rule.meta.name)
            if idle_since.get(rule.meta.uid, now) <= now - _IDLE:
                idle.append(rule.meta.name)
        yield
    for identity, pool in sorted(inventory.pools.items(), key=lambda item: item[0]):
        old += _old_taints(identity, pool, now - _OLD)
        yield
    return ForgottenTaints(tuple(gone), tuple(idle), tuple(old))


def in_use(inventory: Inventory, rule: DeviceTaintRule) -> bool:
    """Return whether a device that the rule selects is allocated; true if the selector cannot be judged."""
    selector = rule.selector
    if selector is None:
        return False
    if not can_judge(selector):
        return True
    return inventory.usage.in_use(selector.driver, selector.pool, selector.device)


def _has_devices(inventory: Inventory, rule: DeviceTaintRule) -> bool:
    """Return whether the rule selects a published or allocated device."""
    published = rule.selector is not None and is_published(inventory, DeviceNames.of(rule.selector))
    return published or in_use(inventory, rule)


def _old_taints(identity: PoolId, pool: Pool, before: datetime) -> Iterator[tuple[str, str, str, str]]:
    for device in pool.closed:
        for taint in pool.devices[device]:
            if acts(taint.effect) and taint.time_added is not None and taint.time_added <= before:
                yield *identity, device, taint.key


class ExpiryStep(NamedTuple):
    """What the expiry of a rule requires now."""

    recheck_seconds: float | None = None
    """When to check again; None: not before the rule changes."""
    write: bool = False
    """Condition ExpiryContested is to be written now."""
    changed: bool = False
    """The rule was taken back just now."""
    failed: bool = False
    """It could not be taken back, so that is to be retried."""


class RuleExpiry:
    """The expiry of one rule. It remembers what was written about it until the watch shows that."""

    __slots__ = ("_begun", "_deps", "_fault", "_taken_back", "_unseen", "_written_at")

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._fault = LastingFault(deps.clock.seconds)
        self._unseen: Condition | None = None
        self._written_at = 0.0
        self._begun = False
        """Whether the last condition that was written says that the rule is being taken back, and it was not yet."""
        self._taken_back: int | None = None
        """The generation that was taken back; the watch may still show it."""

    def known(self, rule: DeviceTaintRule) -> Condition | None:
        """Return condition ExpiryContested as it was last written or read; None if there is none."""
        shown = condition_of(rule.conditions, CONTESTED)
        if self._unseen is not None and shown is not None and without_time(shown) == without_time(self._unseen):
            self._unseen = None
        return shown if self._unseen is None else self._unseen

    def remember(self, rule: DeviceTaintRule, written: Iterable[Condition]) -> None:
        """Remember that these conditions were written to the rule, as a whole."""
        condition = condition_of(written, CONTESTED)
        if condition is None or condition == condition_of(rule.conditions, CONTESTED):
            return
        self._unseen, self._written_at = condition, self._deps.clock.seconds()
        self._begun = condition.status == UNKNOWN

    def condition(self, rule: DeviceTaintRule) -> Condition | None:
        """Return condition ExpiryContested as it must be now: what is known already if that is right; None: none."""
        known, what, now = self.known(rule), self.what(rule)[0], self._deps.clock.now()
        expires = parse_time(rule.meta.annotations.get(EXPIRES_AT, ""))
        if not self._deps.mode.acts:
            return known
        if what is Expiry.TAKE_BACK and not self._deps.settings.delete_expired:
            reason = ExpiryReason.TAKING_BACK
            if known is not None and is_announced(known, rule):
                return known
        elif what is Expiry.CONTESTED:
            reason = ExpiryReason.RESTORED
        elif known is None or known.status == "False":
            return known
        elif expires is None or now < expires:
            begun = self._begun or known.observed_generation == rule.generation
            reason = ExpiryReason.IN_TIME if known.status == UNKNOWN and begun else ExpiryReason.CHANGED
        elif what is Expiry.NONE and known.status == UNKNOWN:
            reason = ExpiryReason.TAKEN_BACK
        else:
            return known
        fresh = contested_condition(rule, reason)
        if known is not None and reason is not ExpiryReason.TAKING_BACK and known.message == fresh.message:
            return known
        return updated(known, CONTESTED, fresh, rule.generation, now, any_change=True)

    async def step(self, rule: DeviceTaintRule) -> ExpiryStep:
        """Take the rule back if that is due and its condition says so already."""
        if self._awaits_watch(rule):
            return ExpiryStep(recheck_seconds=_WATCH_SECONDS)
        if self.condition(rule) is not self.known(rule):
            return ExpiryStep(write=True)
        what, seconds = self.what(rule)
        deleted = self._deps.settings.delete_expired and rule.deleting
        if what is not Expiry.TAKE_BACK or deleted or not self._deps.mode.acts:
            # A rule that is deleted already only waits for others to remove its finalizers.
            return ExpiryStep(recheck_seconds=seconds or None)
        if self._unseen is not None and self._deps.clock.seconds() - self._written_at < _WATCH_SECONDS:
            return ExpiryStep(recheck_seconds=_SOON_SECONDS)
        return await self._take_back(rule)

    def what(self, rule: DeviceTaintRule) -> tuple[Expiry, float]:
        """Return as `expiry_of`, by what was written last."""
        known = self.known(rule)
        if known is not None:
            rule = structs.replace(rule, conditions=(known,))
        what, seconds = expiry_of(rule, self._deps.clock.now())
        if what is Expiry.CONTESTED and self._begun:
            return Expiry.TAKE_BACK, 0.0  # the generation moved with a change by another writer
        return what, seconds

    def _awaits_watch(self, rule: DeviceTaintRule) -> bool:
        """Return whether the rule was taken back, and the watch does not show that yet."""
        if rule.generation != self._taken_back or not acts(rule.taint.effect):
            self._taken_back = None
        return self._taken_back is not None

    async def _take_back(self, rule: DeviceTaintRule) -> ExpiryStep:
        writer, delete = self._deps.writer, self._deps.settings.delete_expired
        failure = await (writer.delete_rule(rule) if delete else writer.downgrade(rule))
        if failure is not None:
            if self._fault.failed(failure.message):
                fields = {"rule": rule.meta.name, "error": failure.message, **self._fault.fields}
                log.warning("expired rule not taken back", extra=fields)
            return ExpiryStep(failed=True)
        self._fault.ended()
        self._begun, self._taken_back = False, rule.generation
        log.info("expired rule taken back", extra={"rule": rule.meta.name, "deleted": delete})
        return ExpiryStep(changed=True)


def without_time(condition: Condition) -> Condition:
    """Return all but the time of a condition: API servers cut times to full seconds."""
    return structs.replace(condition, last_transition_time=None)


class ForgottenReporter:
    """Remembers since when the devices of each rule have been unused; a restart loses that."""

    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps
        self._idle_since: dict[str, datetime] = {}
        self._reported_at: float | None = None

    def _steps(self) -> Iterator[None]:
        """Update the metrics, and log a report if the last one is old enough; in short steps, as it may be long."""
        deps = self._deps
        now = deps.clock.now()
        idle_since = {}
        for rule in tuple(deps.inventory.rules.values()):
            if not in_use(deps.inventory, rule):
                idle_since[rule.meta.uid] = self._idle_since.get(rule.meta.uid, now)
            yield
        self._idle_since = idle_since
        found = yield from forgotten_steps(deps.inventory, idle_since, now)
        self._report(found)

    def _report(self, found: ForgottenTaints) -> None:
        deps = self._deps
        counts = {name: len(names) for name, names in found._asdict().items()}
        deps.metrics.set_forgotten(counts)
        seconds = deps.clock.seconds()
        if self._reported_at is not None and seconds - self._reported_at < deps.settings.report_every_seconds:
            return
        self._reported_at = seconds
        if any(counts.values()):
            log.warning(
                "taints that look forgotten",
                extra={
                    "rulesWithoutDevices": list(found.rules_without_devices[:_NAMED_MOST]),
                    "idleRules": list(found.idle_rules[:_NAMED_MOST]),
                    "oldSliceTaints": ["/".join(parts) for parts in found.old_slice_taints[:_NAMED_MOST]],
                    **counts,
                },
            )

    async def run(self) -> NoReturn:
        """Look every minute until it is cancelled, and yield to other tasks in between."""
        timeslice = TimeSlice()
        while True:
            timeslice.begin()
            for _ in self._steps():
                await timeslice.pause()
            await asyncio.sleep(_LOOK_SECONDS)
