"""The state of each pod that is evicted, computed for the worker and for the in-tree controller. Pure.

What only the worker knows is left out: its requests in flight, its rates' tokens, and answers of the Eviction API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple, Self

import msgspec
from msgspec import structs

from webhook.admission.impact_text import on_extended_resources
from webhook.api.messages import counted
from webhook.api.meta import format_time
from webhook.api.pods import DisruptionBudget, Pod
from webhook.api.rules import Condition, DeviceTaintRule, condition_of
from webhook.commands.shared.objects import StatusObjects
from webhook.eviction.conditions import EVICTION, ConditionReason, announced_at
from webhook.eviction.expiry import Expiry, expiry_of, has_expired_owner
from webhook.eviction.followed_pods import ProfiledPods
from webhook.eviction.ledger import Ledger, Moment, View
from webhook.eviction.modes import InTree, Mode, scope_of
from webhook.eviction.plan import plan
from webhook.eviction.pod_plan import Going, StepReason, Unit, Wait, is_stuck, opening_text, state_text, together_with
from webhook.eviction.ports import BudgetLimit, Limit, NamespaceLimit, OverallLimit, OwnerLimit
from webhook.eviction.profiles import max_unavailable, owner_of
from webhook.eviction.room import Places, Room
from webhook.inventory.evictions import Eviction, Evictions, later
from webhook.inventory.gangs import root_owner
from webhook.inventory.pools import Evictor
from webhook.inventory.targets import EvictionScope
from webhook.policy.model import EvictionProfile, Policy


class PodState(StrEnum):
    """Where a pod stands that a taint evicts. The values are those of the JSON, in the order of the tables."""

    NOT_DUE = "notDue"
    DUE = "due"
    HELD = "held"
    """By annotation `/hold`."""
    PUT_OFF = "putOff"
    """Until a window opens, or until it completes."""
    BLOCKED = "blocked"
    """By a disruption budget."""
    LIMITED = "limited"
    """By a limit of its profile, or the breaker."""
    PAUSED = "paused"
    """By `pause` in the policy."""
    STOPPED = "stopped"
    """The worker has stopped the rule."""
    SKIPPED = "skipped"
    """It is never evicted, such as a pod of a DaemonSet."""
    TERMINATING = "terminating"
    STUCK = "stuck"
    """Terminating for longer than its grace period and `stuckAfter`."""

    @property
    def pending(self) -> bool:
        """Tells whether the pod is still to be evicted."""
        return self not in (PodState.SKIPPED, PodState.TERMINATING, PodState.STUCK)


class WaitKind(StrEnum):
    """What a pod waits for; the values are those of the JSON. `state`: the usual one of pods that wait for it."""

    state: PodState

    def __new__(cls, value: str, state: PodState) -> Self:
        """Return the member with its state beside its value."""
        member = str.__new__(cls, value)
        member._value_, member.state = value, state
        return member

    TIME = "time", PodState.NOT_DUE
    ANNOUNCEMENT = "announcement", PodState.NOT_DUE
    """The worker has not written the condition of the rule yet, and evicts no pod before."""
    HOLD = "hold", PodState.HELD
    WINDOW = "window", PodState.PUT_OFF
    COMPLETION = "completion", PodState.PUT_OFF
    """Its own end, by `waitForCompletion`."""
    GANG = "gang", PodState.PUT_OFF
    """Another pod that it goes together with."""
    BUDGET = "disruptionBudget", PodState.BLOCKED
    OVERALL = "overall", PodState.LIMITED
    NAMESPACE = "perNamespace", PodState.LIMITED
    OWNER = "perOwnerUnavailable", PodState.LIMITED
    BREAKER = "breaker", PodState.LIMITED
    PAUSE = "pause", PodState.PAUSED
    STOP = "stop", PodState.STOPPED
    RATE = "rate", PodState.DUE
    """Its turn, as rates allow."""
    IN_TREE = "inTreeController", PodState.DUE
    OBSERVE = "observe", PodState.DUE
    """The worker evicts no pod in mode observe."""
    EXEMPTION = "exemption", PodState.SKIPPED
    """Nothing: it is never evicted."""
    END = "end", PodState.TERMINATING
    """Its containers have to end."""


class WaitsFor(msgspec.Struct, frozen=True):
    """What a pod waits for, in words and as fields.

    `name`: of budgets (separated by `, `), an owner, a namespace or a driver. `limit` and `count`: the limit's number,
    and how many places are taken now; pods that go together take one. `pods`: those that do, as `namespace/name`, where
    an owner limits; or the one that this pod waits for, where that is of its gang or shares a claim with it.
    """

    kind: WaitKind
    message: str
    name: str | None = None
    limit: int | None = None
    count: int | None = None
    pods: list[str] = []


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A pod at one moment, with the rules, and drivers of slices, whose taints evict it."""

    namespace: str
    name: str
    uid: str
    node: str
    rules: list[str]
    drivers: list[str]
    evictor: Evictor
    state: PodState
    due: datetime | None
    """Includes the profile's grace; None where no time is known yet."""
    since: datetime | None
    """Since when it is in this state; None if that cannot be known."""
    waits_for: WaitsFor


_SIBLINGS_SHOWN: Final = 3
_DUE_TIME: Final = WaitsFor(WaitKind.TIME, "its due time")
_PUT_OFF: Final = frozenset({StepReason.HELD, StepReason.COMPLETING, StepReason.WINDOW, StepReason.GANG})
_OBSERVED: Final = WaitsFor(WaitKind.OBSERVE, "nothing: the worker evicts no pod in mode observe")
_NO_WORKER: Final = WaitsFor(WaitKind.OBSERVE, "nothing: no eviction worker is known")
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


def mode_by_conditions(rules: Iterable[DeviceTaintRule], in_tree: InTree) -> Mode | None:
    """Return the worker's mode by the conditions that it has written, where no Lease says it; None without any."""
    known = [condition_of(rule.conditions, EVICTION) for rule in rules]
    reasons = {condition.reason for condition in known if condition is not None}
    if not reasons:
        return None
    if ConditionReason.OBSERVE_ONLY in reasons:
        return Mode.OBSERVE
    return Mode.REPLACEMENT if in_tree is InTree.ABSENT else Mode.DELEGATED


def current(rule: DeviceTaintRule, kind: str = EVICTION) -> Condition | None:
    """Return the condition of this type, unless it is about an earlier generation of the rule."""
    known = condition_of(rule.conditions, kind)
    return known if known is not None and known.observed_generation == rule.generation else None


class EvictorView(NamedTuple):
    """What the worker or the in-tree controller does with pods."""

    evictor: Evictor
    scope: EvictionScope
    acts: bool
    """Whether it evicts pods at all."""
    tripped: frozenset[str]
    """Drivers whose breaker trips by the taints of its window."""
    statuses: list[PodStatus]
    """All pods that are to be evicted, or are terminating while a taint evicts them."""


def views_of(objects: StatusObjects, settings: StatusSettings) -> list[EvictorView]:
    """Return what the worker does, and what the in-tree controller does beside it."""
    scope, theirs = scope_of(settings.mode, settings.in_tree), EvictionScope(Evictor.IN_TREE)
    if scope.no_execute is Evictor.IN_TREE:
        scope = structs.replace(scope, no_execute=None)  # in mode observe the other view has those taints
    worker = WorkerView(objects, settings, scope)
    views = [EvictorView(Evictor.OURS, scope, settings.mode.acts, worker.tripped, list(worker.statuses()))]
    if settings.in_tree is not InTree.ABSENT and scope.no_execute is not Evictor.OURS:
        found = list(_in_tree_statuses(objects, settings, theirs))
        views.append(EvictorView(Evictor.IN_TREE, theirs, acts=True, tripped=frozenset(), statuses=found))
    return views


def _status(
    pod: Pod,
    eviction: Eviction,
    evictor: Evictor,
    waits_for: WaitsFor,
    due: datetime | None,
    since: datetime | None = None,
) -> PodStatus:
    return PodStatus(
        pod.meta.namespace,
        pod.meta.name,
        pod.meta.uid,
        pod.node_name,
        sorted({reason.rule for reason in eviction.reasons if reason.rule}),
        sorted({reason.driver for reason in eviction.reasons if not reason.rule}),
        evictor,
        waits_for.kind.state,
        due,
        since,
        waits_for,
    )


def _leaving(pod: Pod, eviction: Eviction, evictor: Evictor, settings: EvictionProfile, now: datetime) -> PodStatus:
    """Return the state of a pod that is terminating; `settings` say when it counts as stuck."""
    due, end = eviction.due, pod.grace_ends
    if is_stuck(pod, settings, now):
        assert end is not None
        waits_for = WaitsFor(WaitKind.END, f"its end, expected at {format_time(end)}: see its finalizers and its node")
        return structs.replace(_status(pod, eviction, evictor, waits_for, due, end), state=PodState.STUCK)
    text = "its end" if end is None else f"its end, by {format_time(end)}"
    return _status(pod, eviction, evictor, WaitsFor(WaitKind.END, text), due)


def _tainted_at(eviction: Eviction) -> datetime | None:
    """Return when the first of the taints was added."""
    times = [reason.taint.time_added for reason in eviction.reasons if reason.taint.time_added is not None]
    return min(times, default=None)


def _in_tree_statuses(objects: StatusObjects, settings: StatusSettings, scope: EvictionScope) -> Iterator[PodStatus]:
    """Yield what the in-tree controller does: it evicts every pod at its due time, without limits and groups."""
    evictions = Evictions(objects.inventory, scope, lambda _: settings.now)
    evictions.everything()
    profiled = ProfiledPods(objects.inventory, settings.policy.eviction, objects.facts_of)
    for pod in objects.inventory.pods.values():
        eviction = None if pod.finished else evictions.eviction_of(pod)
        if eviction is None:
            continue
        if pod.deleting:
            yield _leaving(pod, eviction, Evictor.IN_TREE, profiled.profile_of(pod).settings, settings.now)
        elif settings.now < eviction.due:
            yield _status(pod, eviction, Evictor.IN_TREE, _DUE_TIME, eviction.due, _tainted_at(eviction))
        else:
            text = "the in-tree controller"
            plain = [each for each in pod.claims if evictions.evicts_users_of(f"{pod.meta.namespace}/{each.claim}")]
            if pod.extended_claim and not plain:
                text += f", for an extended resource: {on_extended_resources(objects.inventory.servers)}"
            waits_for = WaitsFor(WaitKind.IN_TREE, text)
            yield _status(pod, eviction, Evictor.IN_TREE, waits_for, eviction.due, eviction.due)


class WorkerView:
    """What the worker does, or would do in mode observe, by the plan that a new leader would make."""

    def __init__(self, objects: StatusObjects, settings: StatusSettings, scope: EvictionScope) -> None:
        self._acts = settings.mode.acts
        self._settings = settings
        self._objects = objects
        self._inventory = objects.inventory
        self._pods = ProfiledPods(objects.inventory, settings.policy.eviction, objects.facts_of)
        self._keys = {pod.meta.uid: key for key, pod in objects.inventory.pods.items()}
        """Pods of a dump may have no uid, or the same: the last one counts."""
        rules = objects.inventory.rules.values()
        self._unannounced = {
            rule.meta.uid
            for rule in (rules if self._acts else ())
            if rule.taint.effect != rule.effective_effect and not announced_at(rule.conditions, rule.generation)
        }
        """Rules with `/evict` of which the worker first has to write its own condition."""
        self._stops = {
            rule.meta.uid: condition
            for rule in rules
            if (condition := current(rule)) is not None and condition.reason == ConditionReason.STOPPED
        }
        """The worker says which rules are over their ceiling: it knows what was confirmed, and evicted before."""
        inventory, moment = objects.inventory, Moment(settings.now, 0.0)
        evictions = Evictions(
            inventory, scope, lambda rule: announced_at(rule.conditions, rule.generation) or settings.now
        )
        evictions.expired = self._expired
        evictions.everything()
        hits = evictions.hits().items()
        self._hit = {key: hit for key, hit in hits if self._keys[inventory.pods[key].meta.uid] == key}
        view = View(
            inventory=inventory,
            evictions=evictions,
            hit=self._hit,
            profile_of=self._pods.profile_of,
            hold_of=objects.hold_of,
            group_of=str,
            exceeded=lambda rule, *_: self._stops[rule].message if rule in self._stops else "",
        )
        ledger = Ledger.restored(view, settings.policy.breaker, moment) if self._acts else Ledger()
        self.tripped = ledger.tripped
        self._plan = plan(view, ledger, settings.policy.pause if self._acts else None, moment)
        self._ready = {each.uid: unit for unit in self._plan.eligible for each in unit.members}
        self._closed: dict[int, Limit | None] = {}
        """What keeps units, by id()."""
        self._room = Room(view, ledger, moment, budgets=objects, profiles=self._pods.profiles)
        del self._room.gate_of[BudgetLimit]  # `short` says more
        self._room.occupy(self._plan.terminating)
        for key, pod in objects.inventory.pods.items():
            self._room.own(owner_of(pod), key, there=True)

    def statuses(self) -> Iterator[PodStatus]:
        """Yield all pods that are to be evicted, or are terminating while a taint evicts them."""
        for key, pod in self._inventory.pods.items():
            eviction, uid = self._plan.hit.get(key), pod.meta.uid
            if eviction is None or pod.finished:
                continue
            if pod.deleting:
                if key in self._hit:
                    settings = self._pods.profile_of(pod).settings
                    yield _leaving(pod, eviction, Evictor.OURS, settings, self._settings.now)
            elif self._keys[uid] == key and (uid in self._plan.going or uid in self._plan.waits):
                yield self._staying(pod, eviction)

    def _expired(self, rule: DeviceTaintRule) -> bool:
        if not self._acts:
            return False
        what = partial(expiry_of, now=self._settings.now)
        return what(rule)[0] is Expiry.TAKE_BACK or bool(has_expired_owner(rule, self._inventory, what))

    def _staying(self, pod: Pod, eviction: Eviction) -> PodStatus:
        status = partial(_status, pod, eviction, Evictor.OURS)
        uid, tainted_at = pod.meta.uid, _tainted_at(eviction)
        wait, going, unit = self._plan.waits.get(uid), self._plan.going.get(uid), self._plan.units.get(uid)
        due = later(eviction.due, self._pods.profile_of(pod).settings.grace_seconds) if going is None else going.due
        due = due if unit is None else unit.due
        stops = [self._stops[each.rule_uid] for each in eviction.reasons if each.rule_uid in self._stops]
        if going is None and (len(stops) == len(eviction.reasons) or (wait and wait.reason is StepReason.STOPPED)):
            waits_for = WaitsFor(WaitKind.STOP, f"stopped: {stops[0].message}")
            return status(waits_for, due, stops[0].last_transition_time)
        if wait is not None and going is None and wait.reason is not StepReason.BREAKER:
            return status(WaitsFor(WaitKind.EXEMPTION, f"nothing: {wait.reason.value}"), None)
        if all(reason.rule_uid in self._unannounced for reason in eviction.reasons):
            return status(_UNANNOUNCED, None, tainted_at)
        if self._settings.now < due:
            early = wait is not None and wait.cause is StepReason.EARLY
            waits_for = self._together(wait) if wait and early else _DUE_TIME
            return structs.replace(status(waits_for, due, tainted_at), state=PodState.NOT_DUE)
        waits_for, since = self._due(pod, wait)
        found = status(waits_for, due, due if since is None else max(due, since))
        with_held = waits_for.kind is WaitKind.GANG and wait is not None and wait.cause is StepReason.HELD
        return structs.replace(found, state=PodState.HELD) if with_held else found

    def _due(self, pod: Pod, wait: Wait | None) -> tuple[WaitsFor, datetime | None]:
        """Return what a pod waits for whose due time is over, and since when; None stands for that time."""
        if wait is not None and wait.reason in _PUT_OFF:
            return self._put_off(pod, wait), None
        if not self._acts:
            return _OBSERVED if self._settings.worker else _NO_WORKER, None
        if wait is None:
            return self._ready_for(self._ready[pod.meta.uid], self._plan.going[pod.meta.uid])
        if wait.reason is StepReason.BREAKER:
            text = f"breaker: too many devices of {wait.because} were tainted just now"
            return WaitsFor(WaitKind.BREAKER, text, wait.because or None), None
        pause = self._settings.policy.pause
        assert pause is not None  # the plan of a new leader has no retries, and no requests under way
        text = f"the end of the pause at {format_time(pause.until)}{f': {pause.why}' if pause.why else ''}"
        return WaitsFor(WaitKind.PAUSE, text), None

    def _put_off(self, pod: Pod, wait: Wait) -> WaitsFor:
        """Return what a pod waits for that waits for a window, its end, the end of a hold, or another of its unit."""
        if wait.reason is StepReason.WINDOW:
            opening = opening_text(self._plan.members_of(self._plan.going[pod.meta.uid]), self._settings.now)
            return WaitsFor(WaitKind.WINDOW, f"a window, which opens at {opening}" if opening else "a window")
        if wait.reason is StepReason.COMPLETING:
            return WaitsFor(WaitKind.COMPLETION, f"its end{_until(wait)}")
        if wait.reason is StepReason.GANG:
            return self._together(wait)
        return WaitsFor(WaitKind.HOLD, f"hold: {wait.because}" if wait.because else "a hold without a text")

    def _together(self, wait: Wait) -> WaitsFor:
        """Return what a pod waits for that waits for another one that it goes together with."""
        assert wait.cause is not None
        text = f"{together_with(wait.other)} and which is {state_text(wait.cause)}"
        if wait.cause is StepReason.HELD:
            text += f": {wait.because}" if wait.because else ""
        elif wait.cause is StepReason.COMPLETING:
            text += _until(wait)
        return WaitsFor(WaitKind.GANG, text, pods=[wait.other])

    # --- limits ----------------------------------------------------------------------------------

    def _ready_for(self, unit: Unit, each: Going) -> tuple[WaitsFor, datetime | None]:
        """Return what a pod waits for that could go now: a budget or another limit that is reached, or its turn.

        What only the worker knows is not asked: its rates, and what budgets answered.
        """
        if id(unit) not in self._closed:  # a gang may have thousands of pods
            short = self._room.short(unit)
            wait = self._room.closed(unit) if short is None else None
            self._closed[id(unit)] = short if wait is None else wait.limit
        limit = self._closed[id(unit)]
        if isinstance(limit, BudgetLimit):
            return self._blocked(unit, each, limit)
        if isinstance(limit, OwnerLimit):
            return self._of_owner(limit), None
        if isinstance(limit, NamespaceLimit | OverallLimit):
            return self._of_places(limit), None
        rate = max([rate.per_second for _, rate in self._room.rate_of(each).buckets])
        most = each.profile.settings.max_per_minute
        a_minute = f" and {most} a minute" if most is not None else ""
        return WaitsFor(WaitKind.RATE, f"its turn: at most {rate:g} a second{a_minute}"), None

    def _of_places(self, limit: NamespaceLimit | OverallLimit) -> WaitsFor:
        settings = self._room.settings(limit.profile)
        if isinstance(limit, OverallLimit):
            kind, name, most, taken = WaitKind.OVERALL, None, settings.overall, self._room.everywhere
        else:
            kind, name, most = WaitKind.NAMESPACE, limit.namespace, settings.per_namespace
            taken = self._room.namespaces[limit.namespace]
        text = f"{kind.value}: {most}, and {_taken(taken, f' of {name}' if name else '')} are terminating"
        return WaitsFor(kind, text, name, most, len(taken))

    def _of_owner(self, limit: OwnerLimit) -> WaitsFor:
        places, missing = self._room.owner(limit.owner)
        pods = self._inventory.pods
        keys = sorted([key for key in self._room.owned[limit.owner] if pods[key].meta.uid in missing])
        most = max_unavailable(self._room.settings(limit.profile).per_owner_unavailable, len(places))
        shown = ", ".join([key.rpartition("/")[2] for key in keys[:_SIBLINGS_SHOWN]])
        rest = f" and {len(keys) - _SIBLINGS_SHOWN} more" if len(keys) > _SIBLINGS_SHOWN else ""
        name = str(root_owner(pods[keys[0]]))
        text = f"perOwnerUnavailable: {most}, and {_taken(missing, f' of {name}')} unavailable: {shown}{rest}"
        return WaitsFor(WaitKind.OWNER, text, name, most, len(missing), keys)

    def _blocked(self, unit: Unit, each: Going, short: BudgetLimit) -> tuple[WaitsFor, datetime | None]:
        selected = [other for other in unit.members if self._room.needs(other) == short.needing(1)]
        name, pods = ", ".join(short.budgets), [] if each in selected else [selected[0].key]
        whose = f"{together_with(pods[0])}: " if pods else ""
        budget = self._objects.find(short.namespace, name)
        if budget is None:
            text = f"{whose}disruption budgets {name}: the Eviction API refuses pods that more than one selects"
            return WaitsFor(WaitKind.BUDGET, text, name, pods=pods), None
        text = f"{whose}disruption budget {name}: {_budget_text(budget, short.needed)}"
        return WaitsFor(
            WaitKind.BUDGET, text, name, budget.allowed, pods=pods
        ), None if budget.allowed else budget.since


def _until(wait: Wait) -> str:
    assert wait.until is not None
    return f", at most until {format_time(wait.until)}"


def _taken(places: Places, of: str) -> str:
    """Return what counts toward a limit: places, and how many pods they stand for where that is another number."""
    if len(places) == places.pods:
        return f"{len(places)}{of}"
    return f"{counted(places.pods, 'pod')}{of} in {counted(len(places), 'place')}"


def _budget_text(budget: DisruptionBudget, needed: int) -> str:
    """Return how many disruptions it allows; `needed`: how many that belong together it would have to."""
    if budget.allowed is None:
        return "its status is not up to date"
    since = f" since {format_time(budget.since)}" if budget.since is not None and not budget.allowed else ""
    together = f", for {needed} pods that go together" if needed > 1 else ""
    healthy = f"{budget.healthy} healthy of {budget.desired} needed"
    return f"disruptionsAllowed {budget.allowed}{since}{together}, {healthy}"
