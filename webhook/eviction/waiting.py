"""Counts pods that are due and wait, by what they wait for. Reads the plans and the queues; for metrics."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.eviction.core import ItemKind, WorkItem
from webhook.eviction.limits import LimitKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.eviction.core import Core
    from webhook.eviction.limits import Limit
    from webhook.eviction.plans import PodPlan

_KEPT_SECONDS: Final = 0.5
"""One scrape asks for every number, and a count looks at all plans."""


class WaitCause(StrEnum):
    """What a pod that is due waits for; the values of the metric's label."""

    BLOCKED = "blocked"
    """A disruption budget."""
    HELD = "held"
    """Annotation `/hold`."""
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

        Pods that a person holds back do not count: those with a hold, and all during a pause.
        """
        return self._counts().oldest_due_seconds

    def cause_of(self, plan: PodPlan) -> WaitCause | None:
        """What a pod waits for; None if it is not due, or its request is in flight."""
        core = self._core
        if core.limiter.in_flight(plan.uid):
            return None
        if plan.uid in core.ready:
            if core.deps.paused():
                return WaitCause.PAUSE
            limit: Limit | None = core.ready.limit_of(plan.uid)
            return WaitCause.RATE if limit is None else _CAUSES[limit.kind]
        if plan.held:
            return WaitCause.HELD
        return WaitCause.FAILED if core.queue.failures(WorkItem(ItemKind.POD, plan.uid)) else None

    def _counts(self) -> WaitingCounts:
        now = self._core.deps.clock.seconds()
        if self._known is None or not 0 <= now - self._known_at < _KEPT_SECONDS:
            self._known, self._known_at = self._look(), now
        return self._known

    def _look(self) -> WaitingCounts:
        pods = dict.fromkeys(WaitCause, 0)
        now = self._core.deps.clock.now().timestamp()
        oldest = now
        for plan in self._core.plans.scheduled.values():
            cause = self.cause_of(plan)
            if cause is None:
                continue
            pods[cause] += 1
            if cause not in (WaitCause.HELD, WaitCause.PAUSE):
                oldest = min(oldest, plan.eviction.due.timestamp() + plan.profile.settings.grace_seconds)
        return WaitingCounts(pods, now - oldest)
