"""The worker: decides at each change without waiting, and acts on what was decided through the port.

`observe` never awaits, so plans need no lock. The plans are the truth; what waits in the queue or stands in line is
only a hint, and is looked at again when its time has come. A change that hits a few hundred pods is decided before
`observe` returns. What hits more is decided in time slices; until then no pod is evicted and no condition written, so
in whatever order changes come, and however many, the worker acts on the plans that all of them together make.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NoReturn

from webhook.api.pods import Pod
from webhook.api.rules import DeviceTaintRule, own_rate
from webhook.eviction.conditions import began_of
from webhook.eviction.evictor import RETRY_MOST_SECONDS, Office, PodEvictor
from webhook.eviction.modes import InTree, scope_of
from webhook.eviction.planner import Desk, Planner
from webhook.eviction.plans import Plans
from webhook.eviction.rate_limiter import OVERALL, RateLimiter, namespace_key, owner_key
from webhook.eviction.ready_queue import ReadyQueue
from webhook.eviction.recorder import Teller
from webhook.eviction.rule_status import RuleStatusUpdater
from webhook.eviction.usher import ItemKind, Usher, WorkItem
from webhook.flowcontrol.workqueue import WorkQueue
from webhook.inventory.evictions import Evictions
from webhook.inventory.state import key_of

if TYPE_CHECKING:
    from webhook.eviction.dependencies import Dependencies
    from webhook.eviction.plans import PodPlan
    from webhook.inventory.state import Held

log = logging.getLogger(__name__)

_SOON_SECONDS: Final = 0.2
_STOP_POLL_SECONDS: Final = 0.05
_CLOCK_SECONDS: Final = 1.0
"""How often the two clocks are compared, and by how much they must differ to count as set anew."""


class Controller:
    """One worker; it does nothing before `start`, which is for whoever leads to call."""

    def __init__(self, deps: Dependencies, in_tree: InTree = InTree.UNKNOWN) -> None:
        self._deps = deps
        scope = scope_of(deps.mode, in_tree)
        self._evictions = Evictions(deps.inventory, scope, lambda rule: began_of(rule.conditions, rule.generation))
        self._recorder = Teller(deps)
        self.plans = Plans(deps.inventory, self._evictions, deps.profile_of)
        self._limiter = RateLimiter(self.plans, deps.inventory.rules, lambda position: deps.profiles().all[position])
        self.ready = ReadyQueue(self._limiter)
        self.queue: WorkQueue[WorkItem] = WorkQueue(
            clock=deps.clock.seconds, random=deps.random, most_seconds=RETRY_MOST_SECONDS
        )
        self._usher = Usher(
            deps=deps,
            plans=self.plans,
            limiter=self._limiter,
            ready=self.ready,
            queue=self.queue,
            recorder=self._recorder,
        )
        self.rules = RuleStatusUpdater(deps, scope, self.plans, self._usher.facts_of, self._recorder.tell)
        office = Office(
            plans=self.plans,
            limiter=self._limiter,
            ready=self.ready,
            facts_of=self._usher.facts_of,
            behind=lambda: self.behind,
            again=self._again,
            retry=self._retry,
            settled=self._settled,
        )
        self._evictor = PodEvictor(deps, office, self._recorder)
        desk = Desk(
            evictions=self._evictions,
            plans=self.plans,
            rules=self.rules,
            usher=self._usher,
            ready=self.ready,
            queue=self.queue,
            recorder=self._recorder,
        )
        self.planner = Planner(deps, desk, self._free)
        self.started = False

    # --- deciding: nothing here awaits -----------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Whether something that is known is not decided yet: then nobody is evicted and no condition written."""
        return self.planner.open or self.planner.timeslice.paused

    def start(self) -> None:
        """Plans everything from what the inventory holds now; from here on `observe` keeps it so."""
        self.started = True
        for name in self._deps.inventory.rules:
            self.queue.add(WorkItem(ItemKind.RULE, name))
        self.planner.pods.add(self._evictions.everything())
        self.planner.begin()

    def observe(self, old: Held | None, new: Held | None) -> None:
        """One object has changed, and the inventory has it already."""
        if not self.started:
            return
        self.planner.hit(self._evictions.touched(old, new))
        match new if new is not None else old:
            case Pod() as pod:
                self.planner.pods.add((key_of(pod.meta),))
                if isinstance(old, Pod) and old.hold != pod.hold:
                    self.queue.add(WorkItem(ItemKind.POD, pod.meta.uid))
            case DeviceTaintRule():
                self._observe_rule(old, new)
            case _:
                pass
        self.planner.begin()

    def _observe_rule(self, old: Held | None, new: Held | None) -> None:
        """A rule came, went, is being deleted, or says something else: its status alone is our own doing."""
        if isinstance(old, DeviceTaintRule) and (new is None or new.meta.uid != old.meta.uid):
            self.rules.forget(old)
        if not isinstance(new, DeviceTaintRule):
            return
        known = old if isinstance(old, DeviceTaintRule) and old.meta.uid == new.meta.uid else None
        if known is not None and _alike(known, new):
            return
        self.queue.add(WorkItem(ItemKind.RULE, new.meta.name))
        self._limiter.forget_groups()
        if known is not None and own_rate(known) != own_rate(new):
            self.planner.to_enqueue.add([plan.uid for plan in self.plans.of_rule(new.meta.uid)])
        self.planner.check(new.meta.name)
        if self.rules.start_anew(known, new):
            self.planner.hit(self._evictions.resume(new))

    def replan_all(self) -> None:
        """The policy has changed: profiles may be others, and limits."""
        if not self.started:
            return
        for name, rule in self._deps.inventory.rules.items():
            self.planner.check(name)
            if self.rules.start_anew(rule, rule):
                self._evictions.resume(rule)
        self.planner.pods.add(self._deps.inventory.pods)
        self.planner.begin()

    def look_again(self, namespace: str | None = None) -> None:
        """Holds of a namespace, or the wall clock, have changed: what waits may be due."""
        for uid, plan in self.plans.scheduled.items():
            if namespace in (None, plan.pod.meta.namespace) and uid not in self.ready:
                self.queue.add(WorkItem(ItemKind.POD, uid))

    def _free(self) -> None:
        """Whoever stood aside for something that has changed may try again."""
        freed = self.plans.freed
        while freed:
            sort, name = freed.pop()
            if sort == "namespace":
                self.ready.unpark(OVERALL)
                self.ready.unpark(namespace_key(name))
            elif sort == "owner":
                self.ready.unpark(owner_key(name))
            else:
                self.queue.add_after(WorkItem(ItemKind.OWNER, name), self._deps.settings.replacement_seconds)
        self._evictor.news.set()

    # --- acting ----------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Works until it is cancelled."""
        settings = self._deps.settings
        async with asyncio.TaskGroup() as group:
            group.create_task(self.planner.run())
            for _ in range(settings.planners):
                group.create_task(self._plan())
            for _ in range(settings.workers):
                group.create_task(self._evictor.work())
            group.create_task(self._recorder.run())
            group.create_task(self._watch_clock())
        raise AssertionError("its tasks do not end")

    async def stop(self) -> None:
        """Begins no further eviction, waits for those under way, and says how far it came."""
        self._evictor.stopping = True
        while self._limiter.any_in_flight:  # noqa: ASYNC110 -- once in a lifetime, for at most as long as a request may take
            await asyncio.sleep(_STOP_POLL_SECONDS)
        await self.planner.finish()
        for name in tuple(self._deps.inventory.rules):
            await self.rules.sync(name, last=True)

    async def tell_the_rest(self) -> None:
        """Writes the Events that wait, for a bounded time; for after `stop`, when `run` was cancelled."""
        await self._recorder.finish()

    async def _plan(self) -> NoReturn:
        while True:
            item = await self.queue.get()
            try:
                await self.handle(item)
            finally:
                self.queue.done(item)
            if await self.planner.timeslice.pause():
                self._evictor.news.set()  # whoever has a turn waited for this pause to end

    async def handle(self, item: WorkItem) -> None:
        """Looks at what an item of the queue is about."""
        match item.sort:
            case ItemKind.POD:
                plan = self.plans.scheduled.get(item.name)
                if plan is None:
                    self.queue.forget(item)
                elif not self._usher.look(plan, self._deps.clock.now()):
                    await self._usher.ask(plan)
                if not self.behind:
                    self._evictor.news.set()
            case ItemKind.RULE:
                again = _SOON_SECONDS if self.planner.open else await self.rules.sync(item.name)
                if again is not None:
                    self.queue.add_after(item, again)
            case ItemKind.OWNER:
                self.plans.expire_replacements(item.name)
                self._free()

    def _again(self, plan: PodPlan) -> None:
        self.queue.add(WorkItem(ItemKind.POD, plan.uid))

    def _retry(self, plan: PodPlan, at_least_seconds: float) -> float:
        if plan.uid not in self.plans.scheduled:
            return 0.0  # no taint makes it go any more
        item = WorkItem(ItemKind.POD, plan.uid)
        return self.queue.add_rate_limited(item, min(at_least_seconds, RETRY_MOST_SECONDS))

    def _settled(self, plan: PodPlan, evicted: bool) -> None:  # noqa: FBT001 -- a callback
        self._free()
        if plan.uid not in self.plans.scheduled:
            self.queue.forget(WorkItem(ItemKind.POD, plan.uid))
        if not evicted:
            return
        rules = plan.eviction.rules
        self.rules.count_evicted(uid for uid, _ in rules)
        for _, name in rules:
            self.queue.add_after(WorkItem(ItemKind.RULE, name), self._deps.settings.condition_seconds)

    async def _watch_clock(self) -> NoReturn:
        """Waits are counted by a clock that only goes forward; when the wall clock is set, they are counted anew."""
        clock = self._deps.clock
        known = clock.now().timestamp() - clock.seconds()
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            offset = clock.now().timestamp() - clock.seconds()
            if abs(offset - known) >= _CLOCK_SECONDS:
                log.warning("the wall clock was set", extra={"delaySeconds": round(offset - known, 3)})
                self.look_again()
            known = offset
            self._limiter.forget_idle(clock.seconds())


def _alike(old: DeviceTaintRule, new: DeviceTaintRule) -> bool:
    """Whether at most the status differs."""
    return _words(old) == _words(new)


def _words(rule: DeviceTaintRule) -> tuple[object, ...]:
    return rule.selector, rule.taint, rule.meta.annotations, rule.deleting
