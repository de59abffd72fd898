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
| a stopped patch whose rules have changed | `queue`, as CEILING | its other rules had time to change as well |
| an Event | `events` | it is written |

The plans are the source of truth. An item in a queue is a hint; its plan is checked again when it is popped.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from webhook.eviction.breaker import Breaker
from webhook.eviction.budget_gate import BudgetGate
from webhook.eviction.ceilings import CeilingGroups
from webhook.eviction.conditions import Announcements
from webhook.eviction.dependencies import Dependencies
from webhook.eviction.events import EvictionRecorder
from webhook.eviction.modes import InTree, scope_of
from webhook.eviction.plans import Plans
from webhook.eviction.pod_plan import PodPlan, stays
from webhook.eviction.ports import BreakerLimit, BudgetLimit
from webhook.eviction.rate_limiter import RateLimiter
from webhook.eviction.ready_queue import ReadyQueue
from webhook.eviction.returns import Returns
from webhook.flowcontrol.timeslice import TimeSlice
from webhook.flowcontrol.workqueue import WorkQueue
from webhook.inventory.evictions import Evictions
from webhook.inventory.scope import EvictionScope

RETRY_MOST_SECONDS: Final = 10.0
"""The longest wait between two attempts at a pod."""


class PendingSet:
    """Keys of claims or pods, each once; the key added last is taken first.

    Keys that are added together often refer to objects that are close in memory, so taking them together is faster.
    """

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: Iterable[str]) -> None:
        """Adds keys; a key that is in the set already keeps its place."""
        self._keys.update(dict.fromkeys(keys))

    def take(self, most: int) -> list[str]:
        """Removes at most `most` keys and returns them."""
        return [self._keys.popitem()[0] for _ in range(min(most, len(self._keys)))]


class Backlog:
    """Everything that waits to be planned. The planner fills and empties it; others ask only whether it is empty."""

    def __init__(self, timeslice: TimeSlice) -> None:
        self.timeslice = timeslice
        """Shared by planning and the tasks that handle the work queue, so that both together take one slice."""
        self.claims = PendingSet()
        """Claims, by `namespace/name`, whose pods are to be planned again."""
        self.pods = PendingSet()
        """Pods, by `namespace/name`, that are to be planned again."""
        self.groups = PendingSet()
        """PodGroups, by `namespace/name`, whose pods go because of others: planned once all of those are."""
        self.to_enqueue = PendingSet()
        """Planned pods, by uid, that are to be put into a queue."""
        self.due: dict[str, PodPlan] = {}
        """Pods for the ready queue, by uid. Pushed once all are planned, so the first popped is the first of all."""
        self.unchecked: dict[str, None] = {}
        """Names of rules whose ceiling is to be checked."""

    @property
    def pod_count(self) -> int:
        """Roughly the number of pods left to plan; a pending claim or PodGroup counts as one."""
        return len(self.claims) + len(self.pods) + len(self.groups) + len(self.due) + len(self.to_enqueue)

    @property
    def open(self) -> bool:
        """Whether anything is left to plan."""
        return bool(self.claims or self.pods or self.groups or self.due or self.to_enqueue or self.unchecked)

    @property
    def behind(self) -> bool:
        """Whether a known change is not planned yet; until it is, no pod is evicted and no condition is written."""
        return self.open or self.timeslice.paused


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
