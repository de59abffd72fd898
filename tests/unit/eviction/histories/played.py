"""A cluster that stops at each await of a request, and a run of the worker in it, which a history drives by hand.

Nothing runs by itself: a request goes on when it is let go, a pass makes as many steps as it is given, a unit is taken
when that is asked for, and what requests have done is seen once the watch shows it. So anything may come between any
two awaits of the worker. `Checks` looks at each request as it is written, and at what is left once all is quiet.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum, auto
from typing import Final, NamedTuple

import msgspec
import pytest
from msgspec import structs

from tests.unit.eviction.histories.checks import BrokenError, Checks
from tests.unit.eviction.world import BLOCKED, CHANGED, FREE, FakeCluster, World
from webhook.api.pods import Pod
from webhook.api.rules import CONFIRM_IMPACT, DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.eviction import affected, controller, events, line, plan, planner
from webhook.eviction.controller import Controller
from webhook.eviction.core import Core
from webhook.eviction.modes import InTree, Mode
from webhook.eviction.pod_plan import Unit
from webhook.eviction.ports import Ceiling, Disruption, EvictionOutcome, EvictionResult, PodRef
from webhook.inventory.state import InventoryObject
from webhook.policy.model import BreakerSettings, EvictionProfile

NAMESPACES: Final = ("ml", "b")
ALL_STEPS: Final = 100_000
EVICTED: Final = EvictionOutcome(EvictionResult.EVICTED)
GONE: Final = EvictionOutcome(EvictionResult.GONE)
UNSURE: Final = EvictionOutcome(EvictionResult.FAILED, "no answer", unsure=True)
_HAIR: Final = 1e-6
"""How much later than asked for time comes, so that rounding makes no endless row of empty waits."""
_TURNS: Final = 4
"""Of the event loop, in which a request that was let go comes to its next await."""
_PASSES_MOST: Final = 60
_ROUNDS_MOST: Final = 3000


class Reply(StrEnum):
    """What becomes of a request to evict or delete a pod. `LATE`: not answered, and seen long after it was done."""

    GRANTED = auto()
    FAILED = auto()
    TRY_LATER = auto()
    BLOCKED = auto()
    CHANGED = auto()
    GONE = auto()
    LOST = auto()
    UNANSWERED = auto()
    LATE = auto()


_REFUSED: Final = {
    Reply.FAILED: EvictionOutcome(EvictionResult.FAILED, "500"),
    Reply.TRY_LATER: EvictionOutcome(EvictionResult.FAILED, "429", retry_after_seconds=3.0),
    Reply.LOST: UNSURE,
}
UNCERTAIN: Final = frozenset({Reply.LOST, Reply.UNANSWERED, Reply.LATE})


class Shown(NamedTuple):
    """Something that the watch is about to show of a pod: it has changed, is terminating, or is gone."""

    what: str
    key: str
    uid: str


class Setting(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """What holds for all of a history."""

    profiles: tuple[EvictionProfile, ...] = (FREE,)
    by_parts: bool = False
    """Whether only pods that have changed are planned again, as in a large cluster."""
    fine: bool = True
    """Whether passes pause after each pod."""
    follows_late: bool = False
    """Whether changes are followed by the next pass, as large ones are."""
    lag: float = 0.0
    """How often the watch shows later what a request has done."""
    lingers: bool = True
    """Whether pods terminate for a while."""
    breaker_devices: int | None = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The sizes of steps, and of what is followed or planned at once."""
        with pytest.MonkeyPatch.context() as patched:
            for module in (plan, line, events):
                patched.setattr(module, "_STEP", 1 if self.fine else 128)
            patched.setattr(affected, "_STEP", 1 if self.follows_late else 64)
            patched.setattr(controller, "AT_ONCE_MOST", 0 if self.follows_late else 256)
            patched.setattr(planner, "WHOLE_MOST", 0 if self.by_parts else 1000)
            yield


class BlockingCluster(FakeCluster):
    """Each request stops before it is written and before it is answered, until the run lets it go on."""

    run: Played

    async def prepare(self, pod: PodRef, *, delete: bool, unsure: bool) -> bool:  # noqa: ARG002 -- the port's
        await self.run.stop()
        return not (unsure and pod.uid in self.run.gone)

    async def read(self, pod: PodRef) -> EvictionOutcome | None:
        await self.run.stop()
        return GONE if pod.uid in self.run.gone and not self.run.setting.lingers else None

    async def may_evict(self, pod: PodRef) -> EvictionOutcome:
        await self.run.stop()
        live, now = self.world.inventory.pods.get(str(pod)), self.world.clock.passed()
        if self.dry_answers:
            return self.dry_answers.popleft()
        return BLOCKED if any(now < each.allows_at for each in self.world.budgets if each.guards(live)) else EVICTED

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:  # noqa: ARG002 -- the port's
        return await self._write("evict", pod)

    async def delete(self, pod: PodRef, grace_period_seconds: int | None, disruption: Disruption) -> EvictionOutcome:  # noqa: ARG002
        return await self._write("delete", pod)

    async def _write(self, verb: str, ref: PodRef) -> EvictionOutcome:
        run = self.run
        with run.checks.in_flight(ref.uid):
            await run.stop()
            if not ref.wanted():
                return EvictionOutcome(EvictionResult.FAILED, withdrawn=True)
            run.checks.at_write(verb, ref)
            outcome = self._outcome(verb, ref)
            await run.stop()
            return outcome

    def _outcome(self, verb: str, ref: PodRef) -> EvictionOutcome:
        """What the server does with the request, and how it answers."""
        run, pod = self.run, self.world.inventory.pods.get(str(ref))
        there = pod is not None and pod.meta.uid == ref.uid
        if pod is None or not there or ref.uid in run.gone:
            return EVICTED if there and run.setting.lingers else GONE
        reply = run.replies.popleft() if run.replies else Reply.GRANTED
        if reply in _REFUSED:
            return _REFUSED[reply]
        if reply is Reply.CHANGED and ref.version:
            run.show(Shown("changed", str(ref), ref.uid))
            return CHANGED
        if reply is Reply.GONE:
            run.gone.add(ref.uid)
            run.show(Shown("gone", str(ref), ref.uid))
            return GONE
        if verb == "evict" and not self._grants(pod, refuses=reply is Reply.BLOCKED):
            return BLOCKED
        run.checks.at_eviction(ref)
        run.end(ref, late=reply is Reply.LATE)
        return UNSURE if reply in UNCERTAIN else EVICTED

    def _grants(self, pod: Pod, *, refuses: bool) -> bool:
        """Asks the budgets of a pod."""
        now, budgets = self.world.clock.passed(), [each for each in self.world.budgets if each.guards(pod)]
        if budgets and (refuses or any(now < each.allows_at for each in budgets)):
            return False
        for each in budgets:
            each.allows_at = now + each.every_seconds
        return True


class Played:
    """One run: the worker, its requests, and its pass if one is under way."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.most: int | None = None
        """The ceiling of rules that name none."""
        self.world = World(
            Mode.REPLACEMENT,
            *setting.profiles,
            cluster=BlockingCluster,
            breaker=BreakerSettings(devices=setting.breaker_devices, window_seconds=100, calm_seconds=200),
            ceiling_of=self._ceiling_of,
        )
        assert isinstance(self.world.cluster, BlockingCluster)
        self.world.cluster.run = self
        self.blocked: list[asyncio.Future[None]] = []
        """Requests that stand at an await."""
        self.tasks: set[asyncio.Task[None]] = set()
        """The units that are being sent."""
        self.steps: Iterator[None] | None = None
        """What is left of the pass."""
        self.gone: set[str] = set()
        """Pods, by uid, that the server has evicted."""
        self.watch: deque[Shown] = deque()
        """What is still to be shown, in order."""
        self.replies: deque[Reply] = deque()
        """For the next requests; without any, they go well."""
        self.slices: dict[str, ResourceSlice] = {}
        """Those that are published, by name."""
        self.checks = Checks(self)
        self._lag = random.Random(5)
        self._serial = 0
        self._plan_at = self._take_at = 0.0
        self._idle_passes = 0

    def _ceiling_of(self, rule: DeviceTaintRule) -> Ceiling | None:
        text = rule.meta.annotations.get(CONFIRM_IMPACT)
        most = self.most if text is None else int(text)
        return None if most is None else Ceiling(most)

    @property
    def core(self) -> Core:
        return self.world.worker._core

    @property
    def now(self) -> float:
        return self.world.clock.elapsed

    def next_uid(self, name: str) -> str:
        self._serial += 1
        return f"u{self._serial}-{name}"

    # --- the server and the watch ----------------------------------------------------------------

    async def stop(self) -> None:
        """A request stands here until it is let go."""
        here = asyncio.get_running_loop().create_future()
        self.blocked.append(here)
        await here

    def end(self, ref: PodRef, *, late: bool) -> None:
        """The server lets a pod terminate."""
        self.gone.add(ref.uid)
        self.show(Shown("terminating", str(ref), ref.uid), late=late)
        if not self.setting.lingers:
            self.show(Shown("gone", str(ref), ref.uid), late=late)

    def show(self, shown: Shown, *, late: bool = False) -> None:
        """The watch shows this, at once or after what it is to show before."""
        if late or self.watch or self._lag.random() < self.setting.lag:
            self.watch.append(shown)
        else:
            self._deliver(shown)

    def catch_up(self, most: int = ALL_STEPS) -> None:
        """The watch shows what there is to show."""
        for _ in range(min(most, len(self.watch))):
            self._deliver(self.watch.popleft())

    def _deliver(self, shown: Shown) -> None:
        pod = self.world.inventory.pods.get(shown.key)
        if pod is None or pod.meta.uid != shown.uid:
            return
        if shown.what == "gone":
            self.world.remove(pod)
        elif shown.what == "changed":
            self.change(pod)
        else:
            self.terminate(pod)

    def terminate(self, pod: Pod) -> None:
        if not pod.deleting:
            self.change(pod, deleting=True, grace_ends=self.world.clock.wall + timedelta(seconds=30))

    def change(self, pod: Pod, **fields: object) -> None:
        """A pod has another version, and these fields."""
        self.world.change(pod, self.versioned(pod, **fields))

    def versioned(self, pod: Pod, **fields: object) -> Pod:
        self._serial += 1
        return structs.replace(pod, meta=structs.replace(pod.meta, resource_version=str(self._serial)), **fields)

    def put(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """An object comes, changes or goes, unless there is none."""
        if old is not None or new is not None:
            self.world.change(old, new)

    def find(self, name: str) -> Pod | None:
        """The pod of this name, in any namespace."""
        return next((each for each in self.world.inventory.pods.values() if each.meta.name == name), None)

    # --- the worker ------------------------------------------------------------------------------

    @property
    def wants_plan(self) -> bool:
        """Whether a pass is under way or due."""
        return self.steps is not None or self.world.worker._dirty.is_set() or self.now >= self._plan_at

    def plan(self, most: int = ALL_STEPS) -> None:
        """A pass makes this many steps, or all that are left."""
        worker = self.world.worker
        if self.steps is None:
            worker._dirty.clear()
            self.steps = worker.planner.steps()
            self._idle_passes += 1
            if self._idle_passes > _PASSES_MOST:
                raise BrokenError("hot loop: passes follow each other, and nothing else happens")
        for _ in range(most):
            if next(self.steps, self) is self:
                self.steps = None
                worker._woken.set()
                self._plan_at = self.now + worker.planner.wait_seconds
                return

    @property
    def wants_take(self) -> bool:
        """Whether something has happened since the line was looked at last, or time has come."""
        return self.world.worker._woken.is_set() or self.now >= self._take_at

    def take(self) -> Unit | None:
        """The next unit that finds room is taken, and its task begins."""
        worker = self.world.worker
        worker._woken.clear()
        if not worker.may_take:
            self._take_at = self.now + 0.2
            return None
        before = self.checks.before_take()
        unit = worker.take()
        if unit is None:
            self._take_at = self.now + max(worker.take_seconds, 2 * _HAIR)
            return None
        worker._woken.set()
        self._idle_passes = 0
        self.checks.at_take(unit, before)
        self.tasks.add(asyncio.ensure_future(worker.evict(unit)))
        return unit

    async def release(self, index: int) -> None:
        """One of the requests goes on to its next await."""
        if self.blocked:
            self.blocked.pop(index % len(self.blocked)).set_result(None)
            await self.breathe()

    async def breathe(self) -> None:
        """All that is not blocked runs until it is."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.discard(task)
            self._idle_passes = 0
            task.result()

    async def drain(self) -> None:
        """All requests go on until they are answered."""
        for _ in range(_ROUNDS_MOST):
            await self.breathe()
            if not self.tasks:
                return
            blocked, self.blocked = self.blocked, []
            for each in blocked:
                each.set_result(None)
        raise BrokenError("hot loop: requests do not end")

    async def settle(self) -> None:
        """Everything is done that can be done now."""
        for _ in range(_ROUNDS_MOST):
            await self.drain()
            if self.wants_plan:
                self.plan()
            elif not await self._sync():
                if not self.wants_take:
                    self.core.recorder._buffer.waiting.clear()
                    return
                self.take()
        raise BrokenError("hot loop: there is always something to do")

    async def _sync(self) -> bool:
        """The conditions of a rule are written, if any are due."""
        rules = self.core.rules
        rules._promote()
        if not len(rules):
            return False
        name = await rules.get()
        await self.world.worker.sync(name)
        rules.done(name)
        return True

    async def advance(self, seconds: float) -> None:
        """Time passes, and everything happens at its time."""
        end, rules = self.now + seconds, self.core.rules
        await self.settle()
        for _ in range(_ROUNDS_MOST):
            writes = [at for at, _, item in rules._later if rules._ready_at.get(item) == at]
            wake_at = min([self._plan_at, self._take_at, *writes]) + _HAIR
            if wake_at > end:
                self.jump(end - self.now)
                await self.settle()
                return
            self.jump(max(wake_at - self.now, _HAIR))
            await self.settle()
        raise BrokenError("hot loop: time does not pass")

    def jump(self, seconds: float) -> None:
        """Time passes, and nothing happens."""
        self.world._move(max(seconds, 0.0))
        self._idle_passes = 0

    async def restart(self) -> None:
        """Another process takes over, once all requests are answered."""
        await self.drain()
        self.steps, self._plan_at, self._take_at = None, 0.0, 0.0
        self.checks.forget()
        self.world.worker = Controller(self.world.deps, InTree.ABSENT)
        self.world.worker.start()
        self.plan()

    async def close(self) -> None:
        """No task is left behind."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
