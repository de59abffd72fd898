"""The worker: plans evictions at each change, evicts pods that are due, and keeps the conditions of rules up to date.

It builds the parts, runs their tasks, and reacts to what they return. `observe` never awaits, so plans need no lock. A
change that hits up to a few hundred pods is planned before `observe` returns. A larger one is planned in time slices,
and until it is planned in full no pod is evicted and no condition is written. So the order in which changes arrive
makes no difference. Which item waits in which queue: see `core`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NoReturn, assert_never

from webhook.api.patches import ResourceSlicePatch
from webhook.eviction.core import RETRY_MOST_SECONDS, Core, Item, ItemKind, WorkItem
from webhook.eviction.dependencies import Dependencies
from webhook.eviction.events import PodEventKind
from webhook.eviction.evictor import Attempt, PodEvictor, log_fields, record_evicted
from webhook.eviction.gates import PROBE_SECONDS
from webhook.eviction.ledger import MINUTE_SECONDS
from webhook.eviction.modes import InTree
from webhook.eviction.planner import Planner
from webhook.eviction.pod_plan import PodPlan
from webhook.eviction.ports import (
    BreakerLimit,
    BudgetLimit,
    EvictionFound,
    EvictionOutcome,
    Freed,
    NamespaceLimit,
    OverallLimit,
    OwnerFreed,
    OwnerLimit,
    PodFreed,
    PodTerminating,
    ReplacementPending,
)
from webhook.eviction.rule_status import RuleStatusUpdater
from webhook.eviction.waiting import WaitCause, WaitingPods
from webhook.inventory.state import InventoryObject
from webhook.telemetry.repeats import LastingFault

log = logging.getLogger(__name__)
_SOON_SECONDS: Final = 0.2
_STOP_POLL_SECONDS: Final = 0.05
_CLOCK_SECONDS: Final = 1.0
"""How often the wall clock is compared with the monotonic clock, and the drift that means it was set. The event loop's
timers stand still in a suspended machine: being late by as much means that they end too late as well."""


class Unparker:
    """Unparks pods, and sets timers for limits that time will free. `wake` has the ready queue polled again."""

    def __init__(self, core: Core, wake: Callable[[], None]) -> None:
        self._core = core
        self._deps = core.deps
        self._wake = wake

    def follow(self) -> None:
        """Acts on all that the plans have freed."""
        freed = self._core.plans.freed
        while freed:
            self._follow(freed.pop())
        self._wake()

    def retry_budget(self, budget: BudgetLimit) -> None:
        """Unparks the next single pod and the next unit of each size that wait for a budget, or checks again later."""
        gate, now = self._core.gate, self._deps.clock.seconds()
        for limit in gate.limits_like(budget):
            self.retry_after(limit, gate.wait_seconds(limit, now))

    def retry_after(self, limit: BudgetLimit | BreakerLimit, seconds: float) -> None:
        """Unparks a pod that waits for this limit now, or checks again later."""
        if seconds > 0:
            self._core.queue.add_after(limit, seconds)
            return
        self._core.ready.unpark(limit)
        self._wake()

    def _follow(self, freed: Freed) -> None:
        profiles = range(len(self._deps.profiles().all))
        match freed:
            case PodFreed(namespace):
                for position in profiles:
                    self._core.ready.unpark(OverallLimit(position))
                    self._core.ready.unpark(NamespaceLimit(namespace, position))
            case OwnerFreed(owner):
                for position in profiles:
                    self._core.ready.unpark(OwnerLimit(owner, position))
            case ReplacementPending(uid, of_gang):
                settings = self._deps.settings
                seconds = settings.gang_replacement_seconds if of_gang else settings.replacement_seconds
                self._core.queue.add_after(WorkItem(ItemKind.REPLACEMENT, uid), seconds)
            case PodTerminating(key, uid):
                self._await_end(key, uid)
            case EvictionFound(key):
                self._count_foreign(key)
            case other:
                assert_never(other)

    def _await_end(self, key: str, uid: str) -> None:
        """A pod counts as stuck once its grace period and `stuckAfter` are over."""
        pod = self._deps.inventory.pods.get(key)
        if pod is None:
            return
        grace = 0.0 if pod.gone_by is None else (pod.gone_by - self._deps.clock.now()).total_seconds()
        seconds = grace + self._deps.profile_of(pod).settings.stuck_after_seconds
        self._core.queue.add_after(WorkItem(ItemKind.TERMINATING, f"{key}/{uid}"), seconds)

    def _count_foreign(self, key: str) -> None:
        """Counts an eviction of the last leader toward `maxPerMinute`, unless it is older than a minute for certain."""
        pod, now = self._deps.inventory.pods.get(key), self._deps.clock.now()
        if pod is None or (pod.gone_by is not None and (now - pod.gone_by).total_seconds() >= MINUTE_SECONDS):
            return
        self._core.limiter.count_foreign(self._deps.profile_of(pod), self._deps.clock.seconds())


class Controller:
    """One worker. It does nothing before `start`, which only the leader calls."""

    def __init__(self, deps: Dependencies, in_tree: InTree = InTree.UNKNOWN) -> None:
        core = Core.build(deps, in_tree)
        self._core = core
        self._deps = deps
        self.backlog = core.backlog
        self.plans = core.plans
        self.ready = core.ready
        self.queue = core.queue
        self.rules = RuleStatusUpdater(core)
        self.planner = Planner(core, self.rules)
        self._evictor = PodEvictor(core)
        self._room = Unparker(core, self._evictor.wake)
        self._waiting = WaitingPods(core)
        self.started = False

    def watch_metrics(self) -> None:
        """Registers the gauges that are computed at each scrape."""
        metrics, core = self._deps.metrics, self._core
        metrics.watch(
            {
                "pods_undecided": lambda: self.backlog.pod_count,
                "pods_planned": lambda: len(self.plans.scheduled),
                "pods_in_line": lambda: len(self.ready),
                "pods_under_way": lambda: len(self.plans.under_way),
                "pods_stuck": lambda: len(self.plans.stuck),
                "oldest_due_seconds": self._waiting.oldest_due_seconds,
                "rules_in_use": lambda: self.rules.released.held_count,
                "breakers_tripped": lambda: len(core.breaker.tripped),
                "paused": lambda: core.deps.paused() is not None,
            }
        )
        metrics.watch_waiting(tuple(WaitCause), self._waiting.count)

    # --- changes: nothing here awaits ------------------------------------------------------------

    def start(self) -> None:
        """Plans all pods in the inventory; from here on `observe` keeps the plans up to date."""
        self.started = True
        self.queue.add_after(WorkItem(ItemKind.SWEEP, ""), self._deps.settings.sweep_seconds)
        if self.planner.start():
            self._room.follow()

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """One object has changed; the inventory has applied the change already."""
        if self.started and self.planner.observe(old, new):
            self._room.follow()

    def observe_patch(self, old: ResourceSlicePatch | None, new: ResourceSlicePatch | None) -> None:
        """A patch is known now, or has changed: its text, and what admission has judged. Its rules change later."""
        if self.started and new is not None and self.planner.observe_patch(old, new):
            self._room.follow()

    def replan_all(self) -> None:
        """Plans all pods again, because the policy has changed, or what servers do."""
        if self.started and self.planner.replan_all():
            self._room.follow()

    def requeue_waiting(self, namespace: str | None = None) -> None:
        """Checks waiting pods again: a hold or labels of their namespace, or (None: all) the wall clock has changed."""
        if self.planner.requeue_waiting(namespace):
            self._room.follow()

    def catch_up(self) -> None:
        """Continues planning for one time slice."""
        if self.planner.catch_up():
            self._room.follow()

    def observe_budgets(self, namespace: str, freeing: str = "") -> None:
        """Other disruption budgets select the pods of a namespace now; `freeing` lets those go that are not ready."""
        if not self.started:
            return
        plans = self.plans.scheduled
        if freeing:  # of thousands of pods that wait for it, few are concerned
            limits = self._core.gate.limits_like(BudgetLimit(namespace, (freeing,)))
            waiting = [(uid, limit) for limit in limits for uid in self.ready.parked_for(limit) if uid in plans]
            concerned = [uid for uid, limit in waiting if limit.needed > 1 or not plans[uid].pod.ready]
        else:
            concerned = [uid for uid, plan in plans.items() if plan.pod.meta.namespace == namespace]
        for uid in concerned:
            self.ready.retry(uid)
        self._evictor.wake()

    def observe_budget(self, namespace: str, name: str) -> None:
        """The status of a disruption budget has changed."""
        if self.started:
            for limit in self._core.gate.observe(namespace, name):
                self.ready.unpark(limit)
            self._evictor.wake()

    # --- tasks -----------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Plans and evicts until it is cancelled."""
        settings = self._deps.settings
        async with asyncio.TaskGroup() as group:
            group.create_task(self._plan_pending())
            for _ in range(settings.planners):
                group.create_task(self._handle_items())
            for _ in range(settings.workers):
                group.create_task(self._evict_due())
            group.create_task(self._core.recorder.run())
            group.create_task(self._watch_clock())
        raise AssertionError("its tasks do not end")

    async def stop(self) -> None:
        """Starts no further eviction, waits for those in flight, and writes the final conditions; each for a time.

        A worker that leads no longer does not wait and writes nothing, as another one does.
        """
        self._evictor.stop()
        deps = self._deps
        if deps.leads():
            await self._wait_for_requests()
        if deps.leads() and deps.trusted():
            await self._write_last_conditions()

    async def _wait_for_requests(self) -> None:
        try:
            async with asyncio.timeout(self._deps.settings.stop_seconds):
                while self._core.limiter.any_in_flight:  # noqa: ASYNC110 -- once, for at most as long as a request
                    await asyncio.sleep(_STOP_POLL_SECONDS)
        except TimeoutError:
            log.warning("evictions cut off", extra={"count": len(self.plans.under_way)})

    async def _write_last_conditions(self) -> None:
        try:
            async with asyncio.timeout(self._deps.settings.last_conditions_seconds), asyncio.TaskGroup() as group:
                await self._plan_everything()
                for name in self._deps.inventory.rules:
                    group.create_task(self.rules.sync(name, last=True))
        except TimeoutError:
            log.warning("last conditions not written in time")

    async def flush_events(self) -> None:
        """Writes the queued Events, for a limited time. Call it after `stop`, once `run` was cancelled."""
        await self._core.recorder.finish()

    async def _plan_pending(self) -> NoReturn:
        while True:
            await self.planner.wait()
            await self._plan_everything()

    async def _plan_everything(self) -> None:
        while self.backlog.open:
            self.catch_up()
            await asyncio.sleep(0)

    async def _evict_due(self) -> NoReturn:
        while True:
            await self.evict(await self._evictor.next_turn())

    async def _handle_items(self) -> NoReturn:
        while True:
            item = await self.queue.get()
            try:
                await self.handle(item)
            finally:
                self.queue.done(item)
            if await self.backlog.timeslice.pause():
                self._evictor.wake()  # no pod was evicted during the pause

    async def _watch_clock(self) -> NoReturn:
        """Recomputes waits when the wall clock was set: due times are wall-clock times, waits are monotonic.

        It also does so after the machine was suspended, as waits on the event loop do not go on meanwhile.
        """
        clock = self._deps.clock
        began = clock.seconds()
        known = clock.now().timestamp() - began
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            seconds = clock.seconds()
            offset = clock.now().timestamp() - seconds
            was_set = abs(offset - known) >= _CLOCK_SECONDS
            if was_set:
                log.warning("wall clock changed", extra={"delaySeconds": round(offset - known, 3)})
            if was_set or seconds - began >= 2 * _CLOCK_SECONDS:
                self._recompute_waits()
            known, began = offset, seconds
            self._core.limiter.forget_idle(seconds)

    def _recompute_waits(self) -> None:
        self.requeue_waiting()
        for name in self._deps.inventory.rules:  # for `/expires-at`
            self.queue.add(WorkItem(ItemKind.RULE, name))

    # --- one item, one pod -----------------------------------------------------------------------

    async def handle(self, item: Item) -> None:
        """Handles one item of the work queue."""
        match item:
            case WorkItem():
                await self._handle_object(item)
            case BudgetLimit():
                self._room.retry_budget(item)
            case BreakerLimit(driver):
                self._room.retry_after(item, self._core.breaker.reset_if_calm(driver))
            case _:
                assert_never(item)

    async def _handle_object(self, item: WorkItem) -> None:
        match item.kind:
            case ItemKind.POD:
                self._handle_pod(item)
            case ItemKind.RULE:
                ready = self._deps.leads() and not self.backlog.open
                again = await self.rules.sync(item.name) if ready else _SOON_SECONDS
                if again is not None:
                    self.queue.add_after(item, again)
            case ItemKind.REPLACEMENT:
                self.plans.owners.expire_replacement(item.name)
                self._room.follow()
            case ItemKind.TERMINATING:
                self._give_up(*item.name.rsplit("/", 1))
            case ItemKind.EVICTED:
                self._check_deleted(item)
            case ItemKind.SWEEP:
                self.ready.sweep()
                self._evictor.wake()
                self.queue.add_after(item, self._deps.settings.sweep_seconds)
            case ItemKind.CEILING:
                self.planner.lift_ceiling(item.name)
                self._room.follow()
            case ItemKind.WINDOW:
                self.planner.follow_windows(int(item.name))
                self._room.follow()

    def _handle_pod(self, item: WorkItem) -> None:
        plan = self.plans.scheduled.get(item.name)
        if plan is None:
            self.queue.forget(item)
        else:
            self.planner.enqueue(plan, self._deps.clock.now())
        self.ready.retry(item.name)  # what it is parked for may depend on the time
        if not self.backlog.behind:
            self._evictor.wake()

    def _give_up(self, key: str, uid: str) -> None:
        """A pod is terminating for longer than it should: limits count it no longer."""
        if self.plans.give_up(key, uid):
            log.warning("pod stuck in terminating", extra={"pod": key, "podUID": uid})
            self._room.follow()

    def _check_deleted(self, item: WorkItem) -> None:
        """Plans a pod again that was evicted and still stands undeleted."""
        if not self._deps.trusted():  # its deletion may be what was not seen
            self.queue.add_after(item, self._deps.settings.undeleted_seconds)
            return
        key, _, uid = item.name.rpartition("/")
        if self.plans.reopen(key, uid):
            log.warning("pod not deleted after its eviction, planned again", extra={"pod": key, "podUID": uid})
            if self.planner.replan(key):
                self._room.follow()

    async def evict(self, uid: str) -> None:
        """Evicts one pod with those that go with it, then wakes others, schedules retries, or updates conditions."""
        attempts = await self._evictor.evict(uid)
        now = self._deps.clock.seconds()
        for attempt in attempts:
            self._release(attempt, now)
        self.planner.follow_ceilings()
        self._room.follow()
        for attempt in attempts:
            self._follow_up(attempt)

    def _release(self, attempt: Attempt, now: float) -> None:
        plan, outcome = attempt.plan, attempt.outcome
        if outcome is not None and not outcome.gone:
            plan.refusals += 1
        reservation = self._core.limiter.release(plan, now, outcome)
        left = self._core.returns.end(plan.pod, evicted=outcome is not None and outcome.evicted)
        if left:
            self.planner.retry_left(left)
        self._core.ceilings.end_request(plan.uid, attempt.evicted_for)
        self.ready.wake(reservation.group)
        budget = self._core.gate.limit_of(plan) if plan.blocked else reservation.budget
        if budget is not None:
            self._room.retry_budget(budget)
            self.queue.add_after(budget, PROBE_SECONDS)  # for units that are formed meanwhile, and have no timer yet

    def _follow_up(self, attempt: Attempt) -> None:
        plan, outcome = attempt.plan, attempt.outcome
        item = WorkItem(ItemKind.POD, plan.uid)
        if plan.uid not in self.plans.scheduled:
            self.queue.discard(item)
        if outcome is None:
            if attempt.because:
                self._core.recorder.record_pod_event(PodEventKind.BLOCKED, plan, attempt.because)
            self.queue.add(item)
        elif outcome.gone:
            if outcome.evicted:
                record_evicted(self._core, plan, attempt.evicted_for)
            again = WorkItem(ItemKind.EVICTED, f"{plan.key}/{plan.uid}")
            self.queue.add_after(again, self._deps.settings.undeleted_seconds)
        else:
            self._retry_refused(plan, outcome)

    def _retry_refused(self, plan: PodPlan, outcome: EvictionOutcome) -> None:
        item = WorkItem(ItemKind.POD, plan.uid)
        if outcome.blocked:
            self._core.recorder.record_pod_event(PodEventKind.BLOCKED, plan, outcome.text)
            self.queue.add(item)  # it waits behind its budget
            return
        if plan.outdated:
            self.plans.units.dissolve(plan)  # the others wait as well
            self.queue.add(item)
            return
        seconds = self._retry(item, outcome.retry_after_seconds)
        plan.fault = fault = plan.fault or LastingFault(self._deps.clock.seconds)
        if fault.failed(outcome.text):
            fields = {**log_fields(plan), "error": outcome.text, "delaySeconds": round(seconds, 3), **fault.fields}
            log.warning("pod not evicted", extra=fields)

    def _retry(self, item: WorkItem, at_least_seconds: float) -> float:
        """Queues a pod for a retry with exponential backoff; returns the wait in seconds."""
        if item.name not in self.plans.scheduled:
            return 0.0  # no taint evicts it now
        now = self._deps.clock.seconds()
        seconds = self.queue.add_rate_limited(item, min(at_least_seconds, RETRY_MOST_SECONDS))
        self.plans.units.retry_later(self.plans.scheduled[item.name], now + seconds)
        return seconds
