"""Counts pods that are due and wait, by what they wait for. Reads the plans and the queues; for metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Final, NamedTuple

from webhook.eviction.core import Core, Item, ItemKind, WorkItem
from webhook.eviction.pod_plan import PodPlan, StepReason
from webhook.eviction.ports import LimitKind
from webhook.eviction.rate_limiter import RateGroup
from webhook.policy.windows import state_of

_KEPT_SECONDS: Final = 0.5
"""One scrape asks for every number, and a count looks at all pods that are due."""
_KIND_OF: Final = attrgetter("kind")


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


_CAUSES: Final = {
    LimitKind.OVERALL: WaitCause.OVERALL,
    LimitKind.NAMESPACE: WaitCause.NAMESPACE,
    LimitKind.OWNER: WaitCause.OWNER,
    LimitKind.BUDGET: WaitCause.BLOCKED,
    LimitKind.BREAKER: WaitCause.BREAKER,
}


_PUT_OFF: Final = {
    StepReason.HELD: WaitCause.HELD,
    StepReason.WINDOW: WaitCause.WINDOW,
    StepReason.COMPLETING: WaitCause.COMPLETION,
    StepReason.GANG: WaitCause.GANG,
}


class WaitingCounts(NamedTuple):
    """Pods that are due, and the age of the oldest in seconds, 0 without one."""

    pods: Mapping[WaitCause, int]
    oldest_due_seconds: float


class WaitingPods:
    """The counts, kept for the moment of one scrape."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: WaitingCounts | None = None
        self._known_at = 0.0

    def count(self, cause: str) -> int:
        """Number of pods that wait for this."""
        return self._counts().pods[WaitCause(cause)]

    def oldest_due_seconds(self) -> float:
        """How long the pod has been due that has been due for longest; 0 if none is due.

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
        core, pods = self._core, dict.fromkeys(WaitCause, 0)
        failing = [plan for item in core.queue.failing() if (plan := self._failing(item)) is not None]
        for reason, count in Counter(core.plans.put_off.values()).items():
            pods[_PUT_OFF[reason]] += count
        pods[WaitCause.FAILED] = len(failing)
        opened = self._opened()
        due = [
            max(plan.eviction.due.timestamp() + plan.profile.settings.grace_seconds, opened[plan.profile.position])
            for plan in failing
        ]
        if core.deps.paused():
            pods[WaitCause.PAUSE] = len(core.ready)
        else:
            by_kind = Counter(map(_KIND_OF, core.ready.parked()))
            for kind, count in by_kind.items():
                pods[_CAUSES[kind]] += count
            pods[WaitCause.RATE] = len(core.ready) - by_kind.total()
            due.append(core.ready.oldest_due_seconds(lambda group: opened[_profile_of(group)]))
        now = core.deps.clock.now().timestamp()
        return WaitingCounts(pods, max(now - min(due, default=now), 0.0))

    def _opened(self) -> Mapping[int, float]:
        """When the windows of each profile opened that are open now, as a timestamp; 0 for those that always are."""
        now, profiles = self._core.deps.clock.now(), self._core.deps.profiles().all
        since = {each.position: state_of(each.settings.windows, now).since for each in profiles}
        found = {position: 0.0 if time is None else time.timestamp() for position, time in since.items()}
        return defaultdict(float, found)

    def _failing(self, item: Item) -> PodPlan | None:
        """The plan of a pod whose last request failed, and which waits to be queued again."""
        if not isinstance(item, WorkItem) or item.kind is not ItemKind.POD or item.name in self._core.ready:
            return None
        if item.name in self._core.plans.put_off:
            return None
        return None if self._core.limiter.in_flight(item.name) else self._core.plans.scheduled.get(item.name)


def _profile_of(group: Hashable) -> int:
    """The position of the profile of pods that share their rates."""
    assert isinstance(group, RateGroup)
    return group.profile
