"""The conditions of a rule: ours, and in mode replacement the in-tree controller's. Pure.

Messages are for people; no code parses them. What the worker needs after a restart has a place of its own (ADR 13):
the number of evicted pods is the whole message of condition EvictedPods, and how many of them count against the rule's
ceiling is that of CountedPods.

Source of the in-tree controller's condition: `semantics.md` E-36 to E-44; users' scripts read it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from msgspec import structs

from webhook.api.messages import counted
from webhook.api.meta import OWN_GROUP, format_time
from webhook.api.rules import Condition, DeviceTaintRule, condition_of
from webhook.api.taints import NO_EXECUTE, NONE

EVICTION: Final = f"{OWN_GROUP}/Eviction"
RELEASED: Final = f"{OWN_GROUP}/Released"
IN_TREE: Final = "EvictionInProgress"
CANARY: Final = "device-taint-webhook-canary"
CANARY_DRIVER: Final = "canary.devicetaint.io"
UNSETTLED: Final = "waiting until all allocations made before the taint are known"
_TRUE: Final = "True"
_FALSE: Final = "False"
_MESSAGE_MOST: Final = 32768
"""metav1.Condition, maxLength of message."""
_NAMED_MOST: Final = 3
"""Claims, PodGroups, windows and pods of each kind that a message names."""
_LAST: Final = datetime.max.replace(tzinfo=UTC)
_Named = TypeVar("_Named", str, tuple[str, str])


def is_canary(rule: DeviceTaintRule) -> bool:
    """Tell whether it is the probe's: only the in-tree controller writes its condition. Anyone may name a rule so."""
    selected = rule.selector is not None and rule.selector.driver == CANARY_DRIVER
    return selected and rule.taint.effect == NONE and rule.meta.name.startswith(f"{CANARY}-")


class ConditionState(NamedTuple):
    """A condition without its type, time and generation."""

    status: str
    reason: str
    message: str


class ConditionReason(StrEnum):
    """Reasons of condition devicetaint.io/Eviction. The first six mean that work remains."""

    EVICTING = "Evicting"
    LIMITED = "Limited"
    BLOCKED = "Blocked"
    PAUSED = "Paused"
    HELD = "Held"
    WAITING = "Waiting"
    COMPLETED = "Completed"
    NOTHING_TO_DO = "NothingToDo"
    HELD_BY_POD_GROUP = "HeldByPodGroup"
    RETURNS_TO_DEVICE = "ReturnsToDevice"
    STOPPED = "Stopped"
    OBSERVE_ONLY = "ObserveOnly"


_WORKING: Final = frozenset(
    {
        ConditionReason.EVICTING,
        ConditionReason.LIMITED,
        ConditionReason.BLOCKED,
        ConditionReason.PAUSED,
        ConditionReason.HELD,
        ConditionReason.WAITING,
    }
)


@dataclass(slots=True)
class Progress:
    """Progress of the eviction for one rule. Counts are of pods; blocked, held and limited pods are pending too."""

    pending: int = 0
    namespaces: set[str] = field(default_factory=set)
    """Those of pending pods."""
    due: int = 0
    blocked: int = 0
    """A disruption budget, or another error of the API server, refused their last attempt."""
    held: int = 0
    limited: dict[str, list[str]] = field(default_factory=dict)
    """By the limit that holds them back, as its field in the policy: pods, by `namespace/name`."""
    stalled: bool = False
    """Whether limits have let no pod go for a while."""
    closed: Counter[str] = field(default_factory=Counter)
    """Those that wait for a window, by `opening_text` of `pod_plan`, which is empty if unknown; none is due."""
    completing: int = 0
    """Those that are left to complete; none is due."""
    waiting_for: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Those that wait for another one of their unit, by that one, as `namespace/name`, and its state."""
    held_back: int = 0
    """How many of them because that one is on hold."""
    stuck: list[str] = field(default_factory=list)
    """Pods, by `namespace/name`, that are terminating for too long."""
    paused: tuple[datetime, str] | None = None
    """The end of the policy's pause, and its reason."""
    evicted: int = 0
    finished: bool = False
    """Whether the condition said so before."""
    skipped: int = 0
    """Those that are never evicted, such as those of DaemonSets."""
    held_by: Counter[str] = field(default_factory=Counter)
    """Those whose claims a PodGroup, by `namespace/name`, keeps reserved: their eviction would free no device."""
    returning: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Those that come back to a device through a claim, by `namespace/name`, and the owner that makes them."""
    tolerating_scheduling: int = 0
    next_due: datetime | None = None
    """The earliest due time of those not due yet."""
    settled: bool = True
    """Whether enough time has passed since the rule appeared for the caches to know each allocation made before it."""
    openings: dict[tuple[int, str], str] = field(default_factory=dict)
    """While this is counted: when the windows of each unit open, by the plan's revision and its first pod."""


def eviction_condition(progress: Progress, *, acts: bool, stopped: str = "") -> ConditionState:
    """Make our condition; `stopped` is why no pod is evicted for the rule, or empty."""
    state = _state(progress, acts=acts, stopped=stopped)
    message = "; ".join(_parts(progress, acts=acts, stopped=stopped))
    return ConditionState(_TRUE if state in _WORKING else _FALSE, state.value, message[:_MESSAGE_MOST])


def _state(progress: Progress, *, acts: bool, stopped: str) -> ConditionReason:
    if stopped or not acts:
        return ConditionReason.STOPPED if stopped else ConditionReason.OBSERVE_ONLY
    if not progress.pending and not progress.settled:
        return ConditionReason.WAITING
    if not progress.pending and (progress.returning or progress.held_by):
        return ConditionReason.RETURNS_TO_DEVICE if progress.returning else ConditionReason.HELD_BY_POD_GROUP
    if not progress.pending:
        return ConditionReason.COMPLETED if progress.evicted or progress.finished else ConditionReason.NOTHING_TO_DO
    return _state_of_pending(progress)


def _state_of_pending(progress: Progress) -> ConditionReason:
    held = progress.held + progress.held_back
    if progress.paused is not None and progress.due > held:
        return ConditionReason.PAUSED
    limited = sum(map(len, progress.limited.values())) if progress.stalled else 0
    if progress.due > progress.blocked + held + limited:
        return ConditionReason.EVICTING
    causes = {
        ConditionReason.LIMITED: limited,
        ConditionReason.BLOCKED: progress.blocked,
        ConditionReason.HELD: held,
    }
    return next((reason for reason, pods in causes.items() if pods), ConditionReason.WAITING)


def _parts(progress: Progress, *, acts: bool, stopped: str) -> Iterable[str]:
    if stopped:
        yield stopped
    yield f"{counted(progress.evicted, 'pod')} evicted"
    if progress.pending:
        what = "pending" if acts else "would be evicted"
        yield f"{counted(progress.pending, 'pod')} {what} in {counted(len(progress.namespaces), 'namespace')}"
        yield from _causes(progress)
    elif acts and not progress.settled and not stopped:
        yield UNSETTLED
    if progress.next_due is not None:
        yield f"next due {format_time(progress.next_due)}"
    if progress.stuck:
        yield f"{len(progress.stuck)} stuck in Terminating ({first_of(sorted(progress.stuck))})"
    yield from _in_vain(progress)
    if progress.skipped:
        yield f"{progress.skipped} skipped (pods of DaemonSets, mirror pods, action: skip)"
    if progress.tolerating_scheduling:
        yield f"{progress.tolerating_scheduling} left alone (ToleratesScheduling)"


def _in_vain(progress: Progress) -> Iterable[str]:
    """Return which pods are left alone, because their eviction would free no device, and what frees it."""
    for (claim, owner), pods in _most_first(progress.returning)[:_NAMED_MOST]:
        yield (
            f"{counted(pods, 'pod')} of {owner or 'no owner'} left alone (ReturnsToDevice): claim {claim} stays "
            "allocated while its pods are replaced one by one; scale the owner to 0 and back to free the device"
        )
    for group, pods in _most_first(progress.held_by)[:_NAMED_MOST]:
        yield f"{counted(pods, 'pod')} left alone (HeldByPodGroup): only deleting PodGroup {group} frees their claims"
    more = max(len(progress.returning) - _NAMED_MOST, 0) + max(len(progress.held_by) - _NAMED_MOST, 0)
    if more:
        yield f"the same for {more} more claims and PodGroups"


def _causes(progress: Progress) -> Iterable[str]:
    """Return what holds up the pending pods."""
    if progress.blocked:
        yield f"{progress.blocked} blocked"
    if progress.held:
        yield f"{progress.held} held"
    for limit, pods in sorted(progress.limited.items()):
        yield f"{len(pods)} limited by {limit} ({first_of(sorted(pods))})"
    yield from _waiting_for_windows(progress.closed)
    if progress.completing:
        yield f"{progress.completing} left to complete"
    yield from _waiting_for_pods(progress.waiting_for)
    if progress.paused is not None:
        until, why = progress.paused
        yield f"paused until {format_time(until)}" + (f": {why}" if why else "")


def _waiting_for_windows(windows: Counter[str]) -> Iterable[str]:
    closed = sorted(windows.items(), key=_first_to_open)
    for opens, pods in closed[:_NAMED_MOST]:
        yield f"{pods} waiting for a window" + (f" that opens at {opens}" if opens else "")
    more = sum(pods for _, pods in closed[_NAMED_MOST:])
    if more:
        yield f"{more} more waiting for other windows"


def _first_to_open(window: tuple[str, int]) -> tuple[datetime, str]:
    """Order by time, whatever the zone in which it is written; those whose time is not known come last."""
    time = window[0].partition(" ")[0]
    return datetime.fromisoformat(time) if time else _LAST, window[0]


def _waiting_for_pods(waiting: Counter[tuple[str, str]]) -> Iterable[str]:
    others = _most_first(waiting)
    for (pod, state), pods in others[:_NAMED_MOST]:
        yield f"{pods} waiting for {pod}, which is {state}"
    more = sum(pods for _, pods in others[_NAMED_MOST:])
    if more:
        yield f"{more} more waiting for other pods"


def _most_first(counts: Counter[_Named]) -> list[tuple[_Named, int]]:
    """Return what most pods wait for first, and else by name."""
    return sorted(counts.items(), key=lambda each: (-each[1], each[0]))


def first_of(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    more = len(names) - _NAMED_MOST
    return ", ".join(names[:_NAMED_MOST]) + (f" and {more} more" if more > 0 else "")


# --- the in-tree controller's --------------------------------------------------------------------


class ImpactForecast(NamedTuple):
    """What a rule of effect None would hit with effect NoExecute (E-40)."""

    devices: int
    allocated: int
    pods: int
    namespaces: int


def in_tree_condition(
    effect: str, pending: int, namespaces: int, evicted: int, forecast: ImpactForecast | None = None
) -> ConditionState:
    """Make EvictionInProgress, with exactly the in-tree controller's texts (E-39 to E-42).

    `evicted` counts since this process started, as in the in-tree controller. Effect None requires a `forecast`.
    """
    status, reason, message = _FALSE, "OtherEffect", "Eviction only happens for the NoExecute effect."
    if effect == NO_EXECUTE and pending:
        need = "1 pod needs" if pending == 1 else f"{pending} pods need"
        status, reason = _TRUE, "PodsPendingEviction"
        message = f"{need} to be evicted in {_different(namespaces)}."
    elif effect == NO_EXECUTE:
        reason, message = "Completed" if evicted else "NotStarted", ""
    elif effect == NONE:
        assert forecast is not None
        reason = "NoEffect"
        message = (
            f"{counted(forecast.devices, 'published device')} selected. "
            f"{counted(forecast.allocated, 'allocated device')} selected. "
            f"{counted(forecast.pods, 'pod')} would be evicted in {_different(forecast.namespaces)} if the effect was "
            "NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
        )
    if evicted:
        count = f"{counted(evicted, 'pod')} evicted since starting the controller."
        message = f"{message} {count}" if message else count
    return ConditionState(status, reason, message)


def _different(namespaces: int) -> str:
    return "1 namespace" if namespaces == 1 else f"{namespaces} different namespaces"


# --- both ----------------------------------------------------------------------------------------


def updated(
    known: Condition | None,
    kind: str,
    state: ConditionState,
    generation: int,
    now: datetime,
    *,
    any_change: bool = False,
) -> Condition:
    """Return the condition to write; `known` itself if nothing has changed.

    lastTransitionTime changes with the status or the generation; with `any_change` it changes with any field, as in
    the in-tree controller (E-38).
    """
    fresh = Condition(kind, state.status, state.reason, state.message, generation, now)
    if known is None:
        return fresh
    if structs.replace(fresh, last_transition_time=known.last_transition_time) == known:
        return known
    moved = any_change or (known.status, known.observed_generation) != (state.status, generation)
    return fresh if moved else structs.replace(fresh, last_transition_time=known.last_transition_time)


_ANNOUNCING: Final = frozenset(
    each.value
    for each in (ConditionReason.COMPLETED, ConditionReason.HELD_BY_POD_GROUP, ConditionReason.RETURNS_TO_DEVICE)
)
"""With status False."""


def announced_at(conditions: Iterable[Condition], generation: int) -> datetime | None:
    """Return when the condition announced an eviction for this generation of the rule; None if it does not.

    Status True announces: pods will be evicted. So do Completed, and the reasons that pods are left alone though they
    are due. Every other reason of status False says that no pod is evicted.
    """
    known = condition_of(conditions, EVICTION)
    if known is None or known.observed_generation != generation:
        return None
    announces = known.status == "True" or known.reason in _ANNOUNCING
    return known.last_transition_time if announces else None


class Announcements:
    """Remembers announcements over times in which there is nothing to evict, and no pod has to be announced again.

    Only this process's memory does that: after a restart a rule with reason NothingToDo is announced again, because the
    condition does not show whether `/evict` was removed and set again.
    """

    def __init__(self, *, acts: bool) -> None:
        """`acts`: whether pods are evicted at all; if not, any condition counts."""
        self._acts = acts
        self._known: dict[str, tuple[int, datetime]] = {}
        """Generation and time, by the uid of the rule."""

    def announced_at(self, rule: DeviceTaintRule) -> datetime | None:
        """Return when the eviction was announced for this generation of the rule; None: not yet."""
        known = condition_of(rule.conditions, EVICTION)
        current = known is not None and known.observed_generation == rule.generation
        if not self._acts:
            return known.last_transition_time if known is not None and current else None
        uid = rule.meta.uid
        time = announced_at(rule.conditions, rule.generation)
        if time is not None:
            self._known[uid] = rule.generation, time
            return time
        silent = known is None or not current or known.reason == ConditionReason.NOTHING_TO_DO.value
        generation, before = self._known.get(uid, (rule.generation, None))
        if silent and generation == rule.generation:
            return before
        self.forget(uid)
        return None

    def forget(self, rule_uid: str) -> None:
        """Forget a rule that is gone, or no longer asks for eviction."""
        self._known.pop(rule_uid, None)
