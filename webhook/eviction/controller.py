"""The worker: a loop around the plan. What is known changes, a pass says who may go, and one place takes.

`observe` and the like never await, so nothing here needs a lock. A change of up to a few hundred pods is followed
before they return, a larger one in steps; until it is followed in full, no pod is taken and no request is written. A
pass runs in steps as well, while requests go on by the plan before it: each is checked again as it is written.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Final, NoReturn

from webhook.api.claims import ResourceClaim
from webhook.api.patches import ResourceSlicePatch
from webhook.api.pods import Pod, PodGroup
from webhook.api.rules import DeviceTaintRule, own_rate
from webhook.api.slices import ResourceSlice
from webhook.eviction.affected import AT_ONCE_MOST, alike
from webhook.eviction.core import Core
from webhook.eviction.events import PodEventKind, Telling
from webhook.eviction.line import Line, Taking
from webhook.eviction.modes import InTree
from webhook.eviction.planner import Planner
from webhook.eviction.pod_plan import Unit
from webhook.eviction.ports import Dependencies, PodRef
from webhook.eviction.profiles import owner_of
from webhook.eviction.progress import WaitCause, WaitingPods
from webhook.eviction.rule_status import RuleStatusUpdater
from webhook.eviction.sender import Sender
from webhook.eviction.upkeep import Attempt, Upkeep
from webhook.flowcontrol.loop import LastingFault, together
from webhook.flowcontrol.workqueue import TimeSlice
from webhook.inventory.evictions import Eviction, RuleRef
from webhook.inventory.gangs import goes_with_all, group_key
from webhook.inventory.pools import acts
from webhook.inventory.rule_delta import is_for_hardware
from webhook.inventory.state import InventoryObject, claim_keys, key_of
from webhook.inventory.targets import is_ours

log = logging.getLogger(__name__)
_SOON_SECONDS: Final = 0.2
_STOP_POLL_SECONDS: Final = 0.05
_UNTRUSTED_POLL_SECONDS: Final = 0.2
"""How often to check whether the inventory can be trusted again."""
_CLOCK_SECONDS: Final = 1.0
"""How often the wall clock is compared with the monotonic clock, and the drift that means it was set. The event loop's
timers stand still in a suspended machine: being late by as much means that they end too late as well."""
_PASS_SECONDS: Final = 0.05
"""The least time between two passes."""


class Controller:
    """One worker. It does nothing before `start`, which only the leader calls."""

    def __init__(self, deps: Dependencies, in_tree: InTree = InTree.UNKNOWN) -> None:
        core = self._core = Core.build(deps, in_tree)
        self._deps = deps
        self.rules = RuleStatusUpdater(core)
        self.upkeep = Upkeep(deps, core.room, core.affected.touch)
        telling = Telling(deps, core.recorder, core.ledger.granted, self._spare)
        self.planner = planner = Planner(core, self.upkeep, telling)
        self._sender = Sender(deps, core.room, planner, self.upkeep)
        self._waiting = WaitingPods(core)
        self._faults: dict[str, LastingFault] = {}
        """Why requests to evict pods fail, by uid."""
        self._woken, self._dirty = asyncio.Event(), asyncio.Event()
        self._planning = asyncio.Lock()
        """Held while a plan is made: the last one is made beside the task that makes the others."""
        self._turn_lock = asyncio.Lock()
        """Only its holder waits for the next unit, so that one wake-up wakes one task, however many there are."""
        self.started = False

    def watch_metrics(self) -> None:
        """Register the gauges that are computed at each scrape."""
        core = self._core
        self._deps.metrics.watch(
            {
                "pods_undecided": lambda: core.affected.pending,
                "pods_planned": self._waiting.planned,
                "pods_in_line": lambda: len(core.line) if core.acts else 0,
                "pods_under_way": lambda: core.room.everywhere.pods,
                "pods_stuck": lambda: len(core.room.given_up),
                "oldest_due_seconds": self._waiting.oldest_due_seconds,
                "rules_in_use": lambda: self.rules.released.held_count,
                "breakers_tripped": lambda: len(core.breaker.tripped),
                "paused": lambda: core.deps.paused() is not None,
            }
        )
        self._deps.metrics.watch_waiting(tuple(WaitCause), self._waiting.count)

    # --- changes: nothing here awaits ------------------------------------------------------------

    def start(self) -> None:
        """Look at everything in the inventory; from here on `observe` keeps up."""
        self.started = True
        core = self._core
        for name, rule in self._deps.inventory.rules.items():
            core.rules.add(name)
            core.ceilings.observe(None, rule)
        self.planner.follow_ceilings()
        core.affected.mark(core.evictions.everything())
        core.breaker.start()
        self._begin()

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """Note a change of an object, which the inventory has applied already. Both have one uid."""
        if not self.started:
            return
        core = self._core
        core.affected.mark_claims(core.evictions.touched(old, new))
        self.rules.released.observe(old, new)
        match new if new is not None else old:
            case Pod() as pod:
                self._observe_pod(old if isinstance(old, Pod) else None, new if isinstance(new, Pod) else None, pod)
            case DeviceTaintRule() as rule:
                self._observe_rule(old if isinstance(old, DeviceTaintRule) else None, rule, gone=new is None)
            case PodGroup() as group:
                members = self._deps.inventory.members_of(key_of(group.meta))
                core.affected.mark(members)
                for key in members:
                    core.room.touch(owner_of(self._deps.inventory.pods[key]))  # a gang takes one place of its owner
                core.affected.touch_all()
            case ResourceSlice() as changed:
                core.ceilings.observe_slice(changed)
                self.planner.follow_ceilings()
            case ResourceClaim() as claim:
                self._observe_users(old, new)
                self.upkeep.observe_claim(key_of(claim.meta), new if isinstance(new, ResourceClaim) else None)
            case _:
                pass
        self._begin()

    def _observe_pod(self, old: Pod | None, new: Pod | None, pod: Pod) -> None:
        core, key = self._core, key_of(pod.meta)
        core.affected.mark((key,))
        self.upkeep.observe(old, new)
        if new is None:
            self._forget_gone(key, pod.meta.uid)
            for claim in claim_keys(pod):
                self._touch_users(claim)  # it may have tied them
        grouped = [each for each in (old, new) if each is not None and each.pod_group]
        if grouped and (old is None or new is None or not alike(old, new)):
            core.affected.touch(key, *[each.meta.uid for each in grouped])  # it may go along, although no taint hits it
            members = self._deps.inventory.members_of(group_key(grouped[0]))
            if goes_with_all(self._deps.inventory, grouped[0]) and any(each in core.plan.hit for each in members):
                for other in members:
                    core.affected.touch(other, self._deps.inventory.pods[other].meta.uid)
        failure = None if new is None else core.ledger.failures.get(new.meta.uid)
        if new is not None and failure is not None and failure.outdated:
            core.affected.touch(key, new.meta.uid)
        if old is not None and new is not None and (old.ready, old.owner) != (new.ready, new.owner):
            core.line.retry(new.meta.uid)  # its owner misses it already, its budget may not concern it
            self._woken.set()
        self._tell_late()

    def _observe_users(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """Note that a PodGroup may keep a claim reserved now, or a claim may tie its pods or change their profile."""
        claims = [each for each in (old, new) if isinstance(each, ResourceClaim)]
        if len({(each.reserved_for, each.allocation) for each in claims}) == len(claims):
            self._touch_users(key_of(claims[0].meta))

    def _touch_users(self, claim: str) -> None:
        for key in self._deps.inventory.pods_of(claim):
            pod = self._deps.inventory.pods[key]
            self._core.room.touch(owner_of(pod))
            if key in self._core.affected.hit:
                self._core.affected.touch(key, pod.meta.uid)

    def _observe_rule(self, old: DeviceTaintRule | None, rule: DeviceTaintRule, *, gone: bool) -> None:
        """Note that a rule came, changed or went. Changes of its status are the worker's own, or are undone."""
        core = self._core
        if gone:
            self.rules.forget(rule)
            core.ceilings.forget(rule)
            self.planner.follow_ceilings()
            core.rules.discard(rule.meta.name)
            return
        if old is not None and _without_status(old) == _without_status(rule):
            if self.rules.lost_conditions(rule):
                core.rules.add(rule.meta.name)
            return
        core.rules.add(rule.meta.name)
        if old is not None and own_rate(old) != own_rate(rule):
            core.affected.touch_all()
        if not is_ours(rule, core.scope):
            core.announcements.forget(rule.meta.uid)  # if it asks again, that is announced again
        if core.ceilings.observe(old, rule):
            core.affected.touch_all()
        self.planner.follow_ceilings()
        self.planner.note_expiry(rule)
        if old is not None and is_for_hardware(rule) and acts(rule.taint.effect):
            self.planner.expiry_known = False  # the rules for its hardware expire with it
        self._begin()
        self.planner.rules_seen = core.affected.revision

    def observe_patch(self, old: ResourceSlicePatch | None, new: ResourceSlicePatch | None) -> None:
        """Note that a patch is known now, or its text or what admission judged has changed. Its rules change later."""
        if self.started and new is not None and self._core.ceilings.observe_patch(old, new):
            self.planner.follow_ceilings()
            self._core.affected.touch_all()
            self.planner.rules_seen = self._core.affected.revision
            self._dirty.set()
            self._woken.set()

    def replan_all(self) -> None:
        """Note that the policy has changed, or what servers do."""
        if not self.started:
            return
        core = self._core
        core.ceilings.lift_all()
        self.planner.follow_ceilings()
        core.breaker.refresh()
        profiles = self._deps.profiles()
        self.upkeep.follow_profiles(core.room.profiles, profiles)
        core.room.profiles = profiles
        self.planner.old_lines.append(core.line)
        core.line = Line(core.room)  # its limits name profiles by their position
        core.affected.mark_all()
        core.room.forget_owners()
        core.affected.touch_all()
        self.planner.rules_seen = core.affected.revision
        self._begin()

    def requeue_waiting(self, namespace: str | None = None) -> None:
        """Note that a hold or labels of a namespace, or (None) the wall clock has changed."""
        if not self.started:
            return
        prefix = "" if namespace is None else f"{namespace}/"
        self.upkeep.expect_ends(prefix)
        if namespace is None:
            self.planner.expiry_known = False
        else:
            pods = [key for key in self._deps.inventory.pods if key.startswith(prefix)]
            self._core.affected.mark(pods)
            for owner in {owner_of(self._deps.inventory.pods[key]) for key in pods}:
                self._core.room.touch(owner)
        self._core.affected.touch_all()
        self._begin()

    def observe_budgets(self, namespace: str, freeing: str = "") -> None:
        """Note other disruption budgets of a namespace's pods; `freeing` lets those go that are not ready."""
        core, pods = self._core, self._deps.inventory.pods
        if self.started:
            for uid in [uid for uid, wait in core.line.pods() if wait is not None]:
                each, together = core.plan.going[uid], uid in core.plan.units
                pod = pods.get(each.key, each.pod)
                if pod.meta.namespace == namespace and (together or not pod.ready or not freeing):
                    core.line.retry(uid)
            self._woken.set()

    def observe_budget(self, namespace: str, name: str) -> None:
        """Note that the status of a disruption budget has changed."""
        if self.started:
            self.upkeep.observe_budget(namespace, name)
            for limit in self._core.line.waiting_for_owners(namespace):
                self._core.line.reopen(limit)  # a pod that its budget lets go does not ask its owner
            self._woken.set()

    def _begin(self) -> None:
        """Follow a small change at once."""
        while 0 < self._core.affected.pending <= AT_ONCE_MOST:
            self._core.affected.follow()
        self._dirty.set()
        self._woken.set()

    def _tell_late(self) -> None:
        """Report pods that were evicted, as it turns out, by requests without an answer."""
        for uid, doubt in self.upkeep.evicted:
            key, rules = doubt.taken.key, doubt.taken.rules
            namespace, _, name = key.partition("/")
            self._core.ceilings.count_evicted(rules)
            self._tell_evicted(PodRef(namespace, name, uid), doubt.eviction, rules)
            self._core.line.discard(uid)
            self._forget_gone(key, uid)
        self.upkeep.evicted.clear()

    # --- tasks -----------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Plan and evict until it is cancelled."""
        settings = self._deps.settings
        await together(
            self._plan_for_ever(),
            *[self._write_conditions() for _ in range(settings.planners)],
            *[self._evict_for_ever() for _ in range(settings.workers)],
            self._core.recorder.run(),
            self._watch_clock(),
        )

    async def stop(self) -> None:
        """Start no further eviction, wait for those in flight, and write the final conditions; each for a time.

        A worker that leads no longer does not wait and writes nothing, as another one does.
        """
        self._sender.stop()
        deps = self._deps
        if deps.leads():
            await self._wait_for_requests()
        if deps.leads() and deps.trusted():
            await self._write_last_conditions()

    async def _wait_for_requests(self) -> None:
        try:
            async with asyncio.timeout(self._deps.settings.stop_seconds):
                while self._core.ledger.in_flight:  # noqa: ASYNC110 -- once, for at most as long as a request
                    await asyncio.sleep(_STOP_POLL_SECONDS)
        except TimeoutError:
            log.warning("evictions cut off", extra={"count": len(self._core.ledger.taken)})

    async def _write_last_conditions(self) -> None:
        try:
            async with asyncio.timeout(self._deps.settings.last_conditions_seconds), asyncio.TaskGroup() as group:
                await self._plan()
                for name in self._deps.inventory.rules:
                    group.create_task(self.rules.sync(name, last=True))
        except TimeoutError:
            log.warning("last conditions not written in time")

    async def flush_events(self) -> None:
        """Write the queued Events, for a limited time. Call it after `stop`, once `run` was cancelled."""
        await self._core.recorder.finish()

    async def _plan_for_ever(self) -> NoReturn:
        while True:
            await self._wait(self._dirty, self.planner.wait_seconds)
            self._dirty.clear()
            await self._plan()
            await asyncio.sleep(_PASS_SECONDS)

    async def _plan(self) -> None:
        """Make the plan of now, in time slices."""
        clock, timeslice = self._deps.clock.seconds, TimeSlice(clock=self._deps.clock.seconds)
        async with self._planning:
            timeslice.begin()
            began = clock()
            for _ in self.planner.steps():
                if timeslice.over:
                    self.planner.busy += clock() - began
                    await timeslice.pause()
                    began = clock()
            self.planner.busy += clock() - began
            self._woken.set()

    async def _evict_for_ever(self) -> NoReturn:
        while True:
            await self.evict(await self._next_unit())

    async def _next_unit(self) -> Unit:
        """Take the next unit that finds room."""
        async with self._turn_lock:
            while True:
                self._woken.clear()
                if not self.may_take:
                    await asyncio.sleep(_UNTRUSTED_POLL_SECONDS)
                    continue
                unit, more = self._look()
                if unit is not None:
                    return unit
                await (asyncio.sleep(0) if more else self._wait(self._woken, self.take_seconds))

    async def _write_conditions(self) -> NoReturn:
        while True:
            name = await self._core.rules.get()
            try:
                await self.sync(name)
            finally:
                self._core.rules.done(name)

    async def _watch_clock(self) -> NoReturn:
        """Recompute waits when the wall clock was set: due times are wall-clock times, waits are monotonic.

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
                self.requeue_waiting()
                for name in self._deps.inventory.rules:  # for `/expires-at`
                    self._core.rules.add(name)
            known, began = offset, seconds
            self.forget_idle()

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        """Return once the event is set, or time has passed."""
        try:
            async with asyncio.timeout(None if math.isinf(seconds) else seconds):
                await event.wait()
        except TimeoutError:
            return

    # --- taking and sending ----------------------------------------------------------------------

    @property
    def may_take(self) -> bool:
        """Whether units may be taken at all now."""
        return not self._sender.stopping and self._deps.trusted() and self._deps.paused() is None

    def take(self) -> Unit | None:
        """Take the next unit that finds room; None if there is none."""
        taking = self._look()
        while taking.more:
            taking = self._look()
        return taking.unit

    def _look(self) -> Taking:
        core = self._core
        if not len(core.line):
            core.room.freed.clear()
        if core.affected.pending or not len(core.line):
            return Taking()
        self.planner.judge_breakers()
        if core.affected.whole:
            self._dirty.set()
        core.room.begin(core.moment())
        return core.line.take()

    @property
    def take_seconds(self) -> float:
        """The time until a limit opens that kept units when they were looked at last; infinite if it takes a change."""
        at = self._core.room.opens_at if len(self._core.line) else None
        return math.inf if at is None else max((at - self._deps.clock.now()).total_seconds(), 0.0)

    async def evict(self, unit: Unit) -> None:
        """Evict a unit that was taken, and count what became of it."""
        attempts = await self._sender.send(unit)
        core = self._core
        for attempt in attempts:
            core.ceilings.count_evicted(attempt.rules if self.upkeep.answered(attempt) else ())
        self._open_overdue(unit, attempts)
        self.planner.follow_ceilings()
        for attempt in attempts:
            self._tell(attempt)
            self._forget_gone(attempt.each.key, attempt.each.uid)
        self._dirty.set()
        self._woken.set()

    def _open_overdue(self, unit: Unit, attempts: Sequence[Attempt]) -> None:
        """Let all pods that wait for a budget be deleted past it, once it has refused for the whole deadline."""
        room = self._core.room
        room.begin(self._core.moment())
        for each in [each.each for each in attempts if each.outcome is not None and each.outcome.blocked]:
            limit = room.needs(each)
            if limit is not None and each.uid not in room.asked_by(unit):
                self._core.line.reopen(limit)

    def _spare(self, pod: Pod) -> None:
        """Note that no taint evicts a pod any longer."""
        self.upkeep.spare(pod)
        self._faults.pop(pod.meta.uid, None)

    def _forget_gone(self, key: str, uid: str) -> None:
        """Forget the last Event and the fault of a pod that is gone."""
        if self._core.view.pod(key, uid) is None:
            self._core.recorder.forget(uid)
            self._faults.pop(uid, None)

    def _tell(self, attempt: Attempt) -> None:
        each, outcome, recorder = attempt.each, attempt.outcome, self._core.recorder
        if outcome is None:
            if attempt.because:
                recorder.record_pod_event(PodEventKind.BLOCKED, each.ref, each.eviction, attempt.because)
        elif outcome.gone:
            self._faults.pop(each.uid, None)
            if outcome.evicted:
                self._tell_evicted(each.ref, each.eviction, attempt.rules)
        elif outcome.blocked:
            recorder.record_pod_event(PodEventKind.BLOCKED, each.ref, each.eviction, outcome.text)
        elif not attempt.version or not outcome.changed:
            fault = self._faults.setdefault(each.uid, LastingFault(self._deps.clock.seconds))
            if fault.failed(outcome.text):
                seconds = round(self.upkeep.retry_seconds(each.uid), 3)
                fields = {**_fields(each.ref, each.eviction), "error": outcome.text, "delaySeconds": seconds}
                log.warning("pod not evicted", extra={**fields, **fault.fields})

    def _tell_evicted(self, pod: PodRef, eviction: Eviction, rules: Sequence[RuleRef]) -> None:
        """Log that the pod was evicted for these rules, and queue it for an Event and for their conditions."""
        for _, name in rules:
            self._core.rules.add_after(name, self._deps.settings.condition_seconds)
        delay = (self._deps.clock.now() - eviction.due).total_seconds()
        self._deps.metrics.count_evicted(delay)
        log.info("pod evicted", extra={**_fields(pod, eviction), "delaySeconds": round(delay, 3)})
        self._core.recorder.record_pod_event(PodEventKind.EVICTED, pod, eviction)

    # --- conditions ------------------------------------------------------------------------------

    async def sync(self, name: str) -> None:
        """Write the conditions of a rule, if they are due."""
        core = self._core
        if core.affected.pending or core.planned < self.planner.rules_seen:
            self.planner.unplanned.add(name)
            return
        again = await self.rules.sync(name) if self._deps.leads() else _SOON_SECONDS
        if again is not None:
            core.rules.add_after(name, again)

    def forget_idle(self) -> None:
        """Drop what is not needed any longer, to save memory."""
        core, known = self._core, (self._core.plan.going, self._core.plan.waits, self._core.ledger.taken)
        if core.current:  # a request may have failed after its pod was planned no longer
            for uid in [uid for uid in core.ledger.failures if not any(uid in each for each in known)]:
                del core.ledger.failures[uid]
        self.upkeep.forget_idle()
        core.breaker.forget_idle()


def _fields(pod: PodRef, eviction: Eviction) -> dict[str, object]:
    """Return the fields of a log line about a pod."""
    return {"pod": str(pod), "podUID": pod.uid, "reasons": [str(reason) for reason in eviction.reasons]}


def _without_status(rule: DeviceTaintRule) -> tuple[object, ...]:
    return rule.selector, rule.taint, rule.meta.annotations, rule.deleting, rule.origin
