"""Keeps the conditions of rules up to date. Reads the plans and ceilings, writes through the port."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from webhook.api.rules import COUNTED_PODS, EVICTED_PODS, NEVER, NOT_BEFORE, Condition, DeviceTaintRule, condition_of
from webhook.api.taints import NO_EXECUTE, NONE
from webhook.eviction.conditions import (
    EVICTION,
    IN_TREE,
    ConditionReason,
    ConditionState,
    ImpactForecast,
    Progress,
    eviction_condition,
    in_tree_condition,
    is_canary,
    updated,
)
from webhook.eviction.core import Core
from webhook.eviction.events import RENEW_SECONDS, rule_event
from webhook.eviction.expiry import Expiry, ExpiryStep, RuleExpiry, has_expired_owner, without_time
from webhook.eviction.modes import Mode
from webhook.eviction.progress import forecast_of, progress_of
from webhook.eviction.released import ReleasedConditions, is_true
from webhook.flowcontrol.loop import LastingFault
from webhook.inventory.targets import can_judge, is_ours, start_of, tolerating_scheduling

log = logging.getLogger(__name__)

_NO_SECONDS: Final = 1e-6
"""A shorter wait is none: it may be too short to be added to the time."""
_SOON_SECONDS: Final = 0.2
"""When to check again for a change that a watch is about to bring."""
_UNTRUSTED_SECONDS: Final = 1.0
"""How often to check whether conditions may be written again."""
_STALLED_SECONDS: Final = 30.0
"""How long limits may let no pod of a rule go before its condition says so."""
_GOING_WELL: Final = frozenset({ConditionReason.EVICTING.value, ConditionReason.WAITING.value})
"""Reasons of status True under which no limit and no pod holds the eviction up."""
_NOT_JUDGED: Final = "the device selector has fields that cannot be judged here, so no pod is evicted for this rule"
_WRONG_EFFECT: Final = (
    "devicetaint.io/evict needs effect NoSchedule: with any other, new pods are scheduled onto the devices"
)
_NO_TIME: Final = f'{NOT_BEFORE} is no time like "2026-01-31T12:00:00Z", so no pod is evicted for this rule'
_EXPIRED: Final = "the rule has expired, so no pod is evicted for it"
_BEING_DELETED: Final = "the rule is being deleted, so its /evict has no effect"
_NOT_ASKED: Final = "eviction is no longer requested"


@dataclass(slots=True)
class _RuleState:
    """What the worker keeps about a rule."""

    expiry: RuleExpiry
    fault: LastingFault
    generation: int | None = None
    seen_at: float = 0.0
    last_reason: str = ""
    last_event_at: float = 0.0
    forecast: ImpactForecast | None = None
    moved: int | None = None
    """The count of evicted pods at `moved_at`; None before the first count."""
    moved_at: float = 0.0
    """When a pod went last, or no limit kept one back."""
    written: list[Condition] = field(default_factory=list)
    """The conditions as they were last written, or found to be right."""
    written_at: float | None = None
    owner_expired: bool = False
    """Whether the rule for whose hardware it is had expired; that one may be deleted since."""


class RuleStatusUpdater:
    """Writes the conditions of rules, and has expired rules taken back."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._deps = core.deps
        self._scope = core.scope
        self._ceilings = core.ceilings
        self._states: dict[str, _RuleState] = {}
        self.released = ReleasedConditions(core)
        core.evictions.expired = self._expired

    def _expired(self, rule: DeviceTaintRule) -> bool:
        """Tell whether the rule is to be taken back, so that no pod is evicted for it, however long that takes."""
        if not self._deps.mode.acts:
            return False
        state, inventory = self._state_of(rule), self._deps.inventory
        owner_expired = has_expired_owner(rule, inventory, lambda each: self._state_of(each).expiry.what(each))
        if owner_expired is not None:
            state.owner_expired = owner_expired
        return state.owner_expired or state.expiry.what(rule)[0] is Expiry.TAKE_BACK

    def forget(self, rule: DeviceTaintRule) -> None:
        """Forget a rule that is gone."""
        self._states.pop(rule.meta.uid, None)
        self.released.forget(rule.meta.name)
        self._core.announcements.forget(rule.meta.uid)

    def _state_of(self, rule: DeviceTaintRule) -> _RuleState:
        state = self._states.get(rule.meta.uid)
        if state is None:
            state = self._states[rule.meta.uid] = _RuleState(
                RuleExpiry(self._deps), LastingFault(self._deps.clock.seconds)
            )
        return state

    # --- conditions ------------------------------------------------------------------------------

    async def sync(self, name: str, *, last: bool = False) -> float | None:
        """Write the conditions of a rule if they changed; return the seconds until it must be checked again, or None.

        Only the lease holder writes. While the inventory may be out of date, no rule is taken back and nothing is
        written but that work remains. `last`: the worker stops, so the conditions are written without waiting for the
        interval between writes.
        """
        rule = self._deps.inventory.rules.get(name)
        if rule is None:
            self._core.rules.forget(name)
            return None
        state, now = self._state_of(rule), self._deps.clock.seconds()
        leads, trusted = self._deps.leads(), self._deps.trusted()
        fresh = leads and self._begin_generation(rule, state, now)
        if not leads or not (trusted or fresh):
            if leads:
                await self._withdraw(rule, state)
            return _UNTRUSTED_SECONDS
        expiring = await state.expiry.step(rule) if trusted else ExpiryStep(_UNTRUSTED_SECONDS)
        if expiring.changed:
            return _SOON_SECONDS
        if expiring.failed:
            expiring = ExpiryStep(self._core.rules.add_rate_limited(name), failed=True)
        outlook = self.released.outlook(rule, state.seen_at, state.written)
        period = self._deps.settings.condition_seconds if outlook.period_seconds is None else outlook.period_seconds
        at_once = fresh or last or expiring.write
        left = 0.0 if state.written_at is None else period - (now - state.written_at)
        if not at_once and left > _NO_SECONDS:
            return _earliest(left, expiring.recheck_seconds, outlook.recheck_seconds)
        return await self._sync_conditions(rule, state, expiring, fresh=fresh)

    async def _sync_conditions(
        self, rule: DeviceTaintRule, state: _RuleState, expiring: ExpiryStep, *, fresh: bool
    ) -> float | None:
        """Write the conditions if they changed; return as `sync` does. `fresh`: the first of a generation."""
        due = await self._conditions(rule, state)
        if due is None:
            return _SOON_SECONDS
        conditions, recheck_seconds = due
        if not self._may_write(conditions):
            state.forecast = None  # it may have been counted from what is out of date
            return _UNTRUSTED_SECONDS
        if not await self._write(rule, state, conditions):
            state.generation = None if fresh else rule.generation  # not written, so the generation is still new
            return self._core.rules.add_rate_limited(rule.meta.name)
        if not expiring.failed:
            self._core.rules.forget(rule.meta.name)
        return _SOON_SECONDS if expiring.write else _earliest(recheck_seconds, expiring.recheck_seconds)

    async def _withdraw(self, rule: DeviceTaintRule, state: _RuleState) -> None:
        """Take back that devices are released, if that no longer holds."""
        conditions = self.released.withdrawn(rule, state.seen_at, state.written)
        before = state.written
        if conditions is not None and not await self._write(rule, state, conditions):
            state.written = before  # so that it is tried again

    def lost_conditions(self, rule: DeviceTaintRule) -> bool:
        """Tell whether conditions of ours are missing or not as written, because of another writer."""
        state = self._states.get(rule.meta.uid)
        if state is None:
            return False
        shown = {each.type: without_time(each) for each in rule.conditions}
        return any(shown.get(each.type) != without_time(each) for each in state.written)

    def _begin_generation(self, rule: DeviceTaintRule, state: _RuleState, now: float) -> bool:
        """Return whether no condition was written for this generation yet."""
        if state.generation == rule.generation:
            return False
        state.generation, state.seen_at, state.forecast = rule.generation, now, None
        known = condition_of(rule.conditions, EVICTION)
        if known is not None and known.observed_generation == rule.generation and known.status == "False":
            state.seen_at -= self._deps.settings.settle_seconds  # reported before a restart, so settled
        return True

    def _may_write(self, conditions: list[Condition]) -> bool:
        """Return whether this process may write these now: its inventory may be out of date, or its lease lost."""
        if not self._deps.leads():
            return False
        return self._deps.trusted() or not (
            is_true(conditions)
            or any(each.status == "False" for each in conditions if each.type in (EVICTION, IN_TREE))
        )

    async def _write(self, rule: DeviceTaintRule, state: _RuleState, conditions: list[Condition]) -> bool:
        known = [condition_of(rule.conditions, condition.type) for condition in conditions]
        written = known != conditions
        state.written = conditions  # first, because the watch may be faster than the response
        if written:
            failure = await self._deps.writer.set_conditions(rule, conditions)
            if failure is not None:
                state.written = []
                self._deps.metrics.rule_condition_errors.inc()
                if state.fault.failed(failure.message):
                    fields = {"rule": rule.meta.name, "error": failure.message, **state.fault.fields}
                    log.warning("conditions not written", extra=fields)
                return False
            state.written_at = self._deps.clock.seconds()
            state.expiry.remember(rule, conditions)
        state.fault.ended()
        ours = condition_of(conditions, EVICTION)
        if ours is not None:
            self._record(rule, state, ours, written=written)
        return True

    def _record(self, rule: DeviceTaintRule, state: _RuleState, ours: Condition, *, written: bool) -> None:
        """Queue an Event if the reason has changed, and each hour while the eviction is held up."""
        now = self._deps.clock.seconds()
        lasts = ours.status == "True" and ours.reason not in _GOING_WELL
        again = lasts and now - state.last_event_at >= RENEW_SECONDS
        if not state.last_reason and not written:
            state.last_reason, state.last_event_at = ours.reason, now  # reported before a restart
        elif again or (written and ours.reason != state.last_reason):
            state.last_reason, state.last_event_at = ours.reason, now
            self._core.recorder.record(rule_event(rule, ConditionReason(ours.reason), ours.message))

    async def _conditions(
        self, rule: DeviceTaintRule, state: _RuleState
    ) -> tuple[list[Condition], float | None] | None:
        """Return all of our conditions on the rule, and the seconds until they may differ without a change, if any.

        None if it is to be counted again: plan or rule have changed.
        """
        planned, generation, replaces = self._core.planned, rule.generation, self._deps.mode is Mode.REPLACEMENT
        progress, again = await self._progress(rule, state)
        forecast = None
        if replaces and rule.taint.effect == NONE:  # counted once for each change to its spec (E-40)
            forecast = state.forecast or await forecast_of(self._core, rule)
        if self._deps.inventory.rules.get(rule.meta.name) is not rule:
            return None
        if not progress.pending and not self._counts_all(rule, planned):
            return None
        now = self._deps.clock.now()
        conditions: list[Condition] = []
        ours = self._eviction_state(rule, progress)
        if ours is not None:
            known = condition_of(rule.conditions, EVICTION)
            conditions.append(updated(known, EVICTION, ours, generation, now))
        if replaces and not is_canary(rule):
            known, state.forecast = condition_of(rule.conditions, IN_TREE), forecast
            evicted = self._ceilings.tally_of(rule).evicted
            theirs = in_tree_condition(rule.taint.effect, progress.pending, len(progress.namespaces), evicted, forecast)
            conditions.append(updated(known, IN_TREE, theirs, generation, now, any_change=True))
        trusted = self._deps.trusted()
        contested = state.expiry.condition(rule) if trusted else state.expiry.known(rule)
        if contested is not None:
            conditions.append(contested)
        if ours is not None or self._ceilings.tally_of(rule).counting:
            conditions += self._counts(rule, generation)
        may_change = ours is not None and (progress.pending > 0 or not progress.settled)
        released, recheck_seconds = self.released.state_of(rule, state.seen_at)
        if released is not None:
            conditions.append(released)
        return conditions, _earliest(again if may_change else None, recheck_seconds)

    def _counts_all(self, rule: DeviceTaintRule, planned: int) -> bool:
        """Return whether a count by the plan of this revision has missed no pod that the rule has come to hit since."""
        core, affected = self._core, self._core.affected
        known = core.planned == planned and not affected.pending and not affected.whole
        grown, planning = affected.grown_by(rule.meta.uid), core.ledger.departed is not None
        return known and not any(planning or key in affected.changed for key in grown)

    def _counts(self, rule: DeviceTaintRule, generation: int) -> Iterator[Condition]:
        """Yield the numbers that have to survive a restart."""
        tally, now = self._ceilings.tally_of(rule), self._deps.clock.now()
        if tally.total:
            known = condition_of(rule.conditions, EVICTED_PODS)
            state = ConditionState("True", "PodsEvicted", str(tally.total))
            yield updated(known, EVICTED_PODS, state, generation, now)
        known = condition_of(rule.conditions, COUNTED_PODS)
        if known is not None or tally.counting != tally.total:
            state = ConditionState("True", "PodsCounted", str(tally.counting))
            yield updated(known, COUNTED_PODS, state, generation, now)

    def _eviction_state(self, rule: DeviceTaintRule, progress: Progress) -> ConditionState | None:
        """Return condition Eviction; None for a rule that this worker neither acts on nor has reported on."""
        acts = self._deps.mode.acts
        if is_ours(rule, self._scope):
            stopped = self._ceilings.stopped(rule) if can_judge(rule.selector) or rule.selector is None else _NOT_JUDGED
            stopped = stopped or (_NO_TIME if start_of(rule, self._scope) == NEVER else "")
            known = condition_of(rule.conditions, EVICTION)
            if known is not None and known.observed_generation == rule.generation:
                # By a version that kept its count elsewhere: it stays finished for those who wait for that.
                progress.finished = known.reason == ConditionReason.COMPLETED
            had_pods = known is not None and (known.status == "True" or known.reason == ConditionReason.STOPPED)
            if had_pods and not stopped and self._deps.trusted() and self._expired(rule):
                stopped = _EXPIRED
            return eviction_condition(progress, acts=acts, stopped=stopped)
        if rule.effective_effect == NO_EXECUTE and rule.taint.effect != NO_EXECUTE:
            if rule.deleting:
                return ConditionState("False", ConditionReason.NOTHING_TO_DO.value, _BEING_DELETED)
            return eviction_condition(progress, acts=acts, stopped=_WRONG_EFFECT)
        if condition_of(rule.conditions, EVICTION) is not None:
            return ConditionState("False", ConditionReason.NOTHING_TO_DO.value, _NOT_ASKED)
        return None

    def _is_announced(self, rule: DeviceTaintRule) -> bool:
        """Tell whether pods may be planned for the rule by its condition: `/evict` is announced first."""
        if not self._deps.mode.acts or rule.taint.effect == NO_EXECUTE or not is_ours(rule, self._scope):
            return True
        return self._core.announcements.announced_at(rule) is not None

    async def _progress(self, rule: DeviceTaintRule, state: _RuleState) -> tuple[Progress, float | None]:
        progress = await progress_of(self._core, rule.meta.uid)
        settled_in = self._deps.settings.settle_seconds - (self._deps.clock.seconds() - state.seen_at)
        progress.evicted = self._ceilings.tally_of(rule).total
        progress.stalled = self._stalled(state, progress, progress.evicted)
        progress.tolerating_scheduling = len(tolerating_scheduling(self._deps.inventory, rule))
        progress.settled = settled_in <= 0 and self._is_announced(rule)
        return progress, settled_in if settled_in > 0 else self._deps.settings.condition_seconds

    def _stalled(self, state: _RuleState, progress: Progress, evicted: int) -> bool:
        """Return whether limits have let no pod of the rule go for a while; a limit at work is no news."""
        now = self._deps.clock.seconds()
        if not progress.limited or state.moved != evicted:
            state.moved, state.moved_at = evicted, now
        return now - state.moved_at >= _STALLED_SECONDS


def _earliest(*seconds: float | None) -> float | None:
    return min([each for each in seconds if each is not None], default=None)
