"""Takes an expired rule back, once: first the condition that says so is written, then the rule is changed.

If the process ends between the two, the next one finds the condition with the rule's generation, and so knows that the
rule was not changed yet. Once the generation has moved, a rule that acts again has been restored, and stays.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from webhook.api.rules import condition_of
from webhook.eviction.conditions import updated
from webhook.eviction.expiry import (
    ACTING,
    CONTESTED,
    UNKNOWN,
    Expiry,
    ExpiryReason,
    contested_condition,
    expiry_of,
    is_announced,
)
from webhook.telemetry.repeats import LastingFault

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.api.rules import Condition, DeviceTaintRule
    from webhook.eviction.dependencies import Dependencies

log = logging.getLogger(__name__)

_WATCH_SECONDS: Final = 1.0
"""How long the watch may take to show a write. A change of a rule names the version that was read, and the write of the
condition makes another one, so it would be refused before that."""
_SOON_SECONDS: Final = 0.2


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
        """Condition ExpiryContested as it was last written or read; None if there is none."""
        shown = condition_of(rule.conditions, CONTESTED)
        if self._unseen is not None and shown is not None and _alike(shown, self._unseen):
            self._unseen = None
        return shown if self._unseen is None else self._unseen

    def remember(self, rule: DeviceTaintRule, written: Iterable[Condition]) -> None:
        """These conditions were written to the rule, as a whole."""
        condition = condition_of(written, CONTESTED)
        if condition is None or condition == condition_of(rule.conditions, CONTESTED):
            return
        self._unseen, self._written_at = condition, self._deps.clock.seconds()
        self._begun = condition.status == UNKNOWN

    def condition(self, rule: DeviceTaintRule) -> Condition | None:
        """Condition ExpiryContested as it must be now: what is known already if that is right. None: no condition."""
        known, what = self.known(rule), self._what(rule)[0]
        if not self._deps.mode.acts:
            return known
        if what is Expiry.TAKE_BACK and not self._deps.settings.delete_expired:
            reason = ExpiryReason.TAKING_BACK
            if known is not None and is_announced(known, rule):
                return known
        elif what is Expiry.CONTESTED:
            reason = ExpiryReason.RESTORED
        elif what is Expiry.NONE and known is not None and known.status == UNKNOWN:
            reason = ExpiryReason.TAKEN_BACK
        else:
            return known
        fresh = contested_condition(rule, reason)
        if known is not None and reason is not ExpiryReason.TAKING_BACK and known.message == fresh.message:
            return known
        return updated(known, CONTESTED, fresh, rule.generation, self._deps.clock.now(), any_change=True)

    async def step(self, rule: DeviceTaintRule) -> ExpiryStep:
        """Takes the rule back if that is due and its condition says so already."""
        if self._awaits_watch(rule):
            return ExpiryStep(recheck_seconds=_WATCH_SECONDS)
        if self.condition(rule) is not self.known(rule):
            return ExpiryStep(write=True)
        what, seconds = self._what(rule)
        deleted = self._deps.settings.delete_expired and rule.deleting
        if what is not Expiry.TAKE_BACK or deleted or not self._deps.mode.acts:
            # A rule that is deleted already only waits for others to remove its finalizers.
            return ExpiryStep(recheck_seconds=seconds or None)
        if self._unseen is not None and self._deps.clock.seconds() - self._written_at < _WATCH_SECONDS:
            return ExpiryStep(recheck_seconds=_SOON_SECONDS)
        return await self._take_back(rule)

    def _what(self, rule: DeviceTaintRule) -> tuple[Expiry, float]:
        known = self.known(rule)
        if known is not None:
            rule = structs.replace(rule, conditions=(known,))
        what, seconds = expiry_of(rule, self._deps.clock.now())
        if what is Expiry.CONTESTED and self._begun:
            return Expiry.TAKE_BACK, 0.0  # the generation moved with a change by another writer
        return what, seconds

    def _awaits_watch(self, rule: DeviceTaintRule) -> bool:
        """Whether the rule was taken back, and the watch does not show that yet."""
        if rule.generation != self._taken_back or rule.taint.effect not in ACTING:
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


def _alike(one: Condition, other: Condition) -> bool:
    """Whether two conditions differ at most in their time, of which API servers keep full seconds."""
    return structs.replace(one, last_transition_time=None) == structs.replace(other, last_transition_time=None)
