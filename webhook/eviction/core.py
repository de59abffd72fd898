"""The state that the parts of the worker share, built once.

Where things wait:

| what | where | until |
|---|---|---|
| a claim or pod that a change has hit and that is not planned yet | `backlog` | its time slice |
| a pod that is due | `ready`, by its rate or the limit that blocks it | rates and limits allow it |
| a pod that is not due, is held, or is to be retried | `queue`, as POD | its delay is over |
| a rule whose conditions are to be written | `queue`, as RULE | the next write is allowed |
| an owner whose evicted pod has no replacement yet | `queue`, as OWNER | the wait for a replacement is over |
| a pod that was evicted, until its deletionTimestamp is seen | `queue`, as EVICTED | the time for that is over |
| an Event | `recorder` | it is written |

The plans are the source of truth. An item in a queue is a hint; its plan is checked again when it is popped.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.eviction.conditions import announced_at
from webhook.eviction.modes import scope_of
from webhook.eviction.pending import Backlog
from webhook.eviction.plans import Plans
from webhook.eviction.rate_limiter import RateLimiter
from webhook.eviction.ready_queue import ReadyQueue
from webhook.eviction.recorder import EvictionRecorder
from webhook.flowcontrol.timeslice import TimeSlice
from webhook.flowcontrol.workqueue import WorkQueue
from webhook.inventory.evictions import Evictions

if TYPE_CHECKING:
    from webhook.eviction.dependencies import Dependencies
    from webhook.eviction.modes import InTree
    from webhook.inventory.scope import EvictionScope

RETRY_MOST_SECONDS: Final = 10.0
"""The longest wait between two attempts at a pod."""


class ItemKind(StrEnum):
    """The kind of object that an item of the work queue refers to."""

    POD = "pod"
    RULE = "rule"
    OWNER = "owner"
    EVICTED = "evicted"


class WorkItem(NamedTuple):
    """A pod or an owner by uid, a rule by name, an evicted pod by `namespace/name/uid`."""

    kind: ItemKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """What planner, evictor, rule status and controller share."""

    deps: Dependencies
    scope: EvictionScope
    """Which taints this worker acts on."""
    acts: bool
    """False in mode observe."""
    evictions: Evictions
    """Computes due times from taints."""
    backlog: Backlog
    plans: Plans
    limiter: RateLimiter
    ready: ReadyQueue
    queue: WorkQueue[WorkItem]
    recorder: EvictionRecorder

    @classmethod
    def build(cls, deps: Dependencies, in_tree: InTree) -> Core:
        """Builds the core of one worker. `in_tree`: whether the in-tree controller runs."""
        scope = scope_of(deps.mode, in_tree)
        evictions = Evictions(deps.inventory, scope, lambda rule: announced_at(rule.conditions, rule.generation))
        plans = Plans(deps.inventory, evictions, deps.profile_of)
        limiter = RateLimiter(plans, deps.inventory.rules, lambda position: deps.profiles().all[position])
        return cls(
            deps=deps,
            scope=scope,
            acts=deps.mode.acts,
            evictions=evictions,
            backlog=Backlog(TimeSlice(clock=deps.clock.seconds)),
            plans=plans,
            limiter=limiter,
            ready=ReadyQueue(limiter),
            queue=WorkQueue(clock=deps.clock.seconds, random=deps.random, most_seconds=RETRY_MOST_SECONDS),
            recorder=EvictionRecorder(deps),
        )
