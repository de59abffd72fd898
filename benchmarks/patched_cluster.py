"""The controller of patches on a real API server with 2,000 slices of 64 devices.

    python -m benchmarks.patched_cluster

Slices are written to etcd; patches, rules and statuses go through the API server. What is written comes from its own
metrics, and what the controllers use from /proc. Exit codes: 0 all was as it should be after each change, 2 it was
not, or the figures cannot be had.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.request import urlopen

from benchmarks.bulk import EtcdWriter
from benchmarks.cluster import Usage
from benchmarks.gobinaries import BenchmarkError
from benchmarks.patches import DRIVER, PATCHES, POOLS, patch_manifest, slice_manifest
from benchmarks.progress import say
from benchmarks.tables import table
from tests.apiserver.patching import PatchProcess
from tests.controlplane import assets
from tests.controlplane.client import path
from tests.controlplane.gobuild import AssetsUnavailableError
from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import NotReadyError, wait_until
from tests.controlplane.webhook_process import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

_PATCHES: Final = path("devicetaint.io/v1alpha1", "resourceslicepatches")
_RULES: Final = path("resource.k8s.io/v1", "devicetaintrules")
_SLICES: Final = path("resource.k8s.io/v1", "resourceslices")
_CLASSES: Final = path("resource.k8s.io/v1", "deviceclasses")
_DEFINITION: Final = ROOT / "manifests" / "components" / "patches" / "definition.yaml"
_LABEL: Final = "devicetaint.io/patch"
_ARGUMENTS: Final = ("--leader-elect", "--leader-elect-lease=default/patch")
_MOST_SECONDS: Final = 900.0
_MIB: Final = 1024 * 1024
_REQUESTS: Final = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_WRITES: Final = ('verb="APPLY"', 'verb="DELETE"', 'verb="PATCH"', 'verb="POST"', 'verb="PUT"')


class Row(NamedTuple):
    """What one change took, until all was as it should be."""

    change: str
    seconds: float
    cpu_seconds: float
    """Of the controller."""
    rules: int
    """Writes of DeviceTaintRules, those of the benchmark left out."""
    statuses: int
    """Of patches."""


class PatchedCluster:
    """A control plane with slices and patches, and the controllers that run there."""

    def __init__(self, plane: ControlPlane, patches: int, stack: contextlib.ExitStack) -> None:
        self.rows: list[Row] = []
        self.peak_mib = 0
        self._plane = plane
        self._client = plane.client
        self._patches = patches
        self._stack = stack
        self._pids: set[int] = set()

    def run(self) -> None:
        """All changes, one after the other. Raises: NotReadyError."""
        first = self._measure(f"{self._patches} patches, from nothing", self._start, self._expanded)
        self._pids.discard(first.process.pid)
        first.process.stop()
        second = self._measure("a controller starts, all is done", self._start, self._expanded)
        third = self._start()
        third.wait_for("ready")
        self._pids.add(third.process.pid)
        gone = self._client.get(f"{_PATCHES}/p-1").object["metadata"]["uid"]
        assert self._rules_of(gone)
        self._measure(
            "the leader is killed, a patch is deleted, the standby leads",
            lambda: self._replace(second, third),
            lambda: not self._rules_of(gone) and third.lines("leading") != [],
        )
        self._edit(third)
        self._measure("a node with 64 devices comes", lambda: self._add_node(third), self._counted)

    def _start(self) -> PatchProcess:
        return self._stack.enter_context(PatchProcess(self._plane, *_ARGUMENTS))

    def _replace(self, old: PatchProcess, new: PatchProcess) -> PatchProcess:
        self._pids.discard(old.process.pid)
        os.kill(old.process.pid, signal.SIGKILL)
        assert self._client.delete(f"{_PATCHES}/p-1").ok
        return new

    def _edit(self, controller: PatchProcess) -> None:
        uid = self._client.get(f"{_PATCHES}/p-2").object["metadata"]["uid"]
        before = self._rules_of(uid)
        rule = f"{_RULES}/{before[0]['metadata']['name']}"

        def edit() -> PatchProcess:
            _ = self._client.patch(rule, {"spec": {"deviceSelector": {"device": "gpu-none"}}}).object
            return controller

        def put_back() -> bool:
            return [each["spec"] for each in self._rules_of(uid)] == [each["spec"] for each in before]

        self._measure("a rule is edited by hand", edit, put_back, own=1)

    def _add_node(self, controller: PatchProcess) -> PatchProcess:
        manifest = slice_manifest(POOLS)
        del manifest["metadata"]["uid"], manifest["metadata"]["creationTimestamp"]
        _ = self._client.create(_SLICES, manifest).object
        return controller

    # --- what is so --------------------------------------------------------------------------------

    def _expanded(self) -> bool:
        found = [each.get("status", {}) for each in self._client.get(_PATCHES).items]
        return [_reason(each) for each in found] == ["Expanded"] * self._patches

    def _counted(self) -> bool:
        status: Json = self._client.get(f"{_PATCHES}/p-0").object["status"]
        return bool(status["selectedDevices"] == POOLS + 1)

    def _rules_of(self, uid: str) -> list[Json]:
        return self._client.get(_RULES, labelSelector=f"{_LABEL}={uid}").items

    def _measure(
        self, change: str, act: Callable[[], PatchProcess], done: Callable[[], bool], *, own: int = 0
    ) -> PatchProcess:
        """Until it is `done` and the controller that `act` returns has nothing left to do. `own`: writes of `act`."""
        say(change)
        before, started = self._written(), time.monotonic()
        used = {pid: Usage.of(pid).cpu_seconds for pid in self._pids}
        process = act()
        pid = process.process.pid
        self._pids.add(pid)
        wait_until(lambda: _is_idle(process) and done(), change, seconds=_MOST_SECONDS, every=0.1)
        seconds, written = time.monotonic() - started, self._written()
        now = Usage.of(pid)
        cpu = now.cpu_seconds - used.get(pid, 0.0)
        rules, statuses = (written[name] - before[name] for name in ("devicetaintrules", "resourceslicepatches"))
        self.rows.append(Row(change, seconds, cpu, rules - own, statuses))
        self.peak_mib = max(self.peak_mib, now.peak // _MIB)
        return process

    def _written(self) -> Counter[str]:
        """Writes that were accepted, by resource; of patches those of the status."""
        found: Counter[str] = Counter()
        for labels, value in _REQUESTS.findall(self._plane.metrics()):
            accepted = any(verb in labels for verb in _WRITES) and 'code="2' in labels
            if accepted and 'resource="devicetaintrules"' in labels:
                found["devicetaintrules"] += int(float(value))
            elif accepted and 'resource="resourceslicepatches"' in labels and 'subresource="status"' in labels:
                found["resourceslicepatches"] += int(float(value))
        return found


def _reason(status: Json) -> str:
    return next((each["reason"] for each in status.get("conditions", ()) if each["type"] == "Expanded"), "")


def _is_idle(controller: PatchProcess) -> bool:
    """Whether it leads, has looked at everything once, and has nothing left."""
    try:
        with urlopen(f"http://{controller.metrics}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    except OSError:  # it is starting
        return False
    lines = dict(line.rpartition(" ")[::2] for line in text.splitlines() if not line.startswith("#"))
    leads, looked, left = (
        float(lines.get(f"device_taint_webhook_patch_{name}", 0))
        for name in ("leader", "pass_seconds_count", "pending")
    )
    return leads == 1 and looked > 0 and left == 0


def _fill(plane: ControlPlane, patches: int) -> None:
    """Slices, the class and the patches. Raises: NotReadyError, BenchmarkError."""
    say(f"{POOLS:,} slices and {patches} patches")
    with EtcdWriter(plane.folder) as etcd:
        etcd.write(slice_manifest(pool) for pool in range(POOLS))
    applied = plane.kubectl("apply", "-f", _DEFINITION)
    if applied.code:
        raise BenchmarkError(applied.stderr)
    wait_until(lambda: plane.client.get(_PATCHES).ok, "patches are served")
    wait_until(lambda: len(plane.client.get(_SLICES, resourceVersion="0").items) == POOLS, "slices are read")
    chosen = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    _ = plane.client.create(_CLASSES, {"metadata": {"name": "gpu"}, "spec": chosen}).object
    for number in range(patches):
        _ = plane.client.create(_PATCHES, patch_manifest(number)).object


def main() -> int:
    """Measures; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.patched_cluster", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--patches", type=int, default=PATCHES, help="fewer, to try it out")
    patches = parser.parse_args().patches
    try:
        with contextlib.ExitStack() as stack:
            flags = ["--storage-media-type=application/json"]
            plane = stack.enter_context(ControlPlane(assets.find(progress=say), api_server_arguments=flags))
            _fill(plane, patches)
            cluster = PatchedCluster(plane, patches, stack)
            cluster.run()
    except (BenchmarkError, NotReadyError, AssetsUnavailableError) as error:
        print(error, file=sys.stderr)
        return 2
    heads = ["change", "seconds", "CPU s", "rules written", "statuses written"]
    rows = [
        [each.change, f"{each.seconds:.1f}", f"{each.cpu_seconds:.1f}", str(each.rules), str(each.statuses)]
        for each in cluster.rows
    ]
    print(table(heads, rows, right=range(1, len(heads))))
    print(f"\npeak memory of a controller {cluster.peak_mib} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
