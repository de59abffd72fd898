"""The state of each pod that is evicted, computed for the worker and for the in-tree controller. Pure.

What only the worker knows is left out: its requests in flight, its rates' tokens, and answers of the Eviction API.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import structs

from webhook.admission.impact_text import on_extended_resources
from webhook.api.meta import format_time
from webhook.api.rules import condition_of
from webhook.commands.status.states import (
    Closed,
    DueState,
    PodState,
    PodStatus,
    WaitKind,
    WaitsFor,
    closed_for,
    state_of_ready,
)
from webhook.eviction.conditions import EVICTION, ConditionReason, announced_at
from webhook.eviction.followed_pods import ProfiledPods
from webhook.eviction.gates import GATE_OF
from webhook.eviction.ledger import Ledger, Moment, View
from webhook.eviction.modes import InTree, Mode, scope_of
from webhook.eviction.plan import plan
from webhook.eviction.pod_plan import StepReason, is_stuck, later, opening_text, state_text, together_with
from webhook.eviction.profiles import Grouping, owner_of
from webhook.eviction.room import Room
from webhook.inventory.evictions import Evictions
from webhook.inventory.matching import Evictor
from webhook.inventory.scope import EvictionScope
from webhook.policy.model import InTreeEvictor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from webhook.api.pods import Pod
    from webhook.api.rules import Condition, DeviceTaintRule
    from webhook.commands.status.objects import StatusObjects
    from webhook.eviction.pod_plan import Wait
    from webhook.inventory.evictions import Eviction
    from webhook.policy.model import EvictionProfile, Policy

_PUT_OFF: Final = frozenset({StepReason.HELD, StepReason.COMPLETING, StepReason.WINDOW, StepReason.GANG})
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


class WorkerView:
    """What the worker does, or would do in mode observe, by the plan that a new leader would make."""

    evictor = Evictor.OURS

    def __init__(self, objects: StatusObjects, settings: StatusSettings, scope: EvictionScope) -> None:
        self.scope = scope
        self.acts = settings.mode.acts
        self._settings = settings
        self._objects = objects
        self._inventory = objects.inventory
        self._pods = ProfiledPods(objects.inventory, settings.policy.eviction, objects.facts_of)
        self._keys = {pod.meta.uid: key for key, pod in objects.inventory.pods.items()}
        """Pods of a dump may have no uid, or the same: the last one counts."""
        rules = objects.inventory.rules.values()
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
        """The worker says which rules are over their ceiling: it knows what was confirmed, and evicted before."""
        view, moment = self._view(), Moment(settings.now, 0.0)
        self._hit = view.hit
        ledger = Ledger.restored(view, settings.policy.breaker, moment) if self.acts else Ledger()
        self.tripped = ledger.tripped
        """Drivers whose breaker trips by the taints of its window."""
        self._plan = plan(view, ledger, settings.policy.pause if self.acts else None, moment)
        self._ready = {each.uid: unit for unit in self._plan.eligible for each in unit.members}
        self._closed: dict[int, Closed] = {}
        """What keeps units, by id()."""
        self._room = Room(view, ledger, moment, budgets=objects, profiles=self._pods.profiles, gates=GATE_OF)
        self._room.occupy(self._plan.terminating)
        for key, pod in objects.inventory.pods.items():
            self._room.own(owner_of(pod), key, there=True)

    def _view(self) -> View:
        inventory, now = self._inventory, self._settings.now
        evictions = Evictions(inventory, self.scope, lambda rule: announced_at(rule.conditions, rule.generation) or now)
        evictions.everything()
        hits = evictions.hits().items()
        return View(
            inventory=inventory,
            evictions=evictions,
            hit={key: eviction for key, eviction in hits if self._keys[inventory.pods[key].meta.uid] == key},
            profile_of=self._pods.profile_of,
            gang_of=Grouping(inventory, self._pods.profile_of).gang_of,
            hold_of=self._objects.hold_of,
            group_of=str,
            exceeded=lambda rule, *_: self._stops[rule].message if rule in self._stops else "",
        )

    def statuses(self) -> Iterator[PodStatus]:
        """Yields all pods that are to be evicted, or are terminating while a taint evicts them."""
        for key, pod in self._inventory.pods.items():
            eviction, uid = self._plan.hit.get(key), pod.meta.uid
            if eviction is None or pod.finished:
                continue
            if pod.deleting:
                if key in self._hit:
                    yield leaving(pod, eviction, self.evictor, self._pods.profile_of(pod).settings, self._settings.now)
            elif self._keys[uid] == key and (uid in self._plan.going or uid in self._plan.waits):
                yield self._staying(pod, eviction)

    def _staying(self, pod: Pod, eviction: Eviction) -> PodStatus:
        uid, tainted_at = pod.meta.uid, _tainted_at(eviction)
        wait, going, unit = self._plan.waits.get(uid), self._plan.going.get(uid), self._plan.units.get(uid)
        due = later(eviction.due, self._pods.profile_of(pod).settings.grace_seconds) if going is None else going.due
        due = due if unit is None else unit.due
        stops = [self._stops[each.rule_uid] for each in eviction.reasons if each.rule_uid in self._stops]
        if going is None and (len(stops) == len(eviction.reasons) or (wait and wait.reason is StepReason.STOPPED)):
            waits_for = WaitsFor(WaitKind.STOP, f"stopped: {stops[0].message}")
            since = stops[0].last_transition_time
            return PodStatus(pod, eviction, self.evictor, PodState.STOPPED, due, since, waits_for)
        if wait is not None and going is None and wait.reason is not StepReason.BREAKER:
            waits_for = WaitsFor(WaitKind.EXEMPTION, f"nothing: {wait.reason.value}")
            return PodStatus(pod, eviction, self.evictor, PodState.SKIPPED, None, None, waits_for)
        if all(reason.rule_uid in self._unannounced for reason in eviction.reasons):
            return PodStatus(pod, eviction, self.evictor, PodState.NOT_DUE, None, tainted_at, _UNANNOUNCED)
        if self._settings.now < due:
            other = wait is not None and wait.cause is StepReason.EARLY
            waits_for = self._together(wait) if wait and other else WaitsFor(WaitKind.TIME, "its due time")
            return PodStatus(pod, eviction, self.evictor, PodState.NOT_DUE, due, tainted_at, waits_for)
        state, waits_for, since = self._due(pod, wait)
        since = due if since is None else max(due, since)
        return PodStatus(pod, eviction, self.evictor, state, due, since, waits_for)

    def _due(self, pod: Pod, wait: Wait | None) -> DueState:
        """The state of a pod whose due time is over."""
        if wait is not None and wait.reason in _PUT_OFF:
            return self._put_off(pod, wait)
        if not self.acts:
            return DueState(PodState.DUE, _OBSERVED if self._settings.worker else _NO_WORKER)
        if wait is None:
            unit = self._ready[pod.meta.uid]
            if id(unit) not in self._closed:  # a gang may have thousands of pods
                self._closed[id(unit)] = closed_for(self._room, unit)
            return state_of_ready(self._room, unit, self._plan.going[pod.meta.uid], self._closed[id(unit)])
        if wait.reason is StepReason.BREAKER:
            text = f"breaker: too many devices of {wait.because} were tainted just now"
            return DueState(PodState.LIMITED, WaitsFor(WaitKind.BREAKER, text, wait.because))
        pause = self._settings.policy.pause
        assert pause is not None  # the plan of a new leader has no retries, and no requests under way
        text = f"the end of the pause at {format_time(pause.until)}{f': {pause.why}' if pause.why else ''}"
        return DueState(PodState.PAUSED, WaitsFor(WaitKind.PAUSE, text))

    def _put_off(self, pod: Pod, wait: Wait) -> DueState:
        """The state of a pod that waits for a window, its end, the end of a hold, or another one of its unit."""
        if wait.reason is StepReason.WINDOW:
            unit = self._plan.units.get(pod.meta.uid)
            members = unit.members if unit is not None else (self._plan.going[pod.meta.uid],)
            profiles = {each.profile.position: each.profile.settings for each in members}
            opening = opening_text(profiles.values(), self._settings.now)
            text = f"a window, which opens at {opening}" if opening else "a window"
            return DueState(PodState.PUT_OFF, WaitsFor(WaitKind.WINDOW, text))
        if wait.reason is StepReason.COMPLETING:
            text = f"its end, at most until {_until(wait)}"
            return DueState(PodState.PUT_OFF, WaitsFor(WaitKind.COMPLETION, text))
        if wait.reason is StepReason.GANG:
            return DueState(PodState.HELD if wait.cause is StepReason.HELD else PodState.PUT_OFF, self._together(wait))
        text = f"hold: {wait.because}" if wait.because else "a hold without a text"
        return DueState(PodState.HELD, WaitsFor(WaitKind.HOLD, text))

    def _together(self, wait: Wait) -> WaitsFor:
        """What a pod waits for that waits for another one that it goes together with."""
        assert wait.cause is not None
        text = f"{together_with(wait.other)} and which is {state_text(wait.cause)}"
        if wait.cause is StepReason.HELD:
            other = self._plan.waits[self._inventory.pods[wait.other].meta.uid]
            text += f": {other.because}" if other.because else ""
        elif wait.cause is StepReason.COMPLETING:
            text += f", at most until {_until(wait)}"
        return WaitsFor(WaitKind.GANG, text, pods=(wait.other,))


class InTreeView:
    """What the in-tree controller does: it evicts every pod at its due time, without limits and groups."""

    evictor = Evictor.IN_TREE
    acts = True
    tripped = frozenset[str]()
    scope = EvictionScope(Evictor.IN_TREE)

    def __init__(self, objects: StatusObjects, settings: StatusSettings) -> None:
        self._objects = objects
        self._now = settings.now
        self._pods = ProfiledPods(objects.inventory, settings.policy.eviction, objects.facts_of)
        self._evictions = Evictions(objects.inventory, self.scope, lambda _: settings.now)
        self._evictions.everything()

    def statuses(self) -> Iterator[PodStatus]:
        """Yields all pods that are to be evicted, or are terminating while a taint evicts them."""
        for pod in self._objects.inventory.pods.values():
            eviction = None if pod.finished else self._evictions.eviction_of(pod)
            if eviction is None:
                continue
            if pod.deleting:
                yield leaving(pod, eviction, self.evictor, self._pods.profile_of(pod).settings, self._now)
            else:
                yield self._staying(pod, eviction)

    def _staying(self, pod: Pod, eviction: Eviction) -> PodStatus:
        due = eviction.due
        if self._now < due:
            waits_for, since = WaitsFor(WaitKind.TIME, "its due time"), _tainted_at(eviction)
            return PodStatus(pod, eviction, self.evictor, PodState.NOT_DUE, due, since, waits_for)
        hit = self._evictions.evicts_users_of
        plain = [entry for entry in pod.claims if hit(f"{pod.meta.namespace}/{entry.claim}")]
        waits_for = _THEIRS
        if pod.extended_claim and not plain:
            who = on_extended_resources(self._objects.inventory.servers)
            waits_for = WaitsFor(WaitKind.IN_TREE, f"{_THEIRS.message}, for an extended resource: {who}")
        return PodStatus(pod, eviction, self.evictor, PodState.DUE, due, due, waits_for)


def views_of(objects: StatusObjects, settings: StatusSettings) -> tuple[WorkerView | InTreeView, ...]:
    """Returns what the worker does, and what the in-tree controller does beside it."""
    scope = scope_of(settings.mode, settings.in_tree)
    if scope.no_execute is Evictor.IN_TREE:
        scope = structs.replace(scope, no_execute=None)  # in mode observe the other view has those taints
    ours = WorkerView(objects, settings, scope)
    if settings.in_tree is InTree.ABSENT or scope.no_execute is Evictor.OURS:
        return (ours,)
    return ours, InTreeView(objects, settings)


def leaving(pod: Pod, eviction: Eviction, evictor: Evictor, settings: EvictionProfile, now: datetime) -> PodStatus:
    """Returns the state of a pod that is terminating; `settings` say when it counts as stuck."""
    if is_stuck(pod, settings, now):
        assert pod.gone_by is not None
        text = f"its end, expected at {format_time(pod.gone_by)}: see its finalizers and its node"
        return PodStatus(
            pod, eviction, evictor, PodState.STUCK, eviction.due, pod.gone_by, WaitsFor(WaitKind.END, text)
        )
    text = "its end" if pod.gone_by is None else f"its end, by {format_time(pod.gone_by)}"
    return PodStatus(pod, eviction, evictor, PodState.TERMINATING, eviction.due, None, WaitsFor(WaitKind.END, text))


def _until(wait: Wait) -> str:
    assert wait.until is not None
    return format_time(wait.until)


def _tainted_at(eviction: Eviction) -> datetime | None:
    """When the first of the taints was added."""
    times = [reason.taint.time_added for reason in eviction.reasons if reason.taint.time_added is not None]
    return min(times, default=None)
