"""The controller of patches as a process."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

from tests.controlplane.plane import ControlPlane
from tests.controlplane.processes import Process, free_port
from tests.controlplane.webhook_process import our_environment

Json = dict[str, Any]


class PatchProcess:
    """`patch` from entry to SIGTERM on exit; its log is shown if the block fails."""

    def __init__(self, plane: ControlPlane, *arguments: str, kubeconfig: Path | None = None) -> None:
        """`kubeconfig`: the admin's unless given."""
        self._kubeconfig = kubeconfig or plane.kubeconfig
        self._arguments = arguments

    folder: Path
    process: Process

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="patch-"))
        self.health = f"127.0.0.1:{free_port()}"
        self.metrics = f"127.0.0.1:{free_port()}"
        command = [
            *(sys.executable, "-m", "webhook", "patch", f"--kubeconfig={self._kubeconfig}", "-v"),
            f"--health-probe-bind-address={self.health}",
            f"--metrics-bind-address={self.metrics}",
            *self._arguments,
        ]
        self.process = Process(
            "patch", command, self.folder / "patch.log", environment=our_environment(), grace_seconds=180
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.process.stop()
        if kind is not None:
            print(self.process.tail(60), file=sys.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)

    def wait_for(self, message: str) -> Self:
        """Returns once it has logged that."""
        self.process.wait_ready(lambda: bool(self.lines(message)))
        return self

    def lines(self, message: str) -> list[Json]:
        """What it has logged with that message."""
        found = []
        for line in self.process.log.read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                record = json.loads(line)
                if record["msg"] == message:
                    found.append(record)
        return found
