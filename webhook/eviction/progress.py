"""How far the eviction for a rule has come, and what pods wait for: counted from the plan, and from who is in line.

The forecast is what a rule of effect None would evict with effect NoExecute, as the in-tree controller counts it.
`impact_of` counts the consumers of claims, for processes that may not read pods. The worker knows the pods, so it
leaves out those that are terminating, have no node, or are gone while their claim is still reserved for them.
Source: `semantics.md` E-40, E-43; countPendingPods and countTaintedDevices of the in-tree controller.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.rules import DeviceTaintRule
from webhook.eviction.conditions import ImpactForecast, Progress
from webhook.eviction.pod_plan import Going, StepReason, Wait, exemption, opening_text, state_text
from webhook.eviction.ports import LimitKind
from webhook.flowcontrol.workqueue import TimeSlice
from webhook.inventory.gangs import root_owner
from webhook.inventory.impact import Taint, impact_of
from webhook.inventory.targets import DeviceNames
from webhook.policy.windows import state_of

if TYPE_CHECKING:
    from webhook.eviction.core import Core

_KEPT_SECONDS: Final = 0.5
"""One scrape asks for every number, and a count looks at all pods that are due."""
_EXEMPT: Final = frozenset({StepReason.MIRROR, StepReason.DAEMON, StepReason.SKIPPED})


async def progress_of(core: Core, rule_uid: str) -> Progress:
    """Count the pods that a rule hits, in time slices: by one plan, and by who is in line meanwhile."""
    made, count, timeslice = core.plan, Progress(), TimeSlice(clock=core.deps.clock.seconds)
    figures = made.rules.get(rule_uid)
    if figures is not None and not figures.stopped:
        for key in await core.pods_of(rule_uid):
            await timeslice.pause()
            _add(core, count, key, rule_uid)
    for uid, key in core.room.given_up.items():
        eviction = core.affected.hit.get(key)
        if eviction is not None and core.view.pod(key, uid) is not None:
            count.stuck += [key for rule, _ in eviction.rules if rule == rule_uid]
    pause = core.deps.paused()
    count.paused = None if pause is None else (pause.until, pause.why)
    return count


def _add(core: Core, count: Progress, key: str, rule_uid: str) -> None:
    pod = core.deps.inventory.pods.get(key)
    uid = "" if pod is None else pod.meta.uid
    each, wait = core.plan.going.get(uid), core.plan.waits.get(uid)
    if pod is None or pod.deleting or pod.finished or uid in core.ledger.granted or (each is None and wait is None):
        return
    if each is not None:
        if all(rule != rule_uid for rule, _ in each.eviction.rules):
            return  # other rules make it go, as this one is stopped
        _pend(count, each.pod.meta.namespace)
        _add_going(core, count, each, wait)
        return
    assert wait is not None
    match wait.reason:
        case reason if reason in _EXEMPT:
            count.skipped += 1
        case StepReason.GROUP:
            count.held_by[f"{pod.meta.namespace}/{wait.because}"] += 1
        case StepReason.RETURNS:
            count.returning[wait.because, str(root_owner(pod) or "")] += 1
        case StepReason.REPUBLISHED | StepReason.TAKEN:
            _pend(count, pod.meta.namespace)
            count.due += 1
            count.blocked += _was_refused(core, uid)
        case _:
            pass


def _pend(count: Progress, namespace: str) -> None:
    count.pending += 1
    count.namespaces.add(namespace)


def _was_refused(core: Core, uid: str) -> bool:
    failure = core.ledger.failures.get(uid)
    return failure is not None and failure.blocked


def _add_going(core: Core, count: Progress, each: Going, wait: Wait | None) -> None:
    """Count a pod that goes, now or later, by what it waits for."""
    if not core.acts:
        count.due += 1
        return
    match None if wait is None else wait.reason:
        case StepReason.WINDOW:
            count.closed[_opening(core, count, each)] += 1
        case StepReason.COMPLETING:
            count.completing += 1
        case StepReason.EARLY:
            _count_early(core, count, each)
        case StepReason.GANG:
            assert wait is not None
            assert wait.cause is not None
            count.waiting_for[wait.other, state_text(wait.cause)] += 1
            if wait.cause is StepReason.EARLY:
                _count_early(core, count, each)
            count.due += wait.cause in (StepReason.HELD, StepReason.FAILED)
            count.held_back += wait.cause is StepReason.HELD
        case StepReason.HELD:
            count.due += 1
            count.held += 1
        case _:
            count.due += 1
            _add_in_line(core, count, each)


def _add_in_line(core: Core, count: Progress, each: Going) -> None:
    wait = core.line.wait_of(each.uid)
    limit = None if wait is None else wait.limit
    if limit is None or limit.kind is LimitKind.BUDGET:
        count.blocked += limit is not None or _was_refused(core, each.uid)
    else:
        count.limited.setdefault(limit.kind, []).append(each.key)


def _opening(core: Core, count: Progress, each: Going) -> str:
    members = core.plan.members_of(each)
    unit = core.planned, members[0].uid
    if unit not in count.openings:
        count.openings[unit] = opening_text(members, core.deps.clock.now())
    return count.openings[unit]


def _count_early(core: Core, count: Progress, each: Going) -> None:
    due = core.plan.due_of(each)
    count.next_due = due if count.next_due is None else min(count.next_due, due)


# --- gauges --------------------------------------------------------------------------------------


class WaitCause(StrEnum):
    """What a pod that is due waits for; the values of the metric's label."""

    BLOCKED = "blocked"
    """A disruption budget."""
    HELD = "held"
    """Annotation `/hold`."""
    WINDOW = "window"
    """A window of its profile, or of one that it goes together with."""
    COMPLETION = "completion"
    """Its own end (`waitForCompletion`)."""
    GANG = "gang"
    """Another pod that it goes together with, which counts by what that one waits for, if it is due."""
    OVERALL = "overall"
    NAMESPACE = "namespace"
    OWNER = "owner"
    RATE = "rate"
    """`rate` or `maxPerMinute`, or the pods before it."""
    FAILED = "failed"
    """The retry after an error."""
    BREAKER = "breaker"
    PAUSE = "pause"


_BY_LIMIT: Final = {
    LimitKind.OVERALL: WaitCause.OVERALL,
    LimitKind.NAMESPACE: WaitCause.NAMESPACE,
    LimitKind.OWNER: WaitCause.OWNER,
    LimitKind.BUDGET: WaitCause.BLOCKED,
}
_BY_REASON: Final = {
    StepReason.HELD: WaitCause.HELD,
    StepReason.WINDOW: WaitCause.WINDOW,
    StepReason.COMPLETING: WaitCause.COMPLETION,
    StepReason.GANG: WaitCause.GANG,
    StepReason.FAILED: WaitCause.FAILED,
    StepReason.BREAKER: WaitCause.BREAKER,
    StepReason.PAUSED: WaitCause.PAUSE,
}


class WaitingCounts(NamedTuple):
    """Pods that are due, and the age of the oldest in seconds, 0 without one."""

    pods: Mapping[WaitCause, int]
    oldest_due_seconds: float


class WaitingPods:
    """Counts pods that are due, by what they wait for; kept for the moment of one scrape."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: WaitingCounts | None = None
        self._known_at = 0.0

    def count(self, cause: str) -> int:
        """Return the number of pods that wait for this."""
        return self._counts().pods[WaitCause(cause)]

    def planned(self) -> int:
        """Return the number of pods that a taint evicts, those that stay among them, without those that have gone."""
        made, granted = self._core.plan, self._core.ledger.granted
        stay = [uid for uid, wait in made.waits.items() if wait.reason is not StepReason.STOPPED]
        return len(made.going) + len([uid for uid in stay if uid not in made.going and uid not in granted])

    def oldest_due_seconds(self) -> float:
        """Return how long the pod has been due that has been due for longest; 0 if none is due.

        Pods that a person holds back do not count: those with a hold, those that may complete, and all during a pause.
        A pod that had to wait for a window counts from when that opened.
        """
        return self._counts().oldest_due_seconds

    def _counts(self) -> WaitingCounts:
        now = self._core.deps.clock.seconds()
        if self._known is None or not 0 <= now - self._known_at < _KEPT_SECONDS:
            self._known, self._known_at = self._look(), now
        return self._known

    def _look(self) -> WaitingCounts:
        core, found, due = self._core, Counter[WaitCause](), list[float]()
        if not core.acts:
            return WaitingCounts(found, 0.0)
        opened, going, now = self._opened(), core.plan.going, core.deps.clock.now().timestamp()
        for uid, wait in core.plan.waits.items():
            if wait.reason in _BY_REASON:
                found[_BY_REASON[wait.reason]] += 1
            if wait.reason is StepReason.FAILED and uid in going:
                due.append(max(going[uid].due.timestamp(), opened[going[uid].profile.position]))
        for uid, in_line in core.line.pods():
            limit = None if in_line is None else in_line.limit
            found[WaitCause.RATE if limit is None else _BY_LIMIT.get(limit.kind, WaitCause.RATE)] += 1
            if uid in going:
                due.append(max(going[uid].due.timestamp(), opened[going[uid].profile.position]))
        return WaitingCounts(found, max(now - min(due, default=now), 0.0))

    def _opened(self) -> Mapping[int, float]:
        """Return when the windows of each profile opened that are open now, as a timestamp; 0: always open."""
        now, profiles = self._core.deps.clock.now(), self._core.deps.profiles()
        since = {each.position: state_of(each.settings.windows, now).since for each in profiles}
        found = {position: 0.0 if time is None else time.timestamp() for position, time in since.items()}
        return defaultdict(float, found)


# --- forecast ------------------------------------------------------------------------------------


async def forecast_of(core: Core, rule: DeviceTaintRule) -> ImpactForecast:
    """Count devices, allocated devices, pods and namespaces, in time slices: the inventory may change meanwhile.

    A rule without a selector selects nothing (E-6).
    """
    if rule.selector is None:
        return ImpactForecast(0, 0, 0, 0)
    inventory = core.deps.inventory
    taint = Taint.of_rule(rule, in_tree=False).as_if_evicting(in_tree=False)
    impact = impact_of(inventory, rule.selector, taint, core.deps.clock.now())
    names = DeviceNames.of(rule.selector)
    pods, namespaces = 0, set()
    timeslice = TimeSlice(clock=core.deps.clock.seconds)
    for key in inventory.pods_using(inventory.usage.claims_on(*names)):
        await timeslice.pause()
        pod = inventory.pods.get(key)
        if pod is None or pod.deleting or pod.finished or pod.meta.uid in core.ledger.granted:
            continue
        exempt = exemption(pod, core.deps.profile_of(pod).settings) is not None
        if not exempt and core.evictions.would_evict(pod, taint, names):
            pods += 1
            namespaces.add(pod.meta.namespace)
    return ImpactForecast(impact.devices, impact.allocated, pods, len(namespaces))
