"""The state that the parts of the worker share, built once, and the one rule for what to do about a pod.

Where things wait:

| what | where | until |
|---|---|---|
| a claim or pod that a change has hit and that is not planned yet | pending sets of the planner | its time slice |
| a pod that is due | `ready`, behind its rate or the limit that blocks it | rates and limits let it go |
| a pod that is not due, is held, or is to be retried | `queue`, as POD | its delay is over |
| a rule whose conditions are to be written | `queue`, as RULE | the next write is allowed |
| an owner whose evicted pod has no replacement yet | `queue`, as OWNER | the replacement has had its time |
| an Event | `recorder` | it is written |

The plans are the truth. What waits in a queue is a hint, and is looked at again when it comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.eviction.conditions import began_of
from webhook.eviction.modes import scope_of
from webhook.eviction.plans import Plans
from webhook.eviction.rate_limiter import RateLimiter
from webhook.eviction.ready_queue import ReadyQueue
from webhook.eviction.recorder import Teller
from webhook.eviction.step import Facts, Nothing, Why, next_step
from webhook.flowcontrol.workqueue import WorkQueue
from webhook.inventory.evictions import Evictions

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.eviction.dependencies import Dependencies
    from webhook.eviction.modes import InTree
    from webhook.eviction.plans import PodPlan
    from webhook.eviction.step import Step
    from webhook.inventory.scope import EvictionScope

RETRY_MOST_SECONDS: Final = 10.0
"""The longest wait between two attempts at a pod."""


class ItemKind(StrEnum):
    """What an item of the work queue is about."""

    POD = "pod"
    RULE = "rule"
    OWNER = "owner"


class WorkItem(NamedTuple):
    """A pod or an owner by uid, a rule by name."""

    kind: ItemKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """What planner, evictor, rule status and controller work on."""

    deps: Dependencies
    scope: EvictionScope
    """Which taints this worker acts on."""
    acts: bool
    """False in mode observe."""
    evictions: Evictions
    """From taints to due times."""
    plans: Plans
    limiter: RateLimiter
    ready: ReadyQueue
    queue: WorkQueue[WorkItem]
    recorder: Teller

    @classmethod
    def build(cls, deps: Dependencies, in_tree: InTree) -> Core:
        """One core for one worker. `in_tree`: whether the in-tree controller runs."""
        scope = scope_of(deps.mode, in_tree)
        evictions = Evictions(deps.inventory, scope, lambda rule: began_of(rule.conditions, rule.generation))
        plans = Plans(deps.inventory, evictions, deps.profile_of)
        limiter = RateLimiter(plans, deps.inventory.rules, lambda position: deps.profiles().all[position])
        return cls(
            deps=deps,
            scope=scope,
            acts=deps.mode.acts,
            evictions=evictions,
            plans=plans,
            limiter=limiter,
            ready=ReadyQueue(limiter),
            queue=WorkQueue(clock=deps.clock.seconds, random=deps.random, most_seconds=RETRY_MOST_SECONDS),
            recorder=Teller(deps),
        )

    def hold_of(self, plan: PodPlan) -> str | None:
        """The text of `/hold` on the pod, or else on its namespace."""
        pod = plan.pod
        return pod.hold if pod.hold is not None else self.deps.namespaces.hold_of(pod.meta.namespace)

    def facts_of(self, plan: PodPlan) -> Facts:
        """Everything that the next step of a pod depends on, as it is now."""
        evicted = plan.uid in self.plans.evicted
        hold = self.hold_of(plan)
        return Facts(plan.pod, plan.eviction, plan.profile.settings, hold, plan.blocked_since, evicted, self.acts)

    def recheck(self, plan: PodPlan, now: datetime) -> Step:
        """What to do about a pod by what is known now, whatever put it where it waited (ADR 9).

        Asked three times: when the pod is planned, when its turn comes, and right before the request is sent.
        """
        if self.plans.scheduled.get(plan.uid) is not plan:
            return Nothing(Why.SAFE)  # dropped, or planned again since
        return next_step(self.facts_of(plan), now)
