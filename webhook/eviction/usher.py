"""Shows pods that have to go to their place: in line if they are due, back to the queue if they are to wait."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from webhook.eviction.event_messages import Kind
from webhook.eviction.step import Evict, Facts, Nothing, Wait, Why, next_step

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.eviction.dependencies import Dependencies
    from webhook.eviction.plans import Plans, PodPlan
    from webhook.eviction.rate_limiter import RateLimiter
    from webhook.eviction.ready_queue import ReadyPod, ReadyQueue
    from webhook.eviction.recorder import Teller
    from webhook.flowcontrol.workqueue import WorkQueue


class ItemKind(StrEnum):
    """What an item of the queue is about."""

    POD = "pod"
    RULE = "rule"
    OWNER = "owner"


class WorkItem(NamedTuple):
    """A pod or an owner by uid, a rule by name."""

    sort: ItemKind
    name: str


class Usher:
    """Looks at one plan at a time."""

    def __init__(
        self,
        *,
        deps: Dependencies,
        plans: Plans,
        limiter: RateLimiter,
        ready: ReadyQueue,
        queue: WorkQueue[WorkItem],
        recorder: Teller,
    ) -> None:
        self._deps = deps
        self._acts = deps.mode.acts
        self._plans = plans
        self._limiter = limiter
        self._ready = ready
        self._queue = queue
        self._recorder = recorder

    def facts_of(self, plan: PodPlan) -> Facts:
        """What is to be known about a pod now."""
        pod = plan.pod
        hold = pod.hold if pod.hold is not None else self._deps.namespaces.hold_of(pod.meta.namespace)
        evicted = plan.uid in self._plans.evicted
        return Facts(pod, plan.eviction, plan.profile.settings, hold, plan.blocked_since, evicted, self._acts)

    def look(self, plan: PodPlan, now: datetime) -> bool:
        """Sends a pod to its place; False if somebody has to be asked about it first: `ask`."""
        if self._limiter.in_flight(plan.uid):
            return True  # whoever is at it looks at the plan again
        ready_pod = self.ready_pod_of(plan, now)
        if ready_pod is not None:
            self._ready.push(ready_pod)
            return True
        facts = self.facts_of(plan)
        step = next_step(facts, now)
        if isinstance(step, Evict):
            return False
        self._wait(step, plan, facts)
        return True

    def ready_pod_of(self, plan: PodPlan, now: datetime) -> ReadyPod | None:
        """Where a pod that is due stands in line; None if it is not, or if that is to be found out by `look`."""
        if self._limiter.in_flight(plan.uid) or not isinstance(next_step(self.facts_of(plan), now), Evict):
            return None
        if self._needs_budget(plan):
            budgeted = self._deps.budgets.known(plan.pod)
            if budgeted is None:
                return None
            plan.budgeted = budgeted
        return self._limiter.ready_pod(plan)

    async def ask(self, plan: PodPlan) -> None:
        """Asks for the budgets of a pod that is due, and lets it stand in line."""
        plan.budgeted = await self._deps.budgets.covers(plan.pod)
        if self._plans.scheduled.get(plan.uid) is plan:  # else it was dropped, or planned anew and comes again
            self._ready.push(self._limiter.ready_pod(plan))

    def _needs_budget(self, plan: PodPlan) -> bool:
        """Whether it makes a difference: only what has no budget is held up by the limit of its owner."""
        return plan.pod.owner is not None and plan.profile.settings.per_owner_unavailable is not None

    def _wait(self, step: Nothing | Wait, plan: PodPlan, facts: Facts) -> None:
        item = WorkItem(ItemKind.POD, plan.uid)
        self._ready.discard(plan.uid)
        if isinstance(step, Nothing):
            self._queue.forget(item)
            if step.why is Why.OBSERVED:
                self._recorder.tell_of_pod(Kind.SCHEDULED, plan)
            return
        self._queue.add_after(item, step.seconds)
        if step.why is Why.HELD:
            self._recorder.tell_of_pod(Kind.HELD, plan, facts.hold or "")
        elif step.seconds > self._deps.settings.told_after_seconds:
            self._recorder.tell_of_pod(Kind.SCHEDULED, plan)
