"""The state that the parts of the worker share, built once.

Where things wait:

| what | where | until |
|---|---|---|
| a claim or pod that a change has hit and that is not planned yet | `backlog` | its time slice |
| a pod that is due | `ready`, by its rate or the limit that blocks it | rates and limits allow it |
| pods under a budget that refuses | `ready`, parked; the budget is in `queue` | the budget allows evictions |
| pods of a driver whose breaker tripped | `ready`, parked; the driver is in `queue` | the driver is calm |
| a pod that is not due, is held, or is to be retried | `queue`, as POD | its delay is over |
| a rule whose conditions are to be written | `queue`, as RULE | the next write is allowed |
| pods whose windows are closed | nowhere; their profile is in `queue`, as WINDOW | its windows open or close |
| an evicted pod without a replacement | `queue`, as REPLACEMENT | the wait for a replacement is over |
| a pod that was evicted and is not seen to terminate | `queue`, as EVICTED | the time for that is over |
| a pod that is terminating | `queue`, as TERMINATING | it is gone, or counts as stuck |
| a stopped patch of which a rule has changed | `queue`, as CEILING | its other rules had time to change as well |
| an Event | `recorder` | it is written |

The plans are the source of truth. An item in a queue is a hint; its plan is checked again when it is popped.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from webhook.eviction.breaker import Breaker
from webhook.eviction.budget_gate import BudgetGate
from webhook.eviction.ceilings import CeilingGroups
from webhook.eviction.conditions import Announcements
from webhook.eviction.events import EvictionRecorder
from webhook.eviction.modes import scope_of
from webhook.eviction.pending import Backlog
from webhook.eviction.plans import Plans
from webhook.eviction.pod_plan import stays
from webhook.eviction.ports import BreakerLimit, BudgetLimit
from webhook.eviction.rate_limiter import RateLimiter
from webhook.eviction.ready_queue import ReadyQueue
from webhook.eviction.returns import Returns
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
    REPLACEMENT = "replacement"
    EVICTED = "evicted"
    TERMINATING = "terminating"
    CEILING = "ceiling"
    WINDOW = "window"
    SWEEP = "sweep"


class WorkItem(NamedTuple):
    """A pod by uid, a rule by name, an evicted or terminating pod by `namespace/name/uid`.

    An evicted pod that is to be replaced goes by its uid, and so do rules with one ceiling (see `CeilingGroups`); a
    window by the position of its profile. The sweep has no name.
    """

    kind: ItemKind
    name: str


Item: TypeAlias = WorkItem | BudgetLimit | BreakerLimit
"""An item of the work queue. A limit is in it while pods wait for it that time may let go."""


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
    ceilings: CeilingGroups
    returns: Returns
    gate: BudgetGate
    breaker: Breaker
    limiter: RateLimiter
    ready: ReadyQueue
    queue: WorkQueue[Item]
    recorder: EvictionRecorder
    announcements: Announcements

    @classmethod
    def build(cls, deps: Dependencies, in_tree: InTree) -> Core:
        """Builds the core of one worker. `in_tree`: whether the in-tree controller runs."""
        scope = scope_of(deps.mode, in_tree)
        announcements = Announcements(acts=deps.mode.acts)
        evictions = Evictions(deps.inventory, scope, announcements.announced_at)
        returns = Returns(deps.inventory, evictions.evicts_users_of)
        seconds = deps.clock.seconds
        plans = Plans(
            deps.inventory, evictions, deps.profile_of, lambda plan: stays(plan, returns.claim_of(plan.pod)), seconds
        )
        queue: WorkQueue[Item] = WorkQueue(clock=seconds, random=deps.random, most_seconds=RETRY_MOST_SECONDS)
        gate = BudgetGate(deps.budgets)
        breaker = Breaker(
            deps.inventory,
            evictions,
            deps.clock,
            deps.breaker,
            on_trip=lambda driver, seconds: queue.add_after(BreakerLimit(driver), seconds),
            on_later=lambda uid, seconds: queue.add_after(WorkItem(ItemKind.POD, uid), seconds),
        )
        ceilings = CeilingGroups(deps, plans.hits)
        rules, profiles = deps.inventory.rules, deps.profiles
        limiter = RateLimiter(plans, rules, lambda at: profiles().all[at], gate, breaker, ceilings.group_of)
        return cls(
            deps=deps,
            scope=scope,
            acts=deps.mode.acts,
            evictions=evictions,
            backlog=Backlog(TimeSlice(clock=seconds)),
            plans=plans,
            ceilings=ceilings,
            returns=returns,
            gate=gate,
            breaker=breaker,
            limiter=limiter,
            ready=ReadyQueue(limiter),
            queue=queue,
            recorder=EvictionRecorder(deps),
            announcements=announcements,
        )
