"""How soon the eviction worker decides in a large cluster, and how long it keeps the loop: `python -m
benchmarks.eviction_plan`.

The cluster is made up: 100,000 pods with a claim and a device each, ten to an owner, and an API server that says yes
to everything. It is measured twice: with pods that go alone, and with gangs of eight. Exit codes: 0 measured, 1 a limit
was exceeded (with --check). Limits hold for CPU time, which is what the work takes on a machine without other work.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import uvloop
from prometheus_client import CollectorRegistry

from benchmarks.inventory import DEVICES_A_POOL, DRIVER, KEY, NAMESPACES, POOLS, slices
from benchmarks.tables import table
from webhook.api.claims import AllocationResult, Consumer, ResourceClaim
from webhook.api.meta import ObjectMeta
from webhook.api.pods import Owner, Pod, PodClaim
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.api.taints import DeviceTaint
from webhook.eviction.controller import Controller
from webhook.eviction.ledger import Ledger, Moment, View
from webhook.eviction.modes import InTree, Mode
from webhook.eviction.plan import planning
from webhook.eviction.ports import Dependencies, EvictionOutcome, EvictionResult, WorkerSettings
from webhook.eviction.profiles import Profiles
from webhook.flowcontrol.rates import Clock
from webhook.inventory.evictions import Evictions
from webhook.inventory.pools import Evictor
from webhook.inventory.state import Inventory
from webhook.inventory.targets import EvictionScope
from webhook.policy.model import BreakerSettings, EvictionProfile
from webhook.runtime import settle_memory
from webhook.telemetry.workers import EvictionMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from webhook.api.rules import Condition
    from webhook.eviction.ports import Disruption, EvictionEvent, PodRef, WriteFailure
    from webhook.inventory.state import InventoryObject

NODE_SECONDS: Final = 0.05
"""From a taint on one node until its pods are planned and the first eviction is asked for."""
BESIDE_SECONDS: Final = 1.0
"""The same while every device is tainted."""
EVERYTHING_SECONDS: Final = 5.0
"""From a taint on every device until the first eviction is asked for."""
GANG: Final = 8
LOOP_SECONDS: Final = 0.01
"""The longest that anything else waits for the loop, without the garbage collection in it."""
PASS_SECONDS: Final = (0.001, 0.03, 2.5)
"""Of CPU for a pass over 100,000 pods: one node, rules on 1 % of the nodes, every device."""
STEP_SECONDS: Final = 0.01
"""The longest step of a pass."""
_TICK_SECONDS: Final = 0.001
_DEADLINE_SECONDS: Final = 120.0


def pods(pools: int = POOLS, *, gangs: bool) -> Iterator[tuple[ResourceClaim, Pod]]:
    """A pod with a claim of its own on each device; with `gangs`, the pods of eight nodes make a gang."""
    for number in range(pools * DEVICES_A_POOL):
        pool, device = number % pools, number // pools
        gang = number // GANG
        namespace = f"team-{(gang if gangs else number) % NAMESPACES}"
        name, uid = f"trainer-{number}", f"uid-{number}"
        claim = ResourceClaim(
            meta=ObjectMeta(f"{name}-gpu", "", namespace, f"uid-claim-{number}", str(number)),
            allocation=(AllocationResult("gpu", DRIVER, f"node-{pool}", f"gpu-{device}"),),
            reserved_for=(Consumer("", "pods", name, uid),),
            controller_uid=uid,
        )
        owner = Owner("ReplicaSet", f"trainer-{number // 10}", f"uid-owner-{number // 10}")
        meta = ObjectMeta(name, "", namespace, uid, str(number))
        claims = (PodClaim(f"{name}-gpu", generated=True),)
        ring = f"ring-{gang}" if gangs else ""
        yield claim, Pod(meta, f"node-{pool}", claims, phase="Running", owner=owner, gang=ring)


def rule(name: str, selector: DeviceSelector) -> DeviceTaintRule:
    """One that evicts, set this moment."""
    added = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251 -- the shell's clock
    return DeviceTaintRule(ObjectMeta(name, uid=f"uid-{name}"), selector, DeviceTaint(KEY, "", "NoExecute", added))


class Cluster:
    """Says yes, at once, and notes when it was first asked."""

    def __init__(self) -> None:
        self.first_at: float | None = None

    async def prepare(self, _pod: PodRef, *, delete: bool, unsure: bool) -> bool:  # noqa: ARG002 -- the port's
        """At once."""
        return True

    async def read(self, _pod: PodRef) -> None:
        """As the watch shows it."""

    async def evict(self, _pod: PodRef, _seconds: int | None) -> EvictionOutcome:
        """Evicted."""
        if self.first_at is None:
            self.first_at = time.perf_counter()
        return EvictionOutcome(EvictionResult.EVICTED)

    async def may_evict(self, _pod: PodRef) -> EvictionOutcome:
        """Yes."""
        return EvictionOutcome(EvictionResult.EVICTED)

    async def delete(self, pod: PodRef, seconds: int | None, _disruption: Disruption) -> EvictionOutcome:
        """Deleted."""
        return await self.evict(pod, seconds)

    async def set_conditions(self, _rule: DeviceTaintRule, _conditions: Sequence[Condition]) -> WriteFailure | None:
        """Written."""
        return None

    async def downgrade(self, _rule: DeviceTaintRule) -> WriteFailure | None:
        """Never asked for here."""
        return None

    async def delete_rule(self, _rule: DeviceTaintRule) -> WriteFailure | None:
        """Likewise."""
        return None

    async def write_event(self, _event: EvictionEvent) -> None:
        """Heard."""

    def select(self, _pod: Pod) -> tuple[()]:
        """No pod has a budget."""
        return ()

    def find(self, _namespace: str, _name: str) -> None:
        """There is no budget."""

    def hold_of(self, _namespace: str) -> str | None:
        """Nor holds."""
        return None


class Ticker:
    """How long the loop is kept at most, as seen by a task that asks for it every millisecond."""

    def __init__(self) -> None:
        self.longest = 0.0
        """By the clock."""
        self.longest_cpu = 0.0
        """Of CPU time, without garbage collection."""
        self.longest_collection = 0.0
        """Of CPU time for garbage collection."""
        self._collected = self._began = 0.0

    async def run(self) -> None:
        """Until it is cancelled."""
        gc.callbacks.append(self._collect)
        try:
            while True:
                asked, began, self._collected = time.perf_counter(), time.thread_time(), 0.0
                await asyncio.sleep(_TICK_SECONDS)
                self.longest_cpu = max(self.longest_cpu, time.thread_time() - began - self._collected)
                self.longest_collection = max(self.longest_collection, self._collected)
                self.longest = max(self.longest, time.perf_counter() - asked - _TICK_SECONDS)
        finally:
            gc.callbacks.remove(self._collect)

    def _collect(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.thread_time()
        else:
            self._collected += time.thread_time() - self._began


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened: seconds until all was decided, until the first eviction, and that the loop was kept."""

    title: str
    decided: float
    decided_cpu: float
    first: float | None
    loop: float
    loop_cpu: float
    collection_cpu: float
    limit: float | None = None


class Bench:
    """A worker over a large cluster."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        self.cluster = Cluster()
        profiles = Profiles((EvictionProfile(),))
        self.deps = Dependencies(
            inventory=inventory,
            writer=self.cluster,
            budgets=self.cluster,
            hold_of=self.cluster.hold_of,
            clock=Clock(),
            metrics=EvictionMetrics(CollectorRegistry(), in_tree_names=True),
            profiles=lambda: profiles.all,
            profile_of=lambda pod: profiles.of(pod, None),
            random=random.random,  # noqa: TID251 -- the shell's
            leads=lambda: True,
            trusted=lambda: True,
            claims_known=lambda _: True,
            ceiling_of=lambda _: None,
            patch_ceiling_of=lambda _, __: None,
            patches=dict,
            breaker=BreakerSettings,
            pause=lambda: None,
            settings=WorkerSettings(mode=Mode.REPLACEMENT),
        )
        self.worker = Controller(self.deps, InTree.ABSENT)

    def change(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """As the caches tell it."""
        self.inventory.apply(old, new)
        self.worker.observe(old, new)

    async def step(
        self, title: str, work: Callable[[], None], pods: int, *, acts: bool = False, limit: float | None = None
    ) -> Step:
        """Does it, and waits until so many pods are planned."""
        self.cluster.first_at, ticker = None, Ticker()
        ticking = asyncio.create_task(ticker.run())
        await asyncio.sleep(0.05)
        began, any_in_flight = time.perf_counter(), time.thread_time()
        work()
        while not self._decided(pods) or (acts and self._first_after(began) is None):
            if time.perf_counter() - began > _DEADLINE_SECONDS:
                raise TimeoutError(f"{title}: not {pods} pods planned")
            await asyncio.sleep(_TICK_SECONDS)
        decided, decided_cpu = time.perf_counter() - began, time.thread_time() - any_in_flight
        await asyncio.sleep(1.0)  # what comes after it, such as conditions, keeps the loop as well
        ticking.cancel()
        await asyncio.wait([ticking])
        first = self._first_after(began) if acts else None
        loop = ticker.longest, ticker.longest_cpu, ticker.longest_collection
        return Step(title, decided, decided_cpu, first, *loop, limit)

    def _first_after(self, began: float) -> float | None:
        first_at = self.cluster.first_at
        return None if first_at is None else first_at - began

    def _decided(self, pods: int) -> bool:
        """Whether nothing is pending, and the plan is about so many pods."""
        core = self.worker._core  # noqa: SLF001 -- no gauge is that cheap
        return core.current and (len(core.plan.hit) >= pods if pods else not core.plan.hit)

    async def run(self) -> list[Step]:
        """All steps."""
        total = len(self.inventory.pods)
        node = rule("node", DeviceSelector(DRIVER, "node-7"))
        everything = rule("everything", DeviceSelector(DRIVER))
        working = asyncio.create_task(self.worker.run())
        try:
            steps = [await self.step("start, no taint", self.worker.start, 0)]
            hit = f"taint on one node ({DEVICES_A_POOL} pods)"
            steps += [
                await self.step(hit, lambda: self.change(None, node), DEVICES_A_POOL, acts=True, limit=NODE_SECONDS),
                await self.step("the same taint gone", lambda: self.change(node, None), 0),
                await self.step(
                    "taint on everything",
                    lambda: self.change(None, everything),
                    total,
                    acts=True,
                    limit=EVERYTHING_SECONDS,
                ),
                await self.step("the policy changed", self.worker.replan_all, total),
                await self.step(
                    "a node's taint beside it", lambda: self.change(None, node), total, limit=BESIDE_SECONDS
                ),
                await self.step("both gone", lambda: self._clear(node, everything), 0),
            ]
        finally:
            working.cancel()
            await asyncio.wait([working])
        return steps

    def _clear(self, *rules: DeviceTaintRule) -> None:
        for each in rules:
            self.change(each, None)


def _inventory(pools: int, *, gangs: bool) -> Inventory:
    """The cluster, without a rule."""
    inventory = Inventory()
    for each in slices(pools):
        inventory.apply(None, each)
    for claim, pod in pods(pools, gangs=gangs):
        inventory.apply(None, claim)
        inventory.apply(None, pod)
    return inventory


def _measure(title: str, pools: int, *, gangs: bool) -> list[Step]:
    """All steps in a cluster of its own, printed as a table."""
    inventory = _inventory(pools, gangs=gangs)
    settle_memory()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        steps = runner.run(Bench(inventory).run())
    rows = [
        [
            each.title,
            f"{each.decided:.3f}",
            f"{each.decided_cpu:.3f}",
            "" if each.first is None else f"{each.first:.3f}",
            f"{each.loop * 1e3:.0f}",
            f"{each.loop_cpu * 1e3:.0f}",
            f"{each.collection_cpu * 1e3:.0f}",
        ]
        for each in steps
    ]
    head = [
        "step",
        "decided s",
        "of CPU",
        "first eviction s",
        "longest without the loop ms",
        "of CPU",
        "garbage collection ms",
    ]
    print(f"{pools * DEVICES_A_POOL:,} pods, {title}\n")
    print(table(head, rows, right=range(1, 7)), "\n")
    return steps


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of the plan: pods that it is about, seconds of CPU, and those of its longest step."""

    title: str
    pods: int
    cpu: float
    longest: float
    most: float
    """Seconds of CPU that it may take."""


def view_of(inventory: Inventory) -> View:
    """What the caches show, with every pod that a taint hits."""
    profiles = Profiles((EvictionProfile(),))
    evictions = Evictions(inventory, EvictionScope(Evictor.OURS, asked=True), lambda _: None)
    evictions.everything()
    return View(
        inventory=inventory,
        evictions=evictions,
        hit=evictions.hits(),
        profile_of=lambda pod: profiles.of(pod, None),
        hold_of=lambda _: None,
        group_of=str,
        exceeded=lambda *_: "",
    )


def _pass(title: str, inventory: Inventory, rules: Sequence[DeviceTaintRule], most: float) -> Pass:
    """The best of five, without garbage collection, which runs for all of the process."""
    for each in rules:
        inventory.apply(None, each)
    view, moment = view_of(inventory), Moment(datetime.now(UTC), time.monotonic())  # noqa: TID251 -- the shell's clock
    gc.collect()
    gc.disable()
    found = [_steps_of(view, moment) for _ in range(5)]
    gc.enable()
    for each in rules:
        inventory.apply(each, None)
    return Pass(title, len(view.hit), min(map(sum, found)), min(map(max, found)), most)


def _steps_of(view: View, moment: Moment) -> list[float]:
    """The seconds of each step. The plan is kept until then, so that what frees it does not count."""
    steps, work, made = list[float](), planning(view, Ledger(), None, moment), None
    while made is None:
        at = time.thread_time()
        try:
            next(work)
        except StopIteration as done:
            made = done.value
        steps.append(time.thread_time() - at)
    return steps


def _measure_passes(pools: int, *, gangs: bool) -> list[Pass]:
    inventory = _inventory(pools, gangs=gangs)
    settle_memory()
    share = [rule(f"node-{number}", DeviceSelector(DRIVER, f"node-{number}")) for number in range(0, pools, 100)]
    return [
        _pass("one node", inventory, share[:1], PASS_SECONDS[0]),
        _pass("rules on 1 % of the nodes", inventory, share, PASS_SECONDS[1]),
        _pass("every device", inventory, [rule("everything", DeviceSelector(DRIVER))], PASS_SECONDS[2]),
    ]


def _told(passes: Sequence[Pass]) -> None:
    rows = [
        [each.title, f"{each.pods:,}", f"{each.cpu * 1e3:.2f}", f"{each.most * 1e3:.0f}", f"{each.longest * 1e3:.2f}"]
        for each in passes
    ]
    print("One pass\n")
    print(table(["taints on", "pods", "ms of CPU", "at most", "longest step ms"], rows, right=range(1, 5)), "\n")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.eviction_plan", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 if a limit was exceeded by the CPU time")
    parser.add_argument("--pools", type=int, default=POOLS, help=f"of {DEVICES_A_POOL} pods; limits are for {POOLS}")
    parser.add_argument("--pass", action="store_true", dest="only_pass", help="measure the pass, and no worker")
    arguments = parser.parse_args()
    passes = [each for gangs in (False, True) for each in _measure_passes(arguments.pools, gangs=gangs)]
    _told(passes)
    steps = (
        []
        if arguments.only_pass
        else [
            *_measure("each goes alone", arguments.pools, gangs=False),
            *_measure(f"in gangs of {GANG}", arguments.pools, gangs=True),
        ]
    )
    missed = [each.title for each in steps if each.limit is not None and each.decided_cpu > each.limit]
    missed += [f"{each.title}: loop" for each in steps if each.loop_cpu > LOOP_SECONDS]
    missed += [f"pass: {each.title}" for each in passes if each.cpu > each.most or each.longest > STEP_SECONDS]
    for title in missed:
        print(f"limit exceeded: {title}", file=sys.stderr)
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
