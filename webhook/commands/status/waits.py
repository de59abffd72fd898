"""What `status` reads, from a cluster or a dump; the states that a pod can be in, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from webhook.api.budgets import DisruptionBudget, decode_budget
from webhook.api.counts import counted
from webhook.api.decode import Reader
from webhook.api.meta import format_time
from webhook.api.pods import HOLD, Pod
from webhook.api.rules import own_rate
from webhook.eviction.budget_gate import BudgetGate
from webhook.eviction.ports import BreakerLimit, NamespaceLimit, OverallLimit, OwnerLimit
from webhook.eviction.profiles import max_unavailable
from webhook.eviction.rate_limiter import RateLimiter
from webhook.eviction.step import together_with
from webhook.eviction.units import owner_of
from webhook.files.dump import held_in, labels_of
from webhook.inventory.gangs import root_owner
from webhook.inventory.state import Inventory
from webhook.policy.model import NAMESPACE_NAME_LABEL
from webhook.policy.ports import NamespaceFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from webhook.api.field import FieldError
    from webhook.eviction.breaker import Breaker
    from webhook.eviction.plans import Plans
    from webhook.eviction.pod_plan import PodPlan
    from webhook.eviction.ports import BudgetLimit
    from webhook.eviction.profiles import Profile
    from webhook.inventory.evictions import Eviction
    from webhook.inventory.matching import Evictor
    from webhook.inventory.state import InventoryObject

_BUDGET: Final = ("policy/v1", "PodDisruptionBudget")
_NAMESPACE: Final = ("v1", "Namespace")
StatusObject: TypeAlias = "InventoryObject | HeldNamespace | DisruptionBudget"
_NOW_SECONDS: Final = 0.0
"""The monotonic time: everything is of one moment."""
_SIBLINGS_SHOWN: Final = 3


class HeldNamespace(NamedTuple):
    """A namespace and the text of its `/hold`; None without one."""

    facts: NamespaceFacts
    hold: str | None


def object_in(value: Any) -> tuple[StatusObject | None, list[FieldError]]:
    """What `status` keeps of an object, None if nothing, and the wrong types in it."""
    errors: list[FieldError] = []
    kind = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else None
    if kind == _BUDGET:
        return decode_budget(Reader.of(value, errors)), errors
    if kind == _NAMESPACE:
        meta = Reader.of(value, errors).meta()
        labels = labels_of(value) | {NAMESPACE_NAME_LABEL: meta.name}
        return HeldNamespace(NamespaceFacts(meta.name, labels), meta.annotations.get(HOLD)), errors
    return held_in(value)


@dataclass(slots=True)
class StatusObjects:
    """Objects of one moment. It also is the worker's port for budgets (`eviction.ports.PodBudgets`)."""

    inventory: Inventory = field(default_factory=Inventory)
    namespaces: dict[str, HeldNamespace] = field(default_factory=dict)
    budgets: dict[str, dict[str, DisruptionBudget]] = field(default_factory=dict)
    """By namespace and name."""

    def add(self, found: StatusObject) -> None:
        """One more object; of two with the same name the last counts."""
        match found:
            case HeldNamespace(facts):
                self.namespaces[facts.name] = found
            case DisruptionBudget(meta):
                self.budgets.setdefault(meta.namespace, {})[meta.name] = found
            case other:
                self.inventory.apply(None, other)

    def facts_of(self, namespace: str) -> NamespaceFacts | None:
        """The name and labels of a namespace, if it is known."""
        known = self.namespaces.get(namespace)
        return None if known is None else known.facts

    def hold_of(self, pod: Pod) -> str | None:
        """The text of `/hold` on the pod, or else on its namespace; None without one."""
        known = self.namespaces.get(pod.meta.namespace)
        return pod.hold if pod.hold is not None or known is None else known.hold

    # --- budgets ---------------------------------------------------------------------------------

    def select(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        """The budgets that select the pod, by name."""
        labels = dict(pod.labels)
        known = sorted(self.budgets.get(pod.meta.namespace, {}).items())
        return tuple([each for _, each in known if each.selector is not None and each.selector.matches(labels)])

    def find(self, namespace: str, name: str) -> DisruptionBudget | None:
        """The budget of that name, if there is one."""
        return self.budgets.get(namespace, {}).get(name)


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
        """Whether the pod is still to be evicted."""
        return self not in (PodState.SKIPPED, PodState.TERMINATING, PodState.STUCK)


class WaitKind(StrEnum):
    """What a pod waits for; the values are those of the JSON."""

    TIME = "time"
    ANNOUNCEMENT = "announcement"
    """The worker has not written the condition of the rule yet, and evicts no pod before."""
    HOLD = "hold"
    WINDOW = "window"
    COMPLETION = "completion"
    """Its own end, by `waitForCompletion`."""
    GANG = "gang"
    """Another pod that it goes together with."""
    BUDGET = "disruptionBudget"
    OVERALL = "overall"
    NAMESPACE = "perNamespace"
    OWNER = "perOwnerUnavailable"
    BREAKER = "breaker"
    PAUSE = "pause"
    STOP = "stop"
    RATE = "rate"
    """Its turn, as rates allow."""
    IN_TREE = "inTreeController"
    OBSERVE = "observe"
    """The worker evicts no pod in mode observe."""
    EXEMPTION = "exemption"
    """Nothing: it is never evicted."""
    END = "end"
    """Its containers have to end."""


class WaitsFor(msgspec.Struct, frozen=True):
    """What a pod waits for, in words and as fields.

    `name`: of budgets (separated by `, `), an owner, a namespace or a driver. `limit` and `count`: the limit's number,
    and how many places are taken now; pods that go together take one. `pods`: those that do, as `namespace/name`, where
    an owner limits; or the one that this pod waits for, where that is of its gang or shares a claim with it.
    """

    kind: WaitKind
    message: str
    name: str = ""
    limit: int | None = None
    count: int | None = None
    pods: tuple[str, ...] = ()


class PodStatus(NamedTuple):
    """A pod at one moment. `due` includes the profile's grace; None where no time is known yet."""

    pod: Pod
    eviction: Eviction
    evictor: Evictor
    state: PodState
    due: datetime | None
    since: datetime | None
    """Since when it is in this state; None if that cannot be known."""
    waits_for: WaitsFor


class DueState(NamedTuple):
    """The state of a pod that is due, and what it waits for. `since`: None stands for its due time."""

    state: PodState
    waits_for: WaitsFor
    since: datetime | None = None


class _Short(NamedTuple):
    """Budgets that do not let all pods go, and the pods that they select, of those that go together."""

    limit: BudgetLimit
    selected: list[PodPlan]


class DueWaits:
    """Answers from the plans. Requests in flight and answers of the Eviction API are the worker's alone."""

    def __init__(
        self, objects: StatusObjects, plans: Plans, profile_at: Callable[[int], Profile], breaker: Breaker
    ) -> None:
        gate = BudgetGate(objects)
        self._objects = objects
        self._plans = plans
        self._gate = gate
        self._limiter = RateLimiter(plans, objects.inventory.rules, profile_at, gate, breaker, str)
        self._short_units: dict[int, _Short | None] = {}
        """By id() of the unit."""
        self._missing: dict[str, tuple[str, ...]] = {}
        """Unavailable pods by their owner, as limits count it."""
        for key, pod in sorted(objects.inventory.pods.items()):
            owner = owner_of(pod)
            if plans.owners.is_missing(owner, pod.meta.uid):
                self._missing[owner] = (*self._missing.get(owner, ()), key)

    def of(self, plan: PodPlan) -> DueState:
        """Limits first, then budgets, then rates: the order in which the worker asks them."""
        limited = self._limit(plan)
        if limited is not None:
            return DueState(PodState.LIMITED, limited)
        short = self._short(plan)
        return DueState(PodState.DUE, self._rate(plan)) if short is None else self._blocked(plan, short)

    def _limit(self, plan: PodPlan) -> WaitsFor | None:
        settings, under_way = plan.profile.settings, self._plans.under_way
        match self._limiter.blocked_by(self._limiter.ready_pod(plan), _NOW_SECONDS):
            case OverallLimit():
                most, places = settings.overall, under_way.places
                text = f"overall: {most}, and {_taken(places, len(under_way))} are terminating"
                return WaitsFor(WaitKind.OVERALL, text, "", most, places)
            case NamespaceLimit(namespace):
                most, places = settings.per_namespace, under_way.count(namespace)
                taken = _taken(places, under_way.pod_count(namespace), f" of {namespace}")
                text = f"perNamespace: {most}, and {taken} are terminating"
                return WaitsFor(WaitKind.NAMESPACE, text, namespace, most, places)
            case OwnerLimit(owner):
                return self._owner(plan, owner)
            case BreakerLimit(driver):
                text = f"breaker: too many devices of {driver} were tainted just now"
                return WaitsFor(WaitKind.BREAKER, text, driver)
            case _:
                return None  # none, or a budget, of which `_budget` knows more

    def _owner(self, plan: PodPlan, uid: str) -> WaitsFor:
        owner, missing = root_owner(plan.pod), self._missing.get(uid, ())
        owners = self._plans.owners
        most = max_unavailable(plan.profile.settings.per_owner_unavailable, owners.place_count(uid))
        places, pods = owners.unavailable(uid), len(missing)
        shown = ", ".join(key.rpartition("/")[2] for key in missing[:_SIBLINGS_SHOWN])
        rest = f" and {pods - _SIBLINGS_SHOWN} more" if pods > _SIBLINGS_SHOWN else ""
        name = str(owner)
        taken = _taken(places, pods, f" of {name}")
        text = f"perOwnerUnavailable: {most}, and {taken} unavailable: {shown}{rest}"
        return WaitsFor(WaitKind.OWNER, text, name, most, places, missing)

    def _short(self, plan: PodPlan) -> _Short | None:
        """The budgets that do not let this pod and those go that it goes together with; None if all let them."""
        unit = self._plans.units.of(plan)
        if unit is None:
            return self._first_short([plan])
        if id(unit) not in self._short_units:
            self._short_units[id(unit)] = self._first_short(unit.plans)
        return self._short_units[id(unit)]

    def _first_short(self, plans: Sequence[PodPlan]) -> _Short | None:
        needed: dict[BudgetLimit, list[PodPlan]] = {}
        for plan in plans:
            limit = None if self._limiter.deletes(plan, _NOW_SECONDS) else self._gate.limit_of(plan)
            if limit is not None:
                needed.setdefault(limit, []).append(plan)
        for limit, selected in needed.items():
            if len(limit.budgets) > 1:
                return _Short(limit, selected)
            budget = self._objects.budgets[limit.namespace][limit.budgets[0]]
            if budget.allowed is None or budget.allowed < len(selected):
                return _Short(limit, selected)
        return None

    def _blocked(self, plan: PodPlan, short: _Short) -> DueState:
        limit, selected = short
        name = ", ".join(limit.budgets)
        whose, pods = ("", ()) if plan in selected else (f"{together_with(selected[0].key)}: ", (selected[0].key,))
        if len(limit.budgets) > 1:
            text = f"{whose}disruption budgets {name}: the Eviction API refuses pods that more than one selects"
            return DueState(PodState.BLOCKED, WaitsFor(WaitKind.BUDGET, text, name, pods=pods))
        budget = self._objects.budgets[limit.namespace][name]
        text = f"{whose}{_budget_text(budget, len(selected))}"
        return DueState(
            PodState.BLOCKED,
            WaitsFor(WaitKind.BUDGET, text, name, budget.allowed, pods=pods),
            None if budget.allowed else budget.since,
        )

    def _rate(self, plan: PodPlan) -> WaitsFor:
        settings, rules = plan.profile.settings, self._objects.inventory.rules
        rates = [settings.rate]
        for reason in plan.eviction.reasons:
            rule = rules.get(reason.rule)
            own = own_rate(rule) if rule is not None else None
            if own is None and not reason.rule and reason.taint.extras is not None:
                own = reason.taint.extras.evictions_per_second
            rates.append(own or settings.rate)
        rate = max(rates[1:])
        most = settings.max_per_minute
        text = f"its turn: at most {rate:g} a second" + (f" and {most} a minute" if most is not None else "")
        return WaitsFor(WaitKind.RATE, text)


def _taken(places: int, pods: int, of: str = "") -> str:
    """What counts toward a limit: places, and how many pods they stand for where that is another number."""
    if places == pods:
        return f"{places}{of}"
    return f"{counted(pods, 'pod')}{of} in {counted(places, 'place')}"


def _budget_text(budget: DisruptionBudget, needed: int) -> str:
    """`needed`: how many evictions that belong together it would have to allow."""
    name = budget.meta.name
    if budget.allowed is None:
        return f"disruption budget {name}: its status is not up to date"
    since = f" since {format_time(budget.since)}" if budget.since is not None and not budget.allowed else ""
    allowed = f"{budget.allowed}{since}" + (f", for {needed} pods that go together" if needed > 1 else "")
    return (
        f"disruption budget {name}: disruptionsAllowed {allowed}, {budget.healthy} healthy of {budget.desired} needed"
    )
