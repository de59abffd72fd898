"""The two evictors as processes: this project's worker, and the in-tree controller in kube-controller-manager."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from benchmarks.cluster import Usage
from tests.apiserver.evicting import BLUNT
from tests.controlplane import arguments, versions
from tests.controlplane.processes import Process, free_port
from tests.controlplane.webhook_process import our_environment

if TYPE_CHECKING:
    from tests.controlplane.plane import ControlPlane

OURS: Final = "ours"
IN_TREE: Final = "in-tree"
_CONTROLLER: Final = "device-taint-eviction-controller"
_POLICY: Final = f"{BLUNT}impact: {{limits: [{{pods: null, claims: null, devices: null, namespaces: null}}]}}\n"
"""No manners that bind, and no ceiling: the in-tree controller knows neither."""
_READY_SECONDS: Final = 60.0
_SAMPLE_SECONDS: Final = 0.2


class Limits(NamedTuple):
    """What a client may ask of the API server: requests a second, and at once."""

    per_second: int
    burst: int

    def __str__(self) -> str:
        return f"{self.per_second}/{self.burst}"

    @property
    def flags(self) -> list[str]:
        """Both evictors call them the same."""
        return [f"--kube-api-qps={self.per_second}", f"--kube-api-burst={self.burst}"]


class Memory(NamedTuple):
    """Of a process, in bytes: resident, and its proportional share of what it shares with others."""

    resident: int
    proportional: int

    @classmethod
    def of(cls, pid: int) -> Memory:
        """Now, from /proc."""
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        sizes = {name: int(size) * 1024 for name, size in re.findall(r"^(\w+): +(\d+) kB$", text, re.MULTILINE)}
        return cls(sizes["Rss"], sizes["Pss"])

    def most(self, other: Memory) -> Memory:
        """The larger one of each."""
        return Memory(max(self.resident, other.resident), max(self.proportional, other.proportional))


def start(name: str, plane: ControlPlane, limits: Limits) -> Process:
    """Starts one of the two as a user of its own, by its name; it works when this returns. Raises: NotReadyError."""
    process, working = (_ours if name == OURS else _in_tree)(plane, limits)
    try:
        process.wait_ready(lambda: working in process.log.read_text(), seconds=_READY_SECONDS)
    except BaseException:
        process.stop()
        raise
    return process


def _ours(plane: ControlPlane, limits: Limits) -> tuple[Process, str]:
    policy = plane.folder / "policy.yaml"
    policy.write_text(_POLICY)
    command = [
        *(sys.executable, "-m", "webhook", "evict", "--mode=replacement", "--in-tree=absent"),
        f"--kubeconfig={plane.kubeconfig_of(OURS, ['system:masters'])}",
        f"--policy-file={policy}",
        f"--health-probe-bind-address=127.0.0.1:{free_port()}",
        f"--metrics-bind-address=127.0.0.1:{free_port()}",
        *limits.flags,
    ]
    return Process(OURS, command, plane.folder / "ours.log", environment=our_environment()), '"working"'


def _in_tree(plane: ControlPlane, limits: Limits) -> tuple[Process, str]:
    """Nothing else runs in its kube-controller-manager, and it elects no leader."""
    gates = versions.feature_gates(plane.server_version)
    command: list[str | Path] = [
        plane.assets.program("kube-controller-manager"),
        f"--controllers={_CONTROLLER}",
        "--leader-elect=false",
        *([f"--feature-gates={','.join(f'{gate}={str(on).lower()}' for gate, on in gates.items())}"] if gates else []),
        *arguments.component(plane.folder, free_port(), plane.kubeconfig_of(IN_TREE, ["system:masters"])),
        *limits.flags,
    ]
    return Process(IN_TREE, command, plane.folder / "in-tree.log"), f'controller="{_CONTROLLER}"'


class Watched:
    """The memory of a process while the block runs, at its peak."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    peak: Memory

    def __enter__(self) -> Self:
        # The highest so far was that of its start; from here on it is counted anew (proc(5), clear_refs).
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")
        self.peak = Memory.of(self._pid)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self.peak = self.peak.most(Memory(Usage.of(self._pid).peak, 0))

    def _watch(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            with contextlib.suppress(OSError):
                self.peak = self.peak.most(Memory.of(self._pid))
