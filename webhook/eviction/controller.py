"""The worker: decides at each change without waiting, and acts on what was decided through the port.

`observe` never awaits, so plans need no lock. The plans are the truth; what waits in the queue or stands in line is
only a hint, and is looked at again when its time has come.
"""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from webhook.api.pods import Pod
from webhook.api.rules import DeviceTaintRule
from webhook.eviction.actor import RETRY_MOST_SECONDS, Actor, Office
from webhook.eviction.conditions import began_of
from webhook.eviction.gates import OVERALL, Gates, namespace_key, owner_key
from webhook.eviction.line import Line
from webhook.eviction.modes import InTree, scope_of
from webhook.eviction.notes import Kind
from webhook.eviction.plans import Plans
from webhook.eviction.rules import Rules
from webhook.eviction.schedule import Facts, Nothing, Wait, Why, next_step
from webhook.eviction.teller import Teller
from webhook.eviction.workqueue import WorkQueue
from webhook.inventory.evictions import Evictions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.eviction.plans import Change, Plan
    from webhook.eviction.setup import Setup
    from webhook.inventory.state import Held

log = logging.getLogger(__name__)

_STOP_POLL_SECONDS: Final = 0.05
_CLOCK_SECONDS: Final = 1.0
"""How often the two clocks are compared, and by how much they must differ to count as set anew."""


class Sort(StrEnum):
    """What an item of the queue is about."""

    POD = "pod"
    RULE = "rule"
    OWNER = "owner"


class Item(NamedTuple):
    """A pod or an owner by uid, a rule by name."""

    sort: Sort
    name: str


class Controller:
    """One worker; it does nothing before `start`, which is for whoever leads to call."""

    def __init__(self, setup: Setup, in_tree: InTree = InTree.UNKNOWN) -> None:
        self._setup = setup
        scope = scope_of(setup.mode, in_tree)
        self._evictions = Evictions(
            setup.inventory, scope, lambda rule: began_of(rule.conditions, setup.generation_of(rule))
        )
        self._teller = Teller(setup)
        self.plans = Plans(setup.inventory, self._evictions, setup.profile_of)
        self.rules = Rules(setup, scope, self.plans, self.facts_of, self._teller.tell)
        self._gates = Gates(self.plans, setup.inventory.rules, lambda position: setup.profiles().all[position])
        self.line = Line(self._gates)
        self.queue: WorkQueue[Item] = WorkQueue(
            clock=setup.clock.seconds, random=setup.random, most_seconds=RETRY_MOST_SECONDS
        )
        office = Office(
            plans=self.plans,
            gates=self._gates,
            line=self.line,
            facts_of=self.facts_of,
            again=self._again,
            retry=self._retry,
            settled=self._settled,
        )
        self._actor = Actor(setup, office, self._teller)
        self.started = False

    # --- deciding: nothing here awaits -----------------------------------------------------------

    def start(self) -> None:
        """Plans everything from what the inventory holds now; from here on `observe` keeps it so."""
        self.started = True
        for name in self._setup.inventory.rules:
            self.queue.add(Item(Sort.RULE, name))
        self._replan(self._evictions.everything())

    def observe(self, old: Held | None, new: Held | None) -> None:
        """One object has changed, and the inventory has it already."""
        if not self.started:
            return
        touched = self._evictions.touched(old, new)
        if isinstance(old, DeviceTaintRule) or isinstance(new, DeviceTaintRule):
            touched |= self._observe_rule(old, new)
        self._replan(touched)
        if isinstance(new, Pod) and isinstance(old, Pod) and old.hold != new.hold:
            self.queue.add(Item(Sort.POD, new.meta.uid))

    def _observe_rule(self, old: Held | None, new: Held | None) -> frozenset[str]:
        """A rule came, went, or has another specification or other annotations: its status alone is our own doing."""
        if isinstance(old, DeviceTaintRule) and (new is None or new.meta.uid != old.meta.uid):
            self.rules.forget(old)
        if not isinstance(new, DeviceTaintRule):
            return frozenset()
        if isinstance(old, DeviceTaintRule) and old.meta.uid == new.meta.uid and _alike(old, new):
            return frozenset()
        self.queue.add(Item(Sort.RULE, new.meta.name))
        touched: frozenset[str] = frozenset()
        if self.rules.start_anew(new):
            touched = self._evictions.resume(new)
        # its rate may have changed, which is a matter of where its pods stand in line
        for plan in self.plans.of_rule(new.meta.uid):
            if plan.ref.uid in self.line:
                self.line.put(self._gates.place(plan))
        return touched

    def replan_all(self) -> None:
        """The policy has changed: profiles may be others."""
        if self.started:
            self._replan(self._setup.inventory.pods)
            for uid, plan in self.plans.scheduled.items():
                if uid in self.line:
                    self.line.put(self._gates.place(plan))

    def look_again(self, namespace: str | None = None) -> None:
        """Holds of a namespace, or the wall clock, have changed: what waits may be due."""
        for uid, plan in self.plans.scheduled.items():
            if namespace in (None, plan.ref.namespace) and uid not in self.line:
                self.queue.add(Item(Sort.POD, uid))

    def look_at_rule(self, name: str) -> None:
        """Something about a rule has become known that does not stand in it: its generation."""
        if self.started:
            self.queue.add(Item(Sort.RULE, name))
            self._replan(self._evictions.refresh(name))

    def _replan(self, keys: Iterable[str]) -> None:
        changes = self.plans.replan(keys)
        rules = {
            reason.rule: None for change in changes if not change.dropped for reason in change.plan.eviction.reasons
        }
        for name in rules:
            rule = self._setup.inventory.rules.get(name)
            if rule is None:
                continue
            if self.rules.beyond_ceiling(rule):
                changes += self.plans.replan(self._evictions.suspend(rule))
                self.queue.add(Item(Sort.RULE, name))
            else:
                self.queue.add_after(Item(Sort.RULE, name), self._setup.settings.condition_seconds)
        for change in changes:
            self._follow(change)
        self._free()

    def _follow(self, change: Change) -> None:
        """A plan was made, changed or dropped."""
        plan = change.plan
        uid = plan.ref.uid
        if change.dropped:
            self.line.discard(uid)
            if not change.silent:
                self._setup.metrics.count_cancelled()
                self._teller.tell_of_pod(Kind.CANCELLED, plan)
            for reason in plan.eviction.reasons:
                if reason.rule:
                    self.queue.add_after(Item(Sort.RULE, reason.rule), self._setup.settings.condition_seconds)
        elif self.plans.scheduled.get(uid) is plan:
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

    def facts_of(self, plan: Plan) -> Facts:
        """What is to be known about a pod now."""
        ref = plan.ref
        pod = self._setup.inventory.pods.get(f"{ref.namespace}/{ref.name}")
        if pod is not None and pod.meta.uid != ref.uid:
            pod = None
        hold = pod.hold if pod is not None else None
        return Facts(
            pod,
            plan.eviction,
            plan.profile.settings,
            hold if hold is not None else self._setup.namespaces.hold_of(ref.namespace),
            plan.blocked_since,
            ref.uid in self.plans.evicted,
            self._setup.mode.acts,
        )

    # --- acting ----------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        """Works until it is cancelled."""
        settings = self._setup.settings
        async with asyncio.TaskGroup() as group:
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
        for name in tuple(self._setup.inventory.rules):
            await self.rules.sync(name, last=True)

    async def _plan(self) -> NoReturn:
        while True:
            item = await self.queue.get()
            try:
                await self.handle(item)
            finally:
                self.queue.done(item)

    async def handle(self, item: Item) -> None:
        """Looks at what an item of the queue is about."""
        match item.sort:
            case Sort.POD:
                plan = self.plans.scheduled.get(item.name)
                if plan is None:
                    self.queue.forget(item)
                else:
                    await self._consider(plan, item)
            case Sort.RULE:
                again = await self.rules.sync(item.name)
                if again is not None:
                    self.queue.add_after(item, again)
            case Sort.OWNER:
                self.plans.lay_ghosts(item.name)
                self._free()

    async def _consider(self, plan: Plan, item: Item) -> None:
        """Lets a pod that is due stand in line, and the others wait."""
        if self._gates.acting(plan.ref.uid):
            return  # whoever is at it looks at the plan again
        step = next_step(self.facts_of(plan), self._setup.clock.now())
        if isinstance(step, Nothing | Wait):
            self._wait(step, plan, item)
            return
        if plan.owner and not plan.budgeted and plan.profile.settings.per_owner_unavailable is not None:
            pod = self._setup.inventory.pods.get(str(plan.ref))
            if pod is not None:
                plan.budgeted = await self._setup.budgets.covers(pod)
            if self.plans.scheduled.get(plan.ref.uid) is not plan:
                return  # it was dropped meanwhile, or planned anew, and then it comes again
        self.line.put(self._gates.place(plan))
        self._actor.news.set()

    def _wait(self, step: Nothing | Wait, plan: Plan, item: Item) -> None:
        self.line.discard(plan.ref.uid)
        if isinstance(step, Nothing):
            self.queue.forget(item)
            if step.why is Why.OBSERVED:
                self._teller.tell_of_pod(Kind.SCHEDULED, plan)
            return
        self.queue.add_after(item, step.seconds)
        if step.why is Why.HELD:
            self._teller.tell_of_pod(Kind.HELD, plan, self.facts_of(plan).hold or "")
        elif step.seconds > self._setup.settings.told_after_seconds:
            self._teller.tell_of_pod(Kind.SCHEDULED, plan)

    def _again(self, plan: Plan) -> None:
        self.queue.add(Item(Sort.POD, plan.ref.uid))

    def _retry(self, plan: Plan, at_least_seconds: float) -> float:
        if plan.ref.uid not in self.plans.scheduled:
            return 0.0  # no taint makes it go any more
        item = Item(Sort.POD, plan.ref.uid)
        return self.queue.add_rate_limited(item, min(at_least_seconds, RETRY_MOST_SECONDS))

    def _settled(self, plan: Plan, evicted: bool) -> None:  # noqa: FBT001 -- a callback
        self._free()
        if plan.ref.uid not in self.plans.scheduled:
            self.queue.forget(Item(Sort.POD, plan.ref.uid))
        if not evicted:
            return
        rules = {reason.rule_uid: reason.rule for reason in plan.eviction.reasons if reason.rule}
        self.rules.count_evicted(rules)
        for name in rules.values():
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
    return (old.selector, old.taint, old.meta.annotations) == (new.selector, new.taint, new.meta.annotations)
