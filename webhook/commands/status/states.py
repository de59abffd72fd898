"""The states that a pod can be in, what it waits for, and the words for that. The plan says which."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from webhook.api.counts import counted
from webhook.api.meta import format_time
from webhook.eviction.gates import GATES
from webhook.eviction.pod_plan import together_with
from webhook.eviction.ports import NamespaceLimit, OverallLimit, OwnerLimit
from webhook.eviction.profiles import max_unavailable
from webhook.inventory.gangs import root_owner

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.api.budgets import DisruptionBudget
    from webhook.api.pods import Pod
    from webhook.eviction.pod_plan import Going, Unit, Wait
    from webhook.eviction.ports import BudgetLimit
    from webhook.eviction.room import Places, Room
    from webhook.inventory.evictions import Eviction
    from webhook.inventory.matching import Evictor

_SIBLINGS_SHOWN: Final = 3


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


class Closed(NamedTuple):
    """What keeps a unit that could go now, if anything: a budget, or another limit."""

    budget: BudgetLimit | None = None
    other: Wait | None = None


def closed_for(room: Room, unit: Unit) -> Closed:
    """Asks the gates in their order. What only the worker knows is not asked: its rates, and what budgets answered."""
    short = room.short(unit)
    return Closed(short) if short is not None else Closed(other=room.closed(unit, GATES[1:]))


def state_of_ready(room: Room, unit: Unit, each: Going, closed: Closed) -> DueState:
    """Returns the state of a pod that could go now."""
    if closed.budget is not None:
        return _blocked(room, unit, each, closed.budget)
    limit = None if closed.other is None else closed.other.limit
    if isinstance(limit, OwnerLimit):
        return DueState(PodState.LIMITED, _of_owner(room, limit))
    if isinstance(limit, NamespaceLimit | OverallLimit):
        return DueState(PodState.LIMITED, _of_places(room, limit))
    return DueState(PodState.DUE, _its_turn(room, each))


def _of_places(room: Room, limit: NamespaceLimit | OverallLimit) -> WaitsFor:
    settings = room.settings(limit.profile)
    if isinstance(limit, OverallLimit):
        kind, name, most, taken = WaitKind.OVERALL, "", settings.overall, room.everywhere
    else:
        kind, name, most = WaitKind.NAMESPACE, limit.namespace, settings.per_namespace
        taken = room.namespaces[name]
    text = f"{kind.value}: {most}, and {_taken(taken, f' of {name}' if name else '')} are terminating"
    return WaitsFor(kind, text, name, most, len(taken))


def _of_owner(room: Room, limit: OwnerLimit) -> WaitsFor:
    places, missing = room.owner(limit.owner)
    pods = room.view.inventory.pods
    keys = tuple(sorted([key for key in room.owned[limit.owner] if pods[key].meta.uid in missing]))
    most = max_unavailable(room.settings(limit.profile).per_owner_unavailable, len(places))
    shown = ", ".join([key.rpartition("/")[2] for key in keys[:_SIBLINGS_SHOWN]])
    rest = f" and {len(keys) - _SIBLINGS_SHOWN} more" if len(keys) > _SIBLINGS_SHOWN else ""
    name = str(root_owner(pods[keys[0]]))
    text = f"perOwnerUnavailable: {most}, and {_taken(missing, f' of {name}')} unavailable: {shown}{rest}"
    return WaitsFor(WaitKind.OWNER, text, name, most, len(missing), keys)


def _taken(places: Places, of: str) -> str:
    """What counts toward a limit: places, and how many pods they stand for where that is another number."""
    if len(places) == places.pods:
        return f"{len(places)}{of}"
    return f"{counted(places.pods, 'pod')}{of} in {counted(len(places), 'place')}"


def _blocked(room: Room, unit: Unit, each: Going, short: BudgetLimit) -> DueState:
    selected = [other for other in unit.members if room.needs(other) == short.needing(1)]
    name = ", ".join(short.budgets)
    whose, pods = ("", ()) if each in selected else (f"{together_with(selected[0].key)}: ", (selected[0].key,))
    budget = room.budgets.find(short.namespace, name)
    if budget is None:
        text = f"{whose}disruption budgets {name}: the Eviction API refuses pods that more than one selects"
        return DueState(PodState.BLOCKED, WaitsFor(WaitKind.BUDGET, text, name, pods=pods))
    waits_for = WaitsFor(
        WaitKind.BUDGET, f"{whose}{_budget_text(budget, short.needed)}", name, budget.allowed, pods=pods
    )
    return DueState(PodState.BLOCKED, waits_for, None if budget.allowed else budget.since)


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


def _its_turn(room: Room, each: Going) -> WaitsFor:
    rate = max([rate.per_second for _, rate in room.rate_of(each).buckets])
    most = each.profile.settings.max_per_minute
    text = f"its turn: at most {rate:g} a second" + (f" and {most} a minute" if most is not None else "")
    return WaitsFor(WaitKind.RATE, text)
