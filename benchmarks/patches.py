"""What 500 patches on 2,000 slices of 64 devices cost the controller of patches: `python -m benchmarks.patches`.

Slices come as an API server sends them; rules and statuses go to a cluster that says yes to everything, so writes are
counted and not waited for. Exit codes: 0 measured, 1 a limit was exceeded (with --check). Limits hold for CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import uvloop
from msgspec import structs
from prometheus_client import CollectorRegistry

from benchmarks.tables import table
from webhook.api.decode import Reader
from webhook.api.meta import ObjectMeta
from webhook.api.patches import decode_patch
from webhook.api.rules import CELSelector, DeviceTaintRule
from webhook.api.slices import DeviceClassSelectors
from webhook.cluster.cache.decoders import WholeSliceWire
from webhook.cluster.patch_writer import WriteAnswer
from webhook.daemons.patch_controller import ControllerParts, PatchController
from webhook.patches.status import REASONS
from webhook.patches.stored import StoredPatch, StoredRule
from webhook.runtime import settle_memory
from webhook.telemetry.workers import PatchMetrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.slices import ResourceSlice
    from webhook.cluster.patch_writer import PatchWriter
    from webhook.patches.stored import PatchStatus, RuleApply, RuleOwner

POOLS: Final = 2000
DEVICES: Final = 64
PATCHES: Final = 500
DRIVER: Final = "gpu.example.com"
CHANGED_SECONDS: Final = 5.0
"""From a slice that changes, or a node that comes, to the last write."""
LOOP_SECONDS: Final = 0.15
"""The longest that anything else waits for the loop."""
_MODELS: Final = ("a100", "h100", "l4", "mi300")
_TICK_SECONDS: Final = 0.001
_CREATED: Final = "2026-07-01T00:00:00Z"


def slice_manifest(pool: int, firmware: int = 0) -> dict[str, Any]:
    """The one slice of a pool. `firmware`: of its first device."""
    devices = [
        {
            "name": f"gpu-{at}",
            "attributes": {
                "model": {"string": _MODELS[pool % len(_MODELS)]},
                "uuid": {"string": f"GPU-{pool:06}-{at:04}"},
                "index": {"int": at},
                "firmware": {"int": firmware if not at else (pool + at) % 7},
                "driverVersion": {"version": "550.54.15"},
                "numa": {"int": at // 32},
                "ecc": {"bool": True},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{at:02x}"},
            },
            "capacity": {"memory": {"value": "80Gi"}, "slots": {"value": "7"}},
        }
        for at in range(DEVICES)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"s-{pool}", "uid": f"u-{pool}", "creationTimestamp": _CREATED},
        "spec": {
            "driver": DRIVER,
            "nodeName": f"node-{pool}",
            "pool": {"name": f"node-{pool}", "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def slice_of(pool: int, generation: int = 1, firmware: int = 0) -> ResourceSlice:
    """As the watch brings it."""
    manifest = slice_manifest(pool, firmware)
    manifest["metadata"]["resourceVersion"] = str(generation)
    manifest["spec"]["pool"]["generation"] = generation
    return msgspec.json.decode(json.dumps(manifest).encode(), type=WholeSliceWire).to_value()


def patch_manifest(number: int) -> dict[str, Any]:
    """Of ten patches seven have a class and CEL of their own; two have names; one takes precedence over others."""
    own = f'device.attributes["{DRIVER}"]'
    key, priority = f"example.com/k{number}", 0
    if number % 10 < 7:
        # a name in all pools, or a few devices of each
        wanted = (
            f"{own}.index == {number % DEVICES} && {own}.model in {json.dumps(_MODELS)} && {own}.numa != {number + 9}"
        )
        selects: Any = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": wanted}}]}
    elif number % 10 < 9:
        selects = {"driver": DRIVER, "pool": f"node-{number}"}
    else:
        key, priority = "example.com/shared", number
        selects = {"driver": DRIVER, "device": f"gpu-{number % 8}"}
    taint = {"key": key, "effect": "NoSchedule", "timeAdded": _CREATED}
    return {
        "apiVersion": "devicetaint.io/v1alpha1",
        "kind": "ResourceSlicePatch",
        "metadata": {"name": f"p-{number}"},
        "spec": {"devices": {"filter": selects, "priority": priority, "taints": [taint]}},
    }


def patch_of(number: int) -> StoredPatch:
    """Likewise, as the watch brings it."""
    manifest = patch_manifest(number)
    manifest["metadata"] |= {"uid": f"p-{number}", "creationTimestamp": _CREATED}
    return StoredPatch(decode_patch(Reader.of(manifest, [])), 1)


class Yes:
    """A cluster that does what it is asked, and reports nothing."""

    def __init__(self) -> None:
        self.writes: Counter[str] = Counter()
        self.statuses: dict[str, PatchStatus] = {}
        self.on_status: Callable[[StoredPatch], None] = lambda _: None

    def _note(self, verb: str) -> None:
        self.writes[verb] += 1

    async def apply_rule(self, write: RuleApply) -> WriteAnswer:
        self._note("create" if write.creates else "update")
        version = str(sum(self.writes.values()))
        meta = ObjectMeta(write.name, uid=write.name, resource_version=version, annotations=write.annotations)
        rule = DeviceTaintRule(meta, write.selector, write.taint)
        return WriteAnswer(StoredRule(rule, write.labels, write.owner))

    async def delete_rule(self, stored: StoredRule) -> WriteAnswer:
        del stored
        self._note("delete")
        return WriteAnswer()

    async def write_status(self, stored: StoredPatch, status: PatchStatus) -> WriteAnswer:
        self._note("status")
        self.statuses[stored.meta.name] = status
        self.on_status(structs.replace(stored, status=status))
        return WriteAnswer()

    async def warn(self, owner: RuleOwner, reason: str, action: str, note: str) -> None:
        del owner, reason, action, note
        self._note("event")


class Measured:
    """One controller, and what each change took of it."""

    def __init__(self) -> None:
        self.cluster = Yes()
        parts = ControllerParts(
            writer=cast("PatchWriter", self.cluster),
            metrics=PatchMetrics(CollectorRegistry(), REASONS),
            ceiling=100,
            leads=lambda: True,
            current=lambda: True,
            patches_served=lambda: True,
            rules_version=lambda: "",
            now=lambda: datetime.now(UTC),  # noqa: TID251 -- a benchmark
            seconds=time.monotonic,
            random=random.random,  # noqa: TID251 -- a benchmark
        )
        self.controller = PatchController(parts)
        self.cluster.on_status = lambda stored: self.controller.observe_patch(stored.meta.name, stored)
        self.rows: list[tuple[str, float, float, Counter[str]]] = []
        self._longest = 0.0

    async def run(self) -> None:
        self._fill()
        settle_memory()  # as the process does before it begins
        watch = asyncio.create_task(self._watch_loop())
        tasks: list[asyncio.Task[Any]] = []
        begin = "500 patches on 2,000 slices, from nothing"
        await self._measure(begin, lambda: tasks.append(asyncio.create_task(self.controller.run())))
        await self._measure("a slice comes again as it was", lambda: self._slice(slice_of(7, 2)))
        await self._measure("a device of a slice changes", lambda: self._slice(slice_of(7, 3, firmware=99)))
        await self._measure("a node comes", lambda: self._slice(slice_of(POOLS)))
        await self._measure("a node goes", lambda: self.controller.observe_slice(slice_of(POOLS), None))
        await self._measure("100 nodes come at once", self._hundred)
        new = structs.replace(patch_of(3), patch=structs.replace(patch_of(3).patch, meta=ObjectMeta("new", uid="new")))
        await self._measure("a patch comes", lambda: self.controller.observe_patch("new", new))
        await self._measure("it goes", lambda: self.controller.observe_patch("new", None))
        for task in (*tasks, watch):
            task.cancel()

    def _hundred(self) -> None:
        for at in range(100):
            self._slice(slice_of(POOLS + at))

    def _fill(self) -> None:
        self._class(f'device.driver == "{DRIVER}"')
        for pool in range(POOLS):
            self._slice(slice_of(pool))
        for number in range(PATCHES):
            self.controller.observe_patch(f"p-{number}", patch_of(number))

    def _slice(self, value: ResourceSlice) -> None:
        self.controller.observe_slice(None, value)

    def _class(self, expression: str) -> None:
        self.controller.observe_class("gpu", DeviceClassSelectors("gpu", (CELSelector(expression),)))

    async def _measure(self, what: str, change: Callable[[], object]) -> None:
        before, self._longest = Counter(self.cluster.writes), 0.0
        began = time.process_time()
        change()
        await asyncio.sleep(2 * _TICK_SECONDS)
        self._longest = 0.0  # what made the change held the loop as well
        calm, seen, last = 0, -1, began
        while calm < 20:
            await asyncio.sleep(_TICK_SECONDS)
            lines = sum(self.cluster.writes.values()) + self.controller.index.pending + self.controller.waiting
            calm = calm + 1 if lines == seen else 0
            seen = lines
            if self.controller.index.pending or self.controller.waiting:
                calm = 0
            if not calm:
                last = time.process_time()
        took = last - began
        self.rows.append((what, took, self._longest, self.cluster.writes - before))

    async def _watch_loop(self) -> None:
        while True:
            began = time.process_time()
            await asyncio.sleep(_TICK_SECONDS)
            self._longest = max(self._longest, time.process_time() - began)


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.patches", description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a limit is exceeded")
    check = parser.parse_args(arguments).check
    measured = Measured()
    uvloop.run(measured.run())
    rows = [
        [what, f"{took:.3f}", f"{longest * 1000:.0f}", ", ".join(f"{n} {verb}" for verb, n in sorted(writes.items()))]
        for what, took, longest, writes in measured.rows
    ]
    print(table(["change", "CPU seconds", "loop held, ms", "writes"], rows))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    conditions = Counter(each.conditions[0].reason for each in measured.cluster.statuses.values())
    print(f"\npeak memory {peak} MiB; {dict(conditions)}")
    slow = [what for what, took, _, _ in measured.rows[1:5] if took > CHANGED_SECONDS]
    slow += [what for what, _, longest, _ in measured.rows if longest > LOOP_SECONDS]
    return 1 if check and slow else 0


if __name__ == "__main__":
    sys.exit(main())
