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
from webhook.eviction.evictor import RETRY_MOST_SECONDS, Actor, Office
from webhook.eviction.modes import InTree, scope_of
from webhook.eviction.planner import Decider, Desk
from webhook.eviction.plans import Plans
from webhook.eviction.rate_limiter import OVERALL, Gates, namespace_key, owner_key
from webhook.eviction.ready_queue import Line
from webhook.eviction.recorder import Teller
from webhook.eviction.rule_status import Rules
from webhook.eviction.usher import Item, Sort, Usher
from webhook.flowcontrol.workqueue import WorkQueue
from webhook.inventory.evictions import Evictions
from webhook.inventory.state import key_of

if TYPE_CHECKING:
    from webhook.eviction.dependencies import Setup
    from webhook.eviction.plans import Plan
    from webhook.inventory.state import Held

log = logging.getLogger(__name__)

_SOON_SECONDS: Final = 0.2
_STOP_POLL_SECONDS: Final = 0.05
_CLOCK_SECONDS: Final = 1.0
"""How often the two clocks are compared, and by how much they must differ to count as set anew."""


class Controller:
    """One worker; it does nothing before `start`, which is for whoever leads to call."""

    def __init__(self, setup: Setup, in_tree: InTree = InTree.UNKNOWN) -> None:
        self._setup = setup
        scope = scope_of(setup.mode, in_tree)
        self._evictions = Evictions(setup.inventory, scope, lambda rule: began_of(rule.conditions, rule.generation))
        self._teller = Teller(setup)
        self.plans = Plans(setup.inventory, self._evictions, setup.profile_of)
        self._gates = Gates(self.plans, setup.inventory.rules, lambda position: setup.profiles().all[position])
        self.line = Line(self._gates)
        self.queue: WorkQueue[Item] = WorkQueue(
            clock=setup.clock.seconds, random=setup.random, most_seconds=RETRY_MOST_SECONDS
        )
        self._usher = Usher(
            setup=setup, plans=self.plans, gates=self._gates, line=self.line, queue=self.queue, teller=self._teller
        )
        self.rules = Rules(setup, scope, self.plans, self._usher.facts_of, self._teller.tell)
        office = Office(
            plans=self.plans,
            gates=self._gates,
            line=self.line,
            facts_of=self._usher.facts_of,
            behind=lambda: self.behind,
            again=self._again,
            retry=self._retry,
            settled=self._settled,
        )
        self._actor = Actor(setup, office, self._teller)
        desk = Desk(
            evictions=self._evictions,
            plans=self.plans,
            rules=self.rules,
            usher=self._usher,
            line=self.line,
            queue=self.queue,
            teller=self._teller,
        )
        self.decider = Decider(setup, desk, self._free)
        self.started = False

    # --- deciding: nothing here awaits -----------------------------------------------------------

    @property
    def behind(self) -> bool:
        """Whether something that is known is not decided yet: then nobody is evicted and no condition written."""
        return self.decider.open or self.decider.timeslice.paused

    def start(self) -> None:
        """Plans everything from what the inventory holds now; from here on `observe` keeps it so."""
        self.started = True
        for name in self._setup.inventory.rules:
            self.queue.add(Item(Sort.RULE, name))
        self.decider.pods.add(self._evictions.everything())
        self.decider.begin()

    def observe(self, old: Held | None, new: Held | None) -> None:
        """One object has changed, and the inventory has it already."""
        if not self.started:
            return
        self.decider.hit(self._evictions.touched(old, new))
        match new if new is not None else old:
            case Pod() as pod:
                self.decider.pods.add((key_of(pod.meta),))
                if isinstance(old, Pod) and old.hold != pod.hold:
                    self.queue.add(Item(Sort.POD, pod.meta.uid))
            case DeviceTaintRule():
                self._observe_rule(old, new)
            case _:
                pass
        self.decider.begin()

    def _observe_rule(self, old: Held | None, new: Held | None) -> None:
        """A rule came, went, is being deleted, or says something else: its status alone is our own doing."""
        if isinstance(old, DeviceTaintRule) and (new is None or new.meta.uid != old.meta.uid):
            self.rules.forget(old)
        if not isinstance(new, DeviceTaintRule):
            return
        known = old if isinstance(old, DeviceTaintRule) and old.meta.uid == new.meta.uid else None
        if known is not None and _alike(known, new):
            return
        self.queue.add(Item(Sort.RULE, new.meta.name))
        self._gates.forget_groups()
        if known is not None and own_rate(known) != own_rate(new):
            self.decider.places.add([plan.uid for plan in self.plans.of_rule(new.meta.uid)])
        self.decider.check(new.meta.name)
        if self.rules.start_anew(known, new):
            self.decider.hit(self._evictions.resume(new))

    def replan_all(self) -> None:
        """The policy has changed: profiles may be others, and limits."""
        if not self.started:
            return
        for name, rule in self._setup.inventory.rules.items():
            self.decider.check(name)
            if self.rules.start_anew(rule, rule):
                self._evictions.resume(rule)
        self.decider.pods.add(self._setup.inventory.pods)
        self.decider.begin()

    def look_again(self, namespace: str | None = None) -> None:
        """Holds of a namespace, or the wall clock, have changed: what waits may be due."""
        for uid, plan in self.plans.scheduled.items():
            if namespace in (None, plan.pod.meta.namespace) and uid not in self.line:
                self.queue.add(Item(Sort.POD, uid))

    def _free(self) -> None:
        """Whoever stood aside for something that has changed may try again."""
        freed = self.plans.freed
        while freed:
            sort, name = freed.pop()
            if sort == "namespace":
                self.line.release(OVERALL)
                self.line.release(namespace_key(name))
            elif sort == "owner":
                self.line.release(owner_key(name))
            else:
                self.queue.add_after(Item(Sort.OWNER, name), self._setup.settings.replacement_seconds)
        self._actor.news.set()

    # --- acting ----------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Works until it is cancelled."""
        settings = self._setup.settings
        async with asyncio.TaskGroup() as group:
            group.create_task(self.decider.run())
            for _ in range(settings.planners):
                group.create_task(self._plan())
            for _ in range(settings.workers):
                group.create_task(self._actor.work())
            group.create_task(self._teller.run())
            group.create_task(self._watch_clock())
        raise AssertionError("its tasks do not end")

    async def stop(self) -> None:
        """Begins no further eviction, waits for those under way, and says how far it came."""
        self._actor.stopping = True
        while self._gates.busy:  # noqa: ASYNC110 -- once in a lifetime, for at most as long as a request may take
            await asyncio.sleep(_STOP_POLL_SECONDS)
        await self.decider.finish()
        for name in tuple(self._setup.inventory.rules):
            await self.rules.sync(name, last=True)

    async def tell_the_rest(self) -> None:
        """Writes the Events that wait, for a bounded time; for after `stop`, when `run` was cancelled."""
        await self._teller.finish()

    async def _plan(self) -> NoReturn:
        while True:
            item = await self.queue.get()
            try:
                await self.handle(item)
            finally:
                self.queue.done(item)
            if await self.decider.timeslice.pause():
                self._actor.news.set()  # whoever has a turn waited for this pause to end

    async def handle(self, item: Item) -> None:
        """Looks at what an item of the queue is about."""
        match item.sort:
            case Sort.POD:
                plan = self.plans.scheduled.get(item.name)
                if plan is None:
                    self.queue.forget(item)
                elif not self._usher.look(plan, self._setup.clock.now()):
                    await self._usher.ask(plan)
                if not self.behind:
                    self._actor.news.set()
            case Sort.RULE:
                again = _SOON_SECONDS if self.decider.open else await self.rules.sync(item.name)
                if again is not None:
                    self.queue.add_after(item, again)
            case Sort.OWNER:
                self.plans.lay_ghosts(item.name)
                self._free()

    def _again(self, plan: Plan) -> None:
        self.queue.add(Item(Sort.POD, plan.uid))

    def _retry(self, plan: Plan, at_least_seconds: float) -> float:
        if plan.uid not in self.plans.scheduled:
            return 0.0  # no taint makes it go any more
        item = Item(Sort.POD, plan.uid)
        return self.queue.add_rate_limited(item, min(at_least_seconds, RETRY_MOST_SECONDS))

    def _settled(self, plan: Plan, evicted: bool) -> None:  # noqa: FBT001 -- a callback
        self._free()
        if plan.uid not in self.plans.scheduled:
            self.queue.forget(Item(Sort.POD, plan.uid))
        if not evicted:
            return
        rules = plan.eviction.rules
        self.rules.count_evicted(uid for uid, _ in rules)
        for _, name in rules:
            self.queue.add_after(Item(Sort.RULE, name), self._setup.settings.condition_seconds)

    async def _watch_clock(self) -> NoReturn:
        """Waits are counted by a clock that only goes forward; when the wall clock is set, they are counted anew."""
        clock = self._setup.clock
        known = clock.now().timestamp() - clock.seconds()
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            offset = clock.now().timestamp() - clock.seconds()
            if abs(offset - known) >= _CLOCK_SECONDS:
                log.warning("the wall clock was set", extra={"delaySeconds": round(offset - known, 3)})
                self.look_again()
            known = offset
            self._gates.forget_idle(clock.seconds())


def _alike(old: DeviceTaintRule, new: DeviceTaintRule) -> bool:
    """Whether at most the status differs."""
    return _words(old) == _words(new)


def _words(rule: DeviceTaintRule) -> tuple[object, ...]:
    return rule.selector, rule.taint, rule.meta.annotations, rule.deleting
