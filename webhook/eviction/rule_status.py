"""Keeps the status of rules up to date: conditions, ceilings, expiry. Reads the plans, writes through the port."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.taints import NO_EXECUTE, NONE
from webhook.eviction.conditions import (
    EVICTED_PODS,
    EVICTION,
    IN_TREE,
    ConditionReason,
    ConditionState,
    ImpactForecast,
    Progress,
    condition_of,
    evicted_pods_condition,
    eviction_condition,
    in_tree_condition,
    updated,
)
from webhook.eviction.event_messages import rule_event
from webhook.eviction.expiry import CONTESTED, Expiry, contested_condition, expiry_of
from webhook.eviction.limits import BudgetLimit
from webhook.eviction.modes import Mode
from webhook.eviction.step import StepReason, Wait, exemption, facts_of, next_step
from webhook.eviction.tally import Tally, code_of
from webhook.flowcontrol.timeslice import TimeSlice
from webhook.inventory.impact import Taint, impact_of
from webhook.inventory.scope import can_judge, is_ours, tolerating_scheduling

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.api.rules import Condition, DeviceTaintRule
    from webhook.eviction.core import Core

log = logging.getLogger(__name__)

_SOON_SECONDS: Final = 0.2
"""When to check again for a change that a watch is about to bring."""
_FAILED_SECONDS: Final = 1.0
_NOT_JUDGED: Final = "the device selector has fields that cannot be judged here, so no pod is evicted for this rule"
_WRONG_EFFECT: Final = (
    "devicetaint.io/evict needs effect NoSchedule: with any other, new pods are scheduled onto the devices"
)
_BEING_DELETED: Final = "the rule is being deleted, so its /evict has no effect"
_NOT_ASKED: Final = "eviction is no longer requested"


class _RuleState:
    """What the worker keeps about a rule."""

    __slots__ = ("forecast", "generation", "last_reason", "seen_at", "stopped", "tally", "written_at")

    def __init__(self, rule: DeviceTaintRule) -> None:
        self.tally = Tally(rule)
        self.generation: int | None = None
        self.seen_at = 0.0
        self.stopped = ""
        self.last_reason = ""
        self.forecast: ImpactForecast | None = None
        self.written_at: float | None = None


class RuleStatusUpdater:
    """Writes the conditions of rules, stops rules above their ceiling, and takes expired rules back."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._deps = core.deps
        self._scope = core.scope
        self._plans = core.plans
        self._states: dict[str, _RuleState] = {}

    def forget(self, rule: DeviceTaintRule) -> None:
        """The rule no longer exists."""
        self._states.pop(rule.meta.uid, None)

    def count_evicted(self, uids: Iterable[str]) -> None:
        """Counts one evicted pod for each of these rules, by uid."""
        for uid in uids:
            state = self._states.get(uid)
            if state is not None:
                state.tally.evicted += 1

    def _state_of(self, rule: DeviceTaintRule) -> _RuleState:
        state = self._states.get(rule.meta.uid)
        if state is None:
            state = self._states[rule.meta.uid] = _RuleState(rule)
        return state

    # --- ceilings --------------------------------------------------------------------------------

    def stop_above_ceiling(self, rule: DeviceTaintRule) -> bool:
        """Stops a rule that hits more than its ceiling, until `reset_stop`; returns whether it was stopped just now."""
        state = self._state_of(rule)
        ceiling = self._deps.ceiling_of(rule) if not state.stopped else None
        if ceiling is None:
            return False
        pods, namespaces = self._plans.counts_of(rule.meta.uid)
        if not pods:
            return False  # there is no eviction to stop
        state.stopped = ceiling.exceeded_by(pods + state.tally.counting, namespaces)
        if state.stopped:
            log.error("eviction stopped", extra={"rule": rule.meta.name, "error": state.stopped})
        return bool(state.stopped)

    def reset_stop(self, old: DeviceTaintRule | None, rule: DeviceTaintRule) -> bool:
        """Lifts the stop, because the rule, a limit or the key has changed; returns whether the rule was stopped."""
        state, ceiling = self._state_of(rule), self._deps.ceiling_of(rule)
        state.tally.follow(old, rule, code_of(rule) if ceiling is not None and ceiling.confirmed else "")
        was_stopped, state.stopped = bool(state.stopped), ""
        return was_stopped

    # --- conditions ------------------------------------------------------------------------------

    async def sync(self, name: str, *, last: bool = False) -> float | None:
        """Writes the conditions of a rule if they changed; returns the seconds until it must be checked again, or None.

        `last`: the worker stops, so the conditions are written without waiting for the interval between writes.
        """
        rule = self._deps.inventory.rules.get(name)
        if rule is None:
            return None
        generation = rule.generation
        state, now = self._state_of(rule), self._deps.clock.seconds()
        fresh = state.generation != generation
        if fresh:
            state.generation, state.seen_at, state.forecast = generation, now, None
            known = condition_of(rule.conditions, EVICTION)
            if known is not None and known.observed_generation == generation and known.status == "False":
                state.seen_at -= self._deps.settings.settle_seconds  # reported before a restart, so settled
        expiring = await self._expire(rule)
        if expiring.changed:
            return _SOON_SECONDS
        period = self._deps.settings.condition_seconds
        if not (fresh or last) and state.written_at is not None and now - state.written_at < period:
            return _earliest(period - (now - state.written_at), expiring.recheck_seconds)
        due = await self._conditions(rule, state, generation)
        if due is None:
            return _SOON_SECONDS
        if await self._write(rule, state, due.conditions):
            return _earliest(due.recheck_seconds, expiring.recheck_seconds)
        state.generation = None if fresh else generation  # not written, so the generation is still new
        return _FAILED_SECONDS

    async def _write(self, rule: DeviceTaintRule, state: _RuleState, conditions: list[Condition]) -> bool:
        known = [condition_of(rule.conditions, condition.type) for condition in conditions]
        if known == conditions:
            return True
        failure = await self._deps.writer.set_conditions(rule, conditions)
        if failure is not None:
            self._deps.metrics.count_condition_error()
            log.warning("conditions not written", extra={"rule": rule.meta.name, "error": failure.message})
            return False
        state.written_at = self._deps.clock.seconds()
        ours = condition_of(conditions, EVICTION)
        if ours is not None and ours.reason != state.last_reason:
            state.last_reason = ours.reason
            self._core.recorder.record(rule_event(rule, ConditionReason(ours.reason), ours.message))
        return True

    async def _conditions(self, rule: DeviceTaintRule, state: _RuleState, generation: int) -> _ConditionsToWrite | None:
        """All of our conditions on the rule; None if it has to be counted again, because plans or the rule changed."""
        revision = self._plans.revision
        progress, again = await self._progress(rule, state)
        if self._deps.inventory.rules.get(rule.meta.name) is not rule:
            return None
        if not progress.pending and self._plans.revision != revision:
            return None  # it may have missed a pod that was planned meanwhile
        now = self._deps.clock.now()
        conditions: list[Condition] = []
        ours = self._eviction_state(rule, state, progress)
        if ours is not None:
            known = condition_of(rule.conditions, EVICTION)
            conditions.append(updated(known, EVICTION, ours, generation, now))
        if self._deps.mode is Mode.REPLACEMENT:
            known = condition_of(rule.conditions, IN_TREE)
            conditions.append(
                updated(known, IN_TREE, self._in_tree_state(rule, state, progress), generation, now, any_change=True)
            )
        contested = condition_of(rule.conditions, CONTESTED)
        if contested is not None:
            conditions.append(contested)
        if ours is not None and progress.evicted:
            known = condition_of(rule.conditions, EVICTED_PODS)
            fresh = evicted_pods_condition(progress.evicted)
            conditions.append(updated(known, EVICTED_PODS, fresh, generation, now))
        may_change = ours is not None and (progress.pending > 0 or not progress.settled)
        return _ConditionsToWrite(conditions, again if may_change else None)

    def _eviction_state(self, rule: DeviceTaintRule, state: _RuleState, progress: Progress) -> ConditionState | None:
        """Condition Eviction; None for a rule that this worker does not act on and has not reported on."""
        acts = self._deps.mode.acts
        if is_ours(rule, self._scope):
            stopped = state.stopped if can_judge(rule.selector) or rule.selector is None else _NOT_JUDGED
            return eviction_condition(progress, acts=acts, stopped=stopped)
        if self._scope.asked and rule.effective_effect == NO_EXECUTE and rule.taint.effect != NO_EXECUTE:
            if rule.deleting:
                return ConditionState("False", ConditionReason.NOTHING_TO_DO.value, _BEING_DELETED)
            return eviction_condition(progress, acts=acts, stopped=_WRONG_EFFECT)
        if condition_of(rule.conditions, EVICTION) is not None:
            return ConditionState("False", ConditionReason.NOTHING_TO_DO.value, _NOT_ASKED)
        return None

    def _in_tree_state(self, rule: DeviceTaintRule, state: _RuleState, progress: Progress) -> ConditionState:
        effect = rule.taint.effect
        if effect == NONE and state.forecast is None:
            inventory = self._deps.inventory
            taint = Taint.of_rule(rule, in_tree=False).as_if_evicting(in_tree=False)
            impact = impact_of(inventory, rule.selector, taint, self._deps.clock.now())
            state.forecast = ImpactForecast(impact.devices, impact.allocated, len(impact.pods), len(impact.namespaces))
        return in_tree_condition(effect, progress.pending, progress.namespaces, state.tally.evicted, state.forecast)

    async def _progress(self, rule: DeviceTaintRule, state: _RuleState) -> tuple[Progress, float | None]:
        timeslice = TimeSlice(clock=self._deps.clock.seconds)
        now = self._deps.clock.now()
        namespaces: set[str] = set()
        pending = due = blocked = held = skipped = 0
        next_due = None
        for plan in self._plans.of_rule(rule.meta.uid):
            await timeslice.pause()
            if self._plans.scheduled.get(plan.uid) is not plan:
                continue
            facts = facts_of(self._core, plan)
            if facts.pod is None or facts.pod.deleting or facts.evicted:
                continue
            if exemption(facts.pod, facts.profile) is not None:
                skipped += 1
                continue
            pending += 1
            namespaces.add(plan.pod.meta.namespace)
            step = next_step(facts, now)
            if isinstance(step, Wait) and step.reason is StepReason.EARLY:
                next_due = plan.eviction.due if next_due is None else min(next_due, plan.eviction.due)
                continue
            due += 1
            if isinstance(step, Wait):
                held += 1
            elif plan.blocked or isinstance(self._core.ready.limit_of(plan.uid), BudgetLimit):
                blocked += 1
        settled_in = self._deps.settings.settle_seconds - (self._deps.clock.seconds() - state.seen_at)
        progress = Progress(
            pending=pending,
            namespaces=len(namespaces),
            due=due,
            blocked=blocked,
            held=held,
            evicted=state.tally.total,
            skipped=skipped,
            tolerating_scheduling=len(tolerating_scheduling(self._deps.inventory, rule)) if self._scope.asked else 0,
            next_due=next_due,
            settled=settled_in <= 0,
        )
        return progress, settled_in if settled_in > 0 else self._deps.settings.condition_seconds

    # --- expiry ----------------------------------------------------------------------------------

    async def _expire(self, rule: DeviceTaintRule) -> _ExpiryStep:
        """Takes an expired rule back, once per expiry."""
        if not self._deps.mode.acts:
            return _ExpiryStep()
        what, seconds = expiry_of(rule, self._deps.clock.now())
        match what:
            case Expiry.NONE:
                return _ExpiryStep()
            case Expiry.LATER:
                return _ExpiryStep(recheck_seconds=seconds)
            case Expiry.CONTESTED:
                await self._write_contested(rule, restored=True)
                return _ExpiryStep()
            case Expiry.TAKE_BACK:
                return await self._take_back(rule)

    async def _take_back(self, rule: DeviceTaintRule) -> _ExpiryStep:
        writer = self._deps.writer
        delete = self._deps.settings.delete_expired
        if delete and rule.deleting:
            return _ExpiryStep()  # deleted already; others have to remove its finalizers
        failure = await (writer.delete_rule(rule) if delete else writer.downgrade(rule))
        if failure is not None:
            log.warning("expired rule not taken back", extra={"rule": rule.meta.name, "error": failure.message})
            return _ExpiryStep(recheck_seconds=_FAILED_SECONDS)
        log.info("expired rule taken back", extra={"rule": rule.meta.name, "deleted": delete})
        if not delete:
            await self._write_contested(rule, restored=False)
        return _ExpiryStep(changed=True)

    async def _write_contested(self, rule: DeviceTaintRule, *, restored: bool) -> None:
        known = condition_of(rule.conditions, CONTESTED)
        generation = rule.generation
        fresh = contested_condition(rule, restored=restored)
        condition = updated(known, CONTESTED, fresh, generation, self._deps.clock.now())
        if condition == known or (known is not None and (known.status, known.message) == (fresh.status, fresh.message)):
            return
        ours = [each for each in rule.conditions if each.type in (EVICTION, EVICTED_PODS)]
        theirs = [each for each in rule.conditions if each.type == IN_TREE and self._deps.mode is Mode.REPLACEMENT]
        failure = await self._deps.writer.set_conditions(rule, [*ours, *theirs, condition])
        if failure is not None:
            log.warning("conditions not written", extra={"rule": rule.meta.name, "error": failure.message})


class _ConditionsToWrite(NamedTuple):
    """Conditions to write, and the seconds until they may differ without a change; None if they cannot."""

    conditions: list[Condition]
    recheck_seconds: float | None


class _ExpiryStep(NamedTuple):
    """Whether expiry changed the rule, and the seconds until it must be checked again."""

    changed: bool = False
    recheck_seconds: float | None = None


def _earliest(one: float | None, other: float | None) -> float | None:
    waits = [seconds for seconds in (one, other) if seconds is not None]
    return min(waits, default=None)
