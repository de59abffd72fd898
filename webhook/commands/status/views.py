"""The state of each pod that is evicted, computed for the worker and for the in-tree controller. Pure.

What only the worker knows is left out: its requests in flight, its rates' tokens, and answers of the Eviction API.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec import structs

from webhook.admission.impact_text import on_extended_resources
from webhook.api.meta import format_time
from webhook.api.rules import condition_of
from webhook.commands.status.waits import DueState, DueWaits, PodState, PodStatus, WaitKind, WaitsFor
from webhook.eviction.breaker import Breaker
from webhook.eviction.conditions import EVICTION, ConditionReason, announced_at
from webhook.eviction.modes import InTree, Mode, scope_of
from webhook.eviction.plans import Plans
from webhook.eviction.pod_plan import StepReason, stays
from webhook.eviction.profiles import Profiles, classes_of
from webhook.eviction.step import (
    Evict,
    Facts,
    NoAction,
    Wait,
    next_step,
    opening_text,
    settings_of,
    state_text,
    together_with,
    unit_wait,
)
from webhook.eviction.units import due_of
from webhook.flowcontrol.clock import Clock
from webhook.inventory.evictions import Evictions
from webhook.inventory.matching import Evictor
from webhook.inventory.scope import EvictionScope
from webhook.policy.model import InTreeEvictor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from webhook.api.pods import Pod
    from webhook.api.rules import Condition, DeviceTaintRule
    from webhook.commands.status.waits import StatusObjects
    from webhook.eviction.pod_plan import PodPlan
    from webhook.eviction.profiles import Profile
    from webhook.eviction.step import Step
    from webhook.eviction.units import Unit
    from webhook.inventory.evictions import Eviction
    from webhook.policy.model import Policy

_OBSERVED: Final = WaitsFor(WaitKind.OBSERVE, "nothing: the worker evicts no pod in mode observe")
_NO_WORKER: Final = WaitsFor(WaitKind.OBSERVE, "nothing: no eviction worker is known")
_THEIRS: Final = WaitsFor(WaitKind.IN_TREE, "the in-tree controller")
_UNANNOUNCED: Final = WaitsFor(
    WaitKind.ANNOUNCEMENT, "the worker, which has not written the condition of the rule yet; check that it runs"
)


@dataclass(frozen=True, slots=True)
class StatusSettings:
    """How the cluster evicts."""

    policy: Policy
    mode: Mode
    in_tree: InTree
    now: datetime
    mode_said: bool = True
    """Whether a flag or the worker's Lease says the mode; else the conditions on rules show it."""
    worker: bool = True
    """Whether there is a worker, as far as Lease and conditions show."""


def in_tree_of(policy: Policy) -> InTree:
    """Whether the in-tree controller runs, according to the policy, which mode observe believes, too."""
    return InTree.ABSENT if policy.in_tree_evictor is InTreeEvictor.ABSENT else InTree.ACTIVE


def mode_by_conditions(rules: Iterable[DeviceTaintRule], in_tree: InTree) -> Mode | None:
    """The worker's mode by the conditions that it has written, for where no Lease says it; None if there are none."""
    known = [condition_of(rule.conditions, EVICTION) for rule in rules]
    reasons = {condition.reason for condition in known if condition is not None}
    if not reasons:
        return None
    if ConditionReason.OBSERVE_ONLY in reasons:
        return Mode.OBSERVE
    return Mode.REPLACEMENT if in_tree is InTree.ABSENT else Mode.DELEGATED


def current(rule: DeviceTaintRule, kind: str = EVICTION) -> Condition | None:
    """The condition of this type, unless it is about an earlier generation of the rule."""
    known = condition_of(rule.conditions, kind)
    return known if known is not None and known.observed_generation == rule.generation else None


class FrozenClock(Clock):
    """The moment at which the cluster was read."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        """Wall-clock time in UTC."""
        return self._now

    def seconds(self) -> float:
        """Does not go on."""
        return 0.0


class EvictionView:
    """What one evictor does, with the taints in its scope."""

    def __init__(
        self,
        objects: StatusObjects,
        settings: StatusSettings,
        evictor: Evictor,
        scope: EvictionScope,
    ) -> None:
        self.evictor = evictor
        self.scope = scope
        self.acts = settings.mode.acts or evictor is Evictor.IN_TREE
        """Whether it evicts pods; the worker in mode observe does not."""
        self._objects = objects
        self._settings = settings
        self._profiles = Profiles(settings.policy.eviction)
        now, rules = settings.now, objects.inventory.rules.values()
        self._unannounced = {
            rule.meta.uid
            for rule in (rules if self.acts else ())
            if rule.taint.effect != rule.effective_effect and not announced_at(rule.conditions, rule.generation)
        }
        """Rules with `/evict` of which the worker first has to write its own condition."""
        self._stops = {
            rule.meta.uid: condition
            for rule in rules
            if (condition := current(rule)) is not None and condition.reason == ConditionReason.STOPPED
        }
        self.evictions = Evictions(
            objects.inventory, scope, lambda rule: announced_at(rule.conditions, rule.generation) or now
        )
        plans = self._plans = Plans(
            objects.inventory, self.evictions, self._profile_of, never=lambda plan: stays(plan, returns="")
        )
        breaker = self._breaker = Breaker(
            objects.inventory,
            self.evictions,
            FrozenClock(now),
            lambda: settings.policy.breaker,
            on_trip=lambda _driver, _seconds: None,
            on_later=lambda _uid, _seconds: None,
        )
        keys = self.evictions.everything()
        _plan(plans, keys)
        for key in keys:
            self._give_up(key, objects.inventory.pods[key])
        breaker.start()
        self._waits = DueWaits(objects, plans, lambda position: self._profiles.all[position], breaker)

    @property
    def tripped(self) -> frozenset[str]:
        """Drivers whose breaker trips by the taints of its window, if the worker acts on taints in slices."""
        return self._breaker.tripped if self.acts and self.evictor is Evictor.OURS else frozenset()

    def statuses(self) -> Iterator[PodStatus]:
        """All pods that are to be evicted, or are terminating while a taint evicts them."""
        for key, pod in self._objects.inventory.pods.items():
            if pod.finished:
                continue
            if pod.deleting:
                eviction = self.evictions.eviction_of(pod)
                if eviction is not None:
                    yield self._leaving(pod, eviction)
            elif (
                (plan := self._plans.scheduled.get(pod.meta.uid)) is not None
                and plan.key == key
                # The in-tree controller knows of no groups: a pod goes because of its own claims, or stays.
                and (self.evictor is Evictor.OURS or self.evictions.eviction_of(pod) is not None)
            ):
                yield self._staying(plan)

    def _profile_of(self, pod: Pod) -> Profile:
        classes = classes_of(self._objects.inventory, pod) if self._profiles.ask_for_classes else ()
        return self._profiles.of(pod, self._objects.facts_of(pod.meta.namespace), classes)

    # --- pods that terminate ---------------------------------------------------------------------

    def _stuck_at(self, pod: Pod) -> datetime | None:
        if pod.gone_by is None:
            return None
        return pod.gone_by + timedelta(seconds=self._profile_of(pod).settings.stuck_after_seconds)

    def _give_up(self, key: str, pod: Pod) -> None:
        """Limits do not count pods that are stuck."""
        stuck_at = self._stuck_at(pod) if pod.deleting else None
        if stuck_at is not None and stuck_at <= self._settings.now:
            self._plans.give_up(key, pod.meta.uid)

    def _leaving(self, pod: Pod, eviction: Eviction) -> PodStatus:
        stuck_at, gone_by = self._stuck_at(pod), pod.gone_by
        if stuck_at is not None and stuck_at <= self._settings.now:
            assert gone_by is not None
            text = f"its end, expected at {format_time(gone_by)}: see its finalizers and its node"
            return PodStatus(
                pod, eviction, self.evictor, PodState.STUCK, eviction.due, gone_by, WaitsFor(WaitKind.END, text)
            )
        text = "its end" if gone_by is None else f"its end, by {format_time(gone_by)}"
        waits_for = WaitsFor(WaitKind.END, text)
        return PodStatus(pod, eviction, self.evictor, PodState.TERMINATING, eviction.due, None, waits_for)

    # --- pods that are still to be evicted -------------------------------------------------------

    def _staying(self, plan: PodPlan) -> PodStatus:
        if self.evictor is Evictor.IN_TREE:
            return self._in_tree(plan)
        eviction, step = plan.eviction, self._step(plan)
        unit = None if isinstance(step, NoAction) else self._plans.units.of(plan)
        tainted_at, due = _tainted_at(eviction), due_of(plan) if unit is None else unit.due
        if all(reason.rule_uid in self._stops for reason in eviction.reasons):
            condition = self._stops[eviction.reasons[0].rule_uid]
            since, waits_for = condition.last_transition_time, WaitsFor(WaitKind.STOP, f"stopped: {condition.message}")
            return PodStatus(plan.pod, eviction, self.evictor, PodState.STOPPED, due, since, waits_for)
        if isinstance(step, NoAction):
            waits_for = WaitsFor(WaitKind.EXEMPTION, f"nothing: {step.reason.value}")
            return PodStatus(plan.pod, eviction, self.evictor, PodState.SKIPPED, None, None, waits_for)
        if all(reason.rule_uid in self._unannounced for reason in eviction.reasons):
            return PodStatus(plan.pod, eviction, self.evictor, PodState.NOT_DUE, None, tainted_at, _UNANNOUNCED)
        if unit is not None and isinstance(step, Evict):
            step = unit_wait(unit, plan, self._settings.now, self._step) or step
        if isinstance(step, Wait) and StepReason.EARLY in (step.reason, step.cause):
            waits_for = WaitsFor(WaitKind.TIME, "its due time") if step.other is None else self._together(step)
            return PodStatus(plan.pod, eviction, self.evictor, PodState.NOT_DUE, due, tainted_at, waits_for)
        state, waits_for, since = self._put_off(plan, unit, step) or self._due(plan, isinstance(step, Wait))
        since = due if since is None else max(due, since)
        return PodStatus(plan.pod, eviction, self.evictor, state, due, since, waits_for)

    def _step(self, plan: PodPlan) -> Step:
        """What the worker would do with the pod if it went alone, whether it acts or only observes."""
        hold = self._objects.hold_of(plan.pod)
        facts = Facts(plan.pod, plan.eviction, plan.profile.settings, hold, plan.held_by)
        return next_step(facts, self._settings.now)

    def _put_off(self, plan: PodPlan, unit: Unit | None, step: Step) -> DueState | None:
        """The state of a pod that waits for a window, is left to complete, or waits for another one of its unit."""
        now = self._settings.now
        if isinstance(step, Wait) and step.reason is StepReason.WINDOW:
            opening = opening_text(settings_of(unit, plan), now)
            text = f"a window, which opens at {opening}" if opening else "a window"
            return DueState(PodState.PUT_OFF, WaitsFor(WaitKind.WINDOW, text))
        if isinstance(step, Wait) and step.reason is StepReason.COMPLETING:
            text = f"its end, at most until {format_time(now + timedelta(seconds=step.seconds))}"
            return DueState(PodState.PUT_OFF, WaitsFor(WaitKind.COMPLETION, text))
        if isinstance(step, Wait) and step.reason is StepReason.GANG:
            state = PodState.HELD if step.cause is StepReason.HELD else PodState.PUT_OFF
            return DueState(state, self._together(step))
        return None

    def _together(self, step: Wait) -> WaitsFor:
        """What a pod waits for that waits for another one that it goes together with."""
        assert step.other is not None
        text = f"{together_with(step.other.key)} and which is {state_text(step)}"
        if step.cause is StepReason.HELD:
            hold = self._objects.hold_of(step.other.pod)
            text += f": {hold}" if hold else ""
        elif step.cause is StepReason.COMPLETING:
            text += f", at most until {format_time(self._settings.now + timedelta(seconds=step.seconds))}"
        return WaitsFor(WaitKind.GANG, text, pods=(step.other.key,))

    def _due(self, plan: PodPlan, held: bool) -> DueState:  # noqa: FBT001 -- by position, once
        if held:
            text = self._objects.hold_of(plan.pod) or ""
            return DueState(
                PodState.HELD, WaitsFor(WaitKind.HOLD, f"hold: {text}" if text else "a hold without a text")
            )
        if not self.acts:
            return DueState(PodState.DUE, _OBSERVED if self._settings.worker else _NO_WORKER)
        pause = self._settings.policy.pause
        if pause is not None and self._settings.now < pause.until:
            why = f": {pause.why}" if pause.why else ""
            text = f"the end of the pause at {format_time(pause.until)}{why}"
            return DueState(PodState.PAUSED, WaitsFor(WaitKind.PAUSE, text))
        return self._waits.of(plan)

    def _in_tree(self, plan: PodPlan) -> PodStatus:
        """It evicts every pod at its due time, without limits."""
        eviction, due = plan.eviction, plan.eviction.due
        if self._settings.now < due:
            waits_for, since = WaitsFor(WaitKind.TIME, "its due time"), _tainted_at(eviction)
            return PodStatus(plan.pod, eviction, self.evictor, PodState.NOT_DUE, due, since, waits_for)
        pod, hit = plan.pod, self.evictions.evicts_users_of
        plain = [entry for entry in pod.claims if hit(f"{pod.meta.namespace}/{entry.claim}")]
        waits_for = _THEIRS
        if pod.extended_claim and not plain:
            who = on_extended_resources(self._objects.inventory.servers)
            waits_for = WaitsFor(WaitKind.IN_TREE, f"{_THEIRS.message}, for an extended resource: {who}")
        return PodStatus(pod, eviction, self.evictor, PodState.DUE, due, due, waits_for)


def views_of(objects: StatusObjects, settings: StatusSettings) -> tuple[EvictionView, ...]:
    """What the worker does, and what the in-tree controller does beside it."""
    scope = scope_of(settings.mode, settings.in_tree)
    if scope.no_execute is Evictor.IN_TREE:
        scope = structs.replace(scope, no_execute=None)  # in mode observe the other view has those taints
    ours = EvictionView(objects, settings, Evictor.OURS, scope)
    if settings.in_tree is InTree.ABSENT or scope.no_execute is Evictor.OURS:
        return (ours,)
    return ours, EvictionView(objects, settings, Evictor.IN_TREE, EvictionScope(Evictor.IN_TREE))


def _plan(plans: Plans, keys: Iterable[str]) -> None:
    """Plans all of these pods, and again those that were planned before the pods because of which they go."""
    while keys:
        plans.replan(keys)
        keys = plans.companions.others_of(sorted(plans.companions.changed))
        plans.companions.changed.clear()


def _tainted_at(eviction: Eviction) -> datetime | None:
    """When the first of the taints was added."""
    times = [reason.taint.time_added for reason in eviction.reasons if reason.taint.time_added is not None]
    return min(times, default=None)
