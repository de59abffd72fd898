"""Brings plans up to date with what changed, at once or in time slices, in an order that evicts no pod too soon."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from webhook.eviction.event_messages import Kind
from webhook.eviction.pending import PendingSet
from webhook.eviction.usher import ItemKind, WorkItem
from webhook.flowcontrol.timeslice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from webhook.eviction.dependencies import Dependencies
    from webhook.eviction.plans import Changes, Plans
    from webhook.eviction.ready_queue import ReadyPod, ReadyQueue
    from webhook.eviction.recorder import Teller
    from webhook.eviction.rule_status import RuleStatusUpdater
    from webhook.eviction.usher import Usher
    from webhook.flowcontrol.workqueue import WorkQueue
    from webhook.inventory.evictions import Evictions

_AT_ONCE: Final = 256
"""Pods that are decided about in the same turn of the loop as the change that hits them: a few milliseconds."""
_STRIDE: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What the decider works on."""

    evictions: Evictions
    plans: Plans
    rules: RuleStatusUpdater
    usher: Usher
    ready: ReadyQueue
    queue: WorkQueue[WorkItem]
    recorder: Teller


class Planner:
    """What is still to be looked at, and looking at it. Say what is, then `begin`."""

    def __init__(self, deps: Dependencies, desk: Desk, decided: Callable[[], None]) -> None:
        """`decided` is called whenever nothing is left."""
        self._deps = deps
        self._desk = desk
        self._decided = decided
        self.timeslice = TimeSlice(clock=deps.clock.seconds)
        self.claims = PendingSet()
        """Claims whose pods are to be planned anew."""
        self.pods = PendingSet()
        """Pods that are, by `namespace/name`."""
        self.to_enqueue = PendingSet()
        """Pods that are to be shown to their place, by uid."""
        self._due: dict[str, ReadyPod] = {}
        """Pods that have a place in line, likewise, as soon as all is planned."""
        self._rules: dict[str, None] = {}
        self._news = asyncio.Event()

    @property
    def open(self) -> bool:
        """Whether anything is left."""
        return bool(self.pending_count or self._rules)

    @property
    def pending_count(self) -> int:
        """About how many pods are left."""
        return len(self.claims) + len(self.pods) + len(self._due) + len(self.to_enqueue)

    def hit(self, claims: AbstractSet[str]) -> None:
        """The pods of these claims, by `namespace/name`, are to be planned anew.

        Of most claims: then all pods are, in their order, which is quicker than to find out who is not concerned.
        """
        inventory = self._deps.inventory
        if len(claims) >= _AT_ONCE and 2 * len(claims) > len(inventory.claims):
            self.pods.add(inventory.pods)
        else:
            self.claims.add(claims)

    def check(self, rule: str) -> None:
        """It is to be found out whether a rule hits more than it may; rules go by name."""
        self._rules[rule] = None

    def begin(self) -> None:
        """Decides at once if it is about few pods, else from here on as the loop has time for it."""
        if self.pending_count <= _AT_ONCE:
            self.catch_up()
        if self.open:
            self._news.set()

    def catch_up(self) -> None:
        """One slice.

        Nobody is shown to a place before all are planned, and before rules that hit more than they may are stopped.
        """
        desk, timeslice = self._desk, self.timeslice
        timeslice.begin()
        while not timeslice.over:
            if len(self.claims):
                self.pods.add(self._deps.inventory.pods_using(self.claims.take(_STRIDE)))
            elif len(self.pods):
                self._follow(desk.plans.replan(self.pods.take(_STRIDE)))
            elif self._rules:
                self._check(self._rules.popitem()[0])
            elif self._due:
                self._push_due()
            elif len(self.to_enqueue):
                self._enqueue(self.to_enqueue.take(_STRIDE))
            else:
                break
        if not self.open:
            self._decided()

    async def run(self) -> NoReturn:
        """Catches up, slice by slice, until it is cancelled."""
        while True:
            await self._news.wait()
            await self.finish()
            self._news.clear()

    async def finish(self) -> None:
        """Returns once nothing is left."""
        while self.open:
            self.catch_up()
            await asyncio.sleep(0)

    def _check(self, name: str) -> None:
        rule = self._deps.inventory.rules.get(name)
        if rule is not None and self._desk.rules.beyond_ceiling(rule):
            self._desk.queue.add(WorkItem(ItemKind.RULE, name))
            self.hit(self._desk.evictions.suspend(rule))

    def _push_due(self) -> None:
        for _ in range(min(_STRIDE, len(self._due))):
            self._desk.ready.push(self._due.popitem()[1])

    def _enqueue(self, uids: Iterable[str]) -> None:
        scheduled, look, now = self._desk.plans.scheduled, self._desk.usher.look, self._deps.clock.now()
        for uid in uids:
            plan = scheduled.get(uid)
            if plan is not None and not look(plan, now):
                self._desk.queue.add(WorkItem(ItemKind.POD, uid))

    def _follow(self, changes: Changes) -> None:
        """Plans were made, changed or dropped."""
        desk, seconds = self._desk, self._deps.settings.condition_seconds
        planned, cancelled, gone = changes
        hitting = {rule for plan in planned for rule in plan.eviction.rules}
        for _, name in hitting:
            self.check(name)
        for _, name in hitting.union(*[plan.eviction.rules for plan in (*cancelled, *gone)]):
            desk.queue.add_after(WorkItem(ItemKind.RULE, name), seconds)
        now = self._deps.clock.now()
        for plan in planned:
            ready_pod = desk.usher.ready_pod_of(plan, now)
            if ready_pod is not None:
                self._due[plan.uid] = ready_pod
            else:
                self._due.pop(plan.uid, None)
                self.to_enqueue.add((plan.uid,))
        for plan in (*cancelled, *gone):
            self._due.pop(plan.uid, None)
            desk.ready.discard(plan.uid)
        for plan in cancelled:
            self._deps.metrics.count_cancelled()
            desk.recorder.tell_of_pod(Kind.CANCELLED, plan)
