"""A small cluster in memory, a clock that a test moves, and a worker that is pumped by hand: no sleeping, no tasks."""

from __future__ import annotations

import asyncio
import atexit
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from msgspec import structs
from prometheus_client import CollectorRegistry

from tests.builders import NOW
from webhook.api.meta import ObjectMeta
from webhook.api.patches import ResourceSlicePatch
from webhook.api.pods import DisruptionBudget, Labels, Pod, needs_disruption
from webhook.api.rules import Condition, DeviceTaintRule
from webhook.eviction.controller import Controller
from webhook.eviction.modes import InTree, Mode
from webhook.eviction.ports import (
    Ceiling,
    Dependencies,
    Disruption,
    EvictionEvent,
    EvictionOutcome,
    EvictionResult,
    PodRef,
    WorkerSettings,
    WriteFailure,
)
from webhook.eviction.profiles import Profiles
from webhook.flowcontrol import rates as flowcontrol
from webhook.inventory.gangs import is_leaving
from webhook.inventory.state import Inventory, InventoryObject
from webhook.policy.match import NamespaceFacts
from webhook.policy.model import BreakerSettings, EvictionProfile, Pause
from webhook.telemetry.workers import EvictionMetrics

NEVER = 1e9
NO_BREAKER = BreakerSettings(devices=None)
BLUNT = EvictionProfile(
    rate=10_000,
    burst=100_000,
    per_owner_unavailable=None,
    deadline_seconds=0,
    delete_after_deadline=True,
    evict_daemon_sets=True,
)
"""Manners that never bind: what is due is deleted."""
FREE = EvictionProfile(rate=10_000, burst=100_000, per_owner_unavailable=None)
"""The Eviction API, and nothing else that binds."""


class Clock(flowcontrol.Clock):
    """Both clocks; they move when a test says so. `real`: the seconds go on as they do."""

    def __init__(self) -> None:
        self.real = False
        self.wall = NOW
        self.elapsed = 1000.0
        self.step = 0.0
        """What each look at it takes, for tests of work that is cut into slices."""

    def now(self) -> datetime:
        return self.wall

    def seconds(self) -> float:
        self.elapsed += self.step
        return time.monotonic() if self.real else self.elapsed

    def passed(self) -> float:
        """Seconds since the beginning."""
        return self.elapsed - 1000.0


@dataclass
class Budget:
    """A disruption budget over the pods whose names begin with `selects`, and that have these labels."""

    selects: str = ""
    every_seconds: float = math.inf
    """How long after an eviction it allows the next one."""
    allows_at: float = math.inf
    """When it allows one, in seconds since the beginning; infinite for never."""
    status: int | None = None
    """How many evictions its status allows, as the watch shows it; None for no status."""
    labels: Labels = ()
    healthy: int = 0
    desired: int = 0
    always: bool = False
    """Whether pods go that are not ready."""

    def covers(self, pod: Pod) -> bool:
        return pod.meta.name.startswith(self.selects) and set(self.labels) <= set(pod.labels)

    def shown(self, name: str) -> DisruptionBudget:
        """As the watch shows it."""
        meta = ObjectMeta(name=name, namespace="ml")
        return DisruptionBudget(meta, None, self.status, self.healthy, self.desired, None, self.always)

    def guards(self, pod: Pod | None) -> bool:
        """Whether the pod goes only if it allows an eviction."""
        return pod is not None and self.covers(pod) and needs_disruption(pod, [self.shown("")])


CHANGED = EvictionOutcome(EvictionResult.FAILED, "the object might have been modified", changed=True)
EVICTED = EvictionOutcome(EvictionResult.EVICTED)
GONE = EvictionOutcome(EvictionResult.GONE)
FAILED = EvictionOutcome(EvictionResult.FAILED, "500")
BLOCKED = EvictionOutcome(EvictionResult.BLOCKED, "Cannot evict pod as it would violate the pod's disruption budget.")


@dataclass
class FakeCluster:
    """The port: pods vanish when evicted, unless told otherwise; conditions come back as a watch would bring them."""

    world: World
    answers: deque[EvictionOutcome] = field(default_factory=deque)
    """For the next evictions; without any, they go well."""
    dry_answers: deque[EvictionOutcome] = field(default_factory=deque)
    """Likewise, for the next questions whether a pod may be evicted."""
    calls: list[tuple[str, str, float]] = field(default_factory=list)
    """(verb, pod, seconds since the beginning) of what went well."""
    requests: list[tuple[str, str, float]] = field(default_factory=list)
    """Likewise, of every request to evict or delete a pod."""
    dry_runs: list[tuple[str, float]] = field(default_factory=list)
    """(pod, seconds since the beginning) of every question whether a pod may be evicted."""
    request_seconds: float = 0.0
    """How much time passes before each of them, as with a limit on requests."""
    events: list[EvictionEvent] = field(default_factory=list)
    writes: list[tuple[str, str, str, str]] = field(default_factory=list)
    """(rule, type, reason, message) of each condition written anew."""
    disruptions: list[Disruption] = field(default_factory=list)
    meanwhile: deque[Callable[[], None]] = field(default_factory=deque)
    """What happens while the next evictions wait for their turn."""
    while_connecting: deque[Callable[[], None]] = field(default_factory=deque)
    """What happens while the next requests to evict or delete a pod wait for their connection."""
    ahead: dict[str, Pod] = field(default_factory=dict)
    """By name: pods as the API server has them, while the watch is behind."""
    reads: list[str] = field(default_factory=list)
    """Names of pods that were read before they were evicted."""
    looked_at: list[str] = field(default_factory=list)
    """Names of pods of which nobody knew whether they had been evicted."""
    done_all_the_same: bool = False
    """Whether those had been."""
    lingering: bool = False
    """Pods stay with a deletionTimestamp until they are removed."""
    condition_error: str = ""

    async def prepare(self, pod: PodRef, *, delete: bool, unsure: bool) -> bool:  # noqa: ARG002 -- the port's
        if self.request_seconds:
            self.world._move(self.request_seconds)
        if self.meanwhile:
            self.meanwhile.popleft()()
        if unsure:
            self.looked_at.append(pod.name)
        return not (unsure and self.done_all_the_same)

    async def read(self, pod: PodRef) -> EvictionOutcome | None:
        self.reads.append(pod.name)
        live = self.ahead.get(pod.name)
        if live is not None and live.meta.uid != pod.uid:
            return GONE
        held = live is not None and live.hold is not None and not pod.held
        return CHANGED if live is not None and (live.deleting or held) else None

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:  # noqa: ARG002 -- the port's
        return self._remove("evict", pod)

    async def may_evict(self, pod: PodRef) -> EvictionOutcome:
        now = self.world.clock.passed()
        self.dry_runs.append((pod.name, round(now, 6)))
        if self.dry_answers:
            answer = self.dry_answers.popleft()
            if answer.result is not EvictionResult.EVICTED:
                return answer
        live = self.world.inventory.pods.get(str(pod))
        budgets = [budget for budget in self.world.budgets if budget.guards(live)]
        return BLOCKED if any(now < budget.allows_at for budget in budgets) else EVICTED

    async def delete(self, pod: PodRef, grace_period_seconds: int | None, disruption: Disruption) -> EvictionOutcome:  # noqa: ARG002
        self.disruptions.append(disruption)
        return self._remove("delete", pod)

    def _remove(self, verb: str, ref: PodRef) -> EvictionOutcome:
        now = self.world.clock.passed()
        if self.while_connecting:
            self.while_connecting.popleft()()
        if not ref.wanted():
            return EvictionOutcome(EvictionResult.FAILED, withdrawn=True)
        self.requests.append((verb, str(ref), round(now, 6)))
        live = self.ahead.get(ref.name)
        if live is not None and ref.version not in ("", live.meta.resource_version):
            return CHANGED
        pod = self.world.inventory.pods.get(str(ref))
        budgets = [budget for budget in self.world.budgets if verb == "evict" and budget.guards(pod)]
        if any(now < budget.allows_at for budget in budgets):
            return BLOCKED
        for budget in budgets:
            budget.allows_at = now + budget.every_seconds
        if self.answers:
            answer = self.answers.popleft()
            if answer.result is not EvictionResult.EVICTED:
                return answer
        if pod is None or pod.meta.uid != ref.uid:
            return GONE
        self.calls.append((verb, str(ref), round(now, 6)))
        self.world.change(pod, structs.replace(pod, deleting=True))
        if not self.lingering:
            self.world.remove(self.world.inventory.pods[str(ref)])
        return EVICTED

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
        if self.condition_error:
            return WriteFailure(self.condition_error)
        rule = self.world.inventory.rules[rule.meta.name]
        for condition in conditions:
            if condition not in rule.conditions:
                self.writes.append((rule.meta.name, condition.type, condition.reason, condition.message))
        ours = {condition.type for condition in conditions}
        others = [each for each in rule.conditions if each.type not in ours]
        self.world.change(rule, structs.replace(rule, conditions=(*others, *conditions)))
        return None

    async def downgrade(self, rule: DeviceTaintRule) -> WriteFailure | None:
        self.world.change(rule, structs.replace(rule, taint=structs.replace(rule.taint, effect="None")))
        return None

    async def delete_rule(self, rule: DeviceTaintRule) -> WriteFailure | None:
        self.world.remove(rule)
        return None

    async def write_event(self, event: EvictionEvent) -> None:
        self.events.append(event)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One for all worlds: `asyncio.run` makes one for each call, which takes longer than most of what is done in it."""
    loop = asyncio.new_event_loop()
    atexit.register(loop.close)
    return loop


class World:
    """Inventory and worker; `change` does what the caches do."""

    def __init__(
        self,
        mode: Mode = Mode.REPLACEMENT,
        *profiles: EvictionProfile,
        in_tree: InTree = InTree.ABSENT,
        ceiling_of: Callable[[DeviceTaintRule], Ceiling | None] = lambda _: None,
        patch_ceiling_of: Callable[[DeviceTaintRule, ResourceSlicePatch | None], Ceiling | None] = lambda _, __: None,
        budgeted: frozenset[str] = frozenset(),
        clock: Clock | None = None,
        breaker: BreakerSettings = BreakerSettings(),  # noqa: B008 -- frozen
        cluster: type[FakeCluster] = FakeCluster,
        **settings: Any,
    ) -> None:
        self.inventory = Inventory()
        self.patches: dict[str, ResourceSlicePatch] = {}
        self.clock = clock or Clock()
        self.cluster = cluster(self)
        self.profiles = Profiles(profiles or (BLUNT,))
        self.holds: dict[str, str] = {}
        self.namespaces: dict[str, NamespaceFacts] = {}
        self.budgeted = budgeted
        self.budgets: list[Budget] = []
        """Those of `budgeted` allow every eviction, and are not among them."""
        self.registry = CollectorRegistry()
        self.leads = True
        self.trusted = True
        self.claims_known_until = math.inf
        """Changes of claims before that moment are in the inventory."""
        self.asked_known: list[float] = []
        """About which moments the worker has asked that."""
        self.breaker = breaker
        self.pause: Pause | None = None
        self._end = math.inf
        self.deps = Dependencies(
            inventory=self.inventory,
            writer=self.cluster,
            budgets=self,
            hold_of=self.hold_of,
            clock=self.clock,
            metrics=EvictionMetrics(self.registry, in_tree_names=mode is Mode.REPLACEMENT),
            profiles=lambda: self.profiles.all,
            profile_of=lambda pod: self.profiles.of(pod, self.namespaces.get(pod.meta.namespace)),
            random=lambda: 0.0,
            leads=lambda: self.leads,
            trusted=lambda: self.trusted,
            claims_known=self._claims_known,
            ceiling_of=ceiling_of,
            patch_ceiling_of=patch_ceiling_of,
            patches=lambda: self.patches,
            breaker=lambda: self.breaker,
            pause=lambda: self.pause,
            settings=WorkerSettings(mode=mode, **settings),
        )
        self.worker = Controller(self.deps, in_tree)
        self.worker.watch_metrics()
        self.worker.start()

    def _claims_known(self, at: float) -> bool:
        self.asked_known.append(at)
        return at <= self.claims_known_until

    def select(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        found = tuple([budget.shown(str(at)) for at, budget in enumerate(self.budgets) if budget.covers(pod)])
        if found or pod.owner is None:
            return found
        return (Budget().shown("allowing"),) if pod.owner.uid in self.budgeted else ()

    def find(self, namespace: str, name: str) -> DisruptionBudget:  # noqa: ARG002 -- the port's
        """Budgets have no status here, unless a test gives them one."""
        return (Budget() if name == "allowing" else self.budgets[int(name)]).shown(name)

    def hold_of(self, namespace: str) -> str | None:
        return self.holds.get(namespace)

    # --- what happens ----------------------------------------------------------------------------

    def add(self, *objects: InventoryObject) -> None:
        for each in objects:
            self.change(None, each)

    def remove(self, *objects: InventoryObject) -> None:
        for each in objects:
            self.change(each, None)

    def change(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """As a reflector tells it: one of another uid is removed first."""
        if old is not None and new is not None and old.meta.uid != new.meta.uid:
            self.change(old, None)
            old = None
        self.inventory.apply(old, new)
        self.worker.observe(old, new)

    def edit(self, known: InventoryObject, **fields: Any) -> None:
        """An object that is known has other values in these fields."""
        self.change(known, structs.replace(known, **fields))

    def set_patch(self, patch: ResourceSlicePatch) -> None:
        """A patch is there, or says something else."""
        old, self.patches[patch.meta.name] = self.patches.get(patch.meta.name), patch
        self.worker.observe_patch(old, patch)

    def pod(self, name: str) -> Pod:
        return self.inventory.pods[f"ml/{name}"]

    def rule(self, name: str = "rule") -> DeviceTaintRule:
        return self.inventory.rules[name]

    def add_budget(self, budget: Budget) -> None:
        """There is one more disruption budget."""
        self.budgets.append(budget)
        for namespace in {"ml", *[each.meta.namespace for each in self.inventory.pods.values()]}:
            self.worker.observe_budgets(namespace)

    def relabel(self, namespace: str, **labels: str) -> None:
        """A namespace has these labels now, as its watch says."""
        self.namespaces[namespace] = NamespaceFacts(namespace, labels)
        self.worker.requeue_waiting(namespace)
        self.settle()

    def change_policy(self, *profiles: EvictionProfile) -> None:
        """Other profiles hold from now on."""
        self.profiles = Profiles(profiles)
        self.worker.replan_all()
        self.settle()

    def catch_up(self) -> None:
        """All that is undecided is decided."""
        for _ in self.worker.planner.steps():
            pass

    # --- time ------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Everything is done that can be done now."""
        loop = _loop()
        loop.run_until_complete(self._settle())
        assert not asyncio.all_tasks(loop)

    async def _settle(self) -> None:
        worker, rules = self.worker, self.worker._core.rules
        while not self._late:
            if self.is_due:
                self.catch_up()
                continue
            rules._promote()
            if len(rules):
                name = await rules.get()
                await worker.sync(name)
                rules.done(name)
                continue
            taken = worker.take() if worker.may_take else None
            if taken is None:
                break
            await worker.evict(taken)
        while worker._core.recorder._buffer.waiting:
            await self.cluster.write_event(worker._core.recorder._buffer.waiting.popleft())

    def advance(self, seconds: float) -> None:
        """Time passes, and everything happens at its time."""
        end = self._end = self.clock.elapsed + seconds
        self.settle()
        while not self._late:
            wait = self._next_wait()
            if self.clock.elapsed + wait > end:
                break
            self._move(wait)
            self.settle()
        self._move(max(end - self.clock.elapsed, 0.0))
        self.settle()
        self._end = math.inf

    def settled(self) -> list[str]:
        """The pods, by name, that are evicted once everything is done that can be done now."""
        self.settle()
        return self.evicted

    def after(self, seconds: float) -> list[str]:
        """The pods, by name, that are evicted once this time has passed, those from before included."""
        self.advance(seconds)
        return self.evicted

    @property
    def _late(self) -> bool:
        """Whether requests have taken all the time that there was."""
        return self.cluster.request_seconds > 0 and self.clock.elapsed > self._end

    @property
    def is_due(self) -> bool:
        """Whether there is something to plan."""
        return self.worker.started and self.worker.planner.wait_seconds <= 0

    def _next_wait(self) -> float:
        worker, queue = self.worker, self.worker._core.rules
        waits = [at - self.clock.elapsed for at, _, item in queue._later if queue._ready_at.get(item) == at]
        waits += [
            worker.planner.wait_seconds if worker.started else math.inf,
            worker.take_seconds if worker.may_take else 0.2,
        ]
        # a hair more than asked for, so that rounding makes no endless row of empty waits
        return max(min(waits), 0.0) + 1e-6

    def _move(self, seconds: float) -> None:
        self.clock.elapsed += seconds
        self.clock.wall += timedelta(seconds=seconds)

    # --- what came of it -------------------------------------------------------------------------

    @property
    def evicted(self) -> list[str]:
        """Names of pods, in order."""
        return [pod.partition("/")[2] for _, pod, _ in self.cluster.calls]

    @property
    def times(self) -> list[float]:
        """When they were evicted, in seconds since the beginning."""
        return [seconds for _, _, seconds in self.cluster.calls]

    @property
    def went_at(self) -> dict[str, int]:
        """The same in full seconds, by name."""
        return {pod.partition("/")[2]: round(seconds) for _, pod, seconds in self.cluster.calls}

    @property
    def planned(self) -> dict[str, float]:
        """Seconds from now until pods are due, by name."""
        core, pods = self.worker._core, self.inventory.pods
        hit = {key: eviction for key, eviction in core.affected.hit.items() if not is_leaving(pods[key])}
        due = {key: each.due for key, each in hit.items() if pods[key].meta.uid not in core.ledger.granted}
        return {key.partition("/")[2]: (time - self.clock.wall).total_seconds() for key, time in due.items()}

    def told(self, reason: str) -> list[str]:
        """Names of what Events with that reason are about."""
        found = [event.about for event in self.cluster.events if event.reason == reason]
        return [about.name if isinstance(about, PodRef) else about.meta.name for about in found]

    def sample(self, name: str, **labels: str) -> float | None:
        """A value of the worker's metrics; None if there is none."""
        return self.registry.get_sample_value(f"device_taint_webhook_eviction_{name}", labels)

    def condition(self, rule: str, kind: str = "devicetaint.io/Eviction") -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        [found] = [each for each in self.inventory.rules[rule].conditions if each.type == kind]
        return found.status, found.reason, found.message


def evicting(
    *objects: InventoryObject,
    mode: Mode = Mode.REPLACEMENT,
    base: EvictionProfile = FREE,
    lingering: bool = False,
    budgets: Iterable[Budget] = (),
    answers: Iterable[EvictionOutcome] = (),
    **fields: Any,
) -> World:
    """A worker whose only profile is like `base`, with these fields; what is no field of a profile is for `World`."""
    profile = {name: fields.pop(name) for name in EvictionProfile.__struct_fields__ if name in fields}
    world = World(mode, structs.replace(base, **profile), **fields)
    world.cluster.lingering = lingering
    world.budgets.extend(budgets)
    world.cluster.answers.extend(answers)
    world.add(*objects)
    return world


def delegated(*objects: InventoryObject, **fields: Any) -> World:
    """A worker beside the in-tree controller, for rules that ask for eviction."""
    return evicting(*objects, mode=Mode.DELEGATED, **fields)


def gentle(*objects: InventoryObject, **fields: Any) -> World:
    """One unavailable pod or gang of each owner, and nothing else that binds."""
    return evicting(*objects, **{"per_owner_unavailable": 1, **fields})
