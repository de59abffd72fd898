"""How fast the inventory of a large cluster answers, and what it weighs: `python -m benchmarks.inventory`.

The cluster is made up: 100,000 devices in 2,000 slices, and a claim with one pod on each device. Exit codes: 0
measured, 1 a floor was missed (with --check).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
import tracemalloc
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final
from uuid import UUID

from msgspec import structs

from benchmarks.tables import table
from webhook.api.claims import AllocationResult, Consumer, Demand, ResourceClaim, Wish
from webhook.api.meta import ObjectMeta
from webhook.api.rules import CELSelector, DeviceSelector
from webhook.api.slices import Device, DeviceClassSelectors, ResourceSlice
from webhook.api.taints import DeviceTaint, DeviceToleration
from webhook.inventory.impact import Taint, impact_of
from webhook.inventory.placement import Seeker, placements
from webhook.inventory.pools import Evictor
from webhook.inventory.state import Inventory
from webhook.inventory.supply import Supply
from webhook.inventory.targets import DeviceNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from webhook.inventory.state import InventoryObject

DRIVER: Final = "gpu.example.com"
KEY: Final = "maintenance.example.com/planned"
NOW: Final = datetime(2026, 6, 1, 12, tzinfo=UTC)
POOLS: Final = 2000
"""Unless others are asked for; floors are for these."""
DEVICES_A_POOL: Final = 50
NAMESPACES: Final = 100
CHANGES: Final = 10_000
CLASS: Final = "gpu"
CLASSES: Final = {CLASS: DeviceClassSelectors(CLASS, (CELSelector(f'device.driver == "{DRIVER}"'),))}
_MIB: Final = 2**20

TOLERATIONS: Final = (
    (),
    (DeviceToleration(KEY, "Exists", "", "NoExecute", 300),),
    (DeviceToleration(KEY, "Exists", "", "NoExecute"),),
)
TAINT: Final = Taint(DeviceTaint(KEY, "", "NoExecute", NOW), Evictor.IN_TREE)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the milliseconds that an answer may take at best."""

    title: str
    selector: DeviceSelector
    floor_ms: float | None = None


QUESTIONS: Final = (
    Question("impact of an empty selector", DeviceSelector(), 50),
    Question("impact on one driver", DeviceSelector(DRIVER), 50),
    Question("impact on one pool", DeviceSelector(DRIVER, "node-7"), 0.1),
    Question("impact on a pool of any driver", DeviceSelector(pool="node-7"), 0.1),
    Question("impact on one device name in all pools", DeviceSelector(device="gpu-3")),
    Question("impact on one device", DeviceSelector(DRIVER, "node-7", "gpu-3"), 0.1),
)


def slices(pools: int = POOLS) -> Iterator[ResourceSlice]:
    """A pool a node, a slice a pool."""
    for number in range(pools):
        devices = tuple([Device(f"gpu-{index}") for index in range(DEVICES_A_POOL)])
        yield ResourceSlice(ObjectMeta(f"node-{number}-{DRIVER}"), DRIVER, f"node-{number}", 1, 1, None, devices)


def claims(pools: int = POOLS, sorts: int = 0) -> Iterator[ResourceClaim]:
    """A claim a device, used by one pod, with one of three lists of tolerations, or one of so many others."""
    for number in range(pools * DEVICES_A_POOL):
        pool, device = number % pools, number // pools
        tolerations = TOLERATIONS[number % 3]
        if sorts:
            tolerations = (DeviceToleration(KEY, "Exists", "", "NoExecute", number % sorts),)
        yield ResourceClaim(
            meta=ObjectMeta(f"trainer-{number}-gpu", "", f"team-{number % NAMESPACES}", _uid(2 * number), str(number)),
            allocation=(AllocationResult("gpu", DRIVER, f"node-{pool}", f"gpu-{device}", tolerations),),
            reserved_for=(Consumer("", "pods", f"trainer-{number}", _uid(2 * number + 1)),),
        )


def _uid(number: int) -> str:
    return str(UUID(int=number))


class Weights:
    """What the cluster weighs in memory, part by part, as tracemalloc counts it."""

    def __init__(self, pools: int) -> None:
        self._pools = pools
        self.rows: list[list[str]] = []

    def measure(self) -> None:
        """Builds the cluster twice."""
        tracemalloc.start()
        inventory = Inventory()
        for title, objects in (("slices", slices(self._pools)), ("claims", claims(self._pools))):
            made: list[InventoryObject] = []
            self._add(f"{title}, as they are kept", partial(made.extend, objects))
            self._add(f"{title}, what finds them", partial(apply, inventory, made))
        self._add("devices by name, from the first question on", partial(ask, inventory, DeviceSelector()))
        inventory, made = Inventory(), list(claims(self._pools, self._pools * DEVICES_A_POOL))
        self._add("claims, what finds them, if no two tolerate the same", partial(apply, inventory, made))
        tracemalloc.stop()

    def _add(self, title: str, work: Callable[[], object]) -> None:
        before = _traced()
        work()
        size = _traced() - before
        self.rows.append([title, f"{size / _MIB:.1f}", f"{size / (self._pools * DEVICES_A_POOL):.0f}"])


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def apply(inventory: Inventory, objects: Iterable[InventoryObject]) -> None:
    """All of them are new."""
    for each in objects:
        inventory.apply(None, each)


def ask(inventory: Inventory, selector: DeviceSelector) -> None:
    """One question; the answer is thrown away."""
    impact_of(inventory, selector, TAINT, NOW)


def asking(pools: int, free: int) -> Iterator[ResourceClaim]:
    """Claims that say what they ask for; the last `free` devices of each pool have none."""
    demand = Demand(((Wish("gpu", CLASS),),))
    for number, claim in enumerate(claims(pools)):
        if number // pools < DEVICES_A_POOL - free:
            yield structs.replace(claim, demand=demand, controller_uid=_uid(2 * number + 1))


def place(inventory: Inventory, selector: DeviceSelector) -> None:
    """Where the pods of these devices would go, as the guard asks under a limit `pendingPods`."""
    impact = impact_of(inventory, selector, TAINT, NOW)
    found = [inventory.claims[key] for key in impact.claims]
    seekers = [Seeker(each.meta.namespace, each.reserved_for[0].name, (each,)) for each in found]
    taints = [(DeviceNames.of(selector), TAINT.taint)]
    freed = frozenset(impact.claims)
    supply = Supply(inventory, classes=CLASSES, nodes=None, freed=freed, taints=taints)
    if any(each.unknown for each in placements(inventory, seekers, supply)):
        raise AssertionError("not known, so it is not the question that was to be timed")


def change(inventory: Inventory) -> None:
    """Claims that are let go and taken again, as a watch tells it."""
    for claim in list(islice(inventory.claims.values(), CHANGES // 2)):
        free = structs.replace(claim, reserved_for=())
        inventory.apply(claim, free)
        inventory.apply(free, claim)


class Times:
    """How long work takes.

    Floors hold for the best CPU time, which is what the work takes on a machine that nobody shares.
    """

    def __init__(self, rounds: int, pools: int) -> None:
        self._rounds = rounds
        self._pools = pools
        self.rows: list[list[str]] = []
        self.missed: list[str] = []

    def measure(self) -> None:
        """Asks, changes, and asks of a cluster that is harder."""
        inventory = Inventory()
        apply(inventory, slices(self._pools))
        apply(inventory, claims(self._pools))
        for question in QUESTIONS:
            self._add(question.title, partial(ask, inventory, question.selector), question.floor_ms)
        self._add(f"{CHANGES:,} changes of claims", partial(change, inventory))
        for free, title in ((0, "none is free"), (10, "a fifth is free")):
            inventory = Inventory()
            apply(inventory, [structs.replace(each, node_name=each.pool) for each in slices(self._pools)])
            apply(inventory, asking(self._pools, free))
            for what, selector in (
                ("the pods of one pool", DeviceSelector(DRIVER, "node-7")),
                (f"{self._pools:,} pods, one in each pool", DeviceSelector(device="gpu-3")),
            ):
                self._add(f"places for {what}, {title}", partial(place, inventory, selector), 100)
        for sorts in (1_000, self._pools * DEVICES_A_POOL):
            inventory = Inventory()
            apply(inventory, claims(self._pools, sorts))
            title = f"impact of an empty selector, {sorts:,} sorts of tolerations"
            self._add(title, partial(ask, inventory, DeviceSelector()))

    def _add(self, title: str, work: Callable[[], object], floor_ms: float | None = None) -> None:
        if self._pools != POOLS:
            floor_ms = None
        taken, busy = [], []
        for _ in range(self._rounds):
            begin, began = time.perf_counter(), time.thread_time()
            work()
            busy.append((time.thread_time() - began) * 1e3)
            taken.append((time.perf_counter() - begin) * 1e3)
        floor = "" if floor_ms is None else f"{floor_ms:g}"
        middle = statistics.median(taken)
        self.rows.append([title, f"{min(busy):.3f}", f"{min(taken):.3f}", f"{middle:.3f}", floor])
        if floor_ms is not None and min(busy) > floor_ms:
            self.missed.append(title)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inventory", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="how often each question is asked")
    parser.add_argument("--pools", type=int, default=POOLS, help=f"of {DEVICES_A_POOL} devices; floors are for {POOLS}")
    parser.add_argument(
        "--check", action="store_true", help="exit 1 if a floor was missed by the CPU time of the best round"
    )
    arguments = parser.parse_args()
    times, weights = Times(arguments.rounds, arguments.pools), Weights(arguments.pools)
    times.measure()
    weights.measure()
    size = f"{arguments.pools * DEVICES_A_POOL:,} devices in {arguments.pools:,} slices"
    print(f"{size}, as many claims and pods; {arguments.rounds} rounds\n")
    print(
        table(["in the process", "CPU ms", "best ms", "median ms", "floor ms"], times.rows, right=range(1, 5)),
        end="\n\n",
    )
    print(table(["memory", "MiB", "bytes a device or claim"], weights.rows, right=range(1, 3)))
    for title in times.missed:
        print(f"floor missed: {title}", file=sys.stderr)
    return 1 if arguments.check and times.missed else 0


if __name__ == "__main__":
    sys.exit(main())
