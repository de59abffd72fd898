"""A worker of ours as a process: its log, its metrics, and its end."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

from tests.controlplane.processes import Process, free_port
from tests.controlplane.webhook_process import our_environment

Json = dict[str, Any]


class Daemon:
    """From entry to SIGTERM on exit; its log is shown if the block fails."""

    verb: str
    folder: Path
    process: Process
    health: str
    metrics: str

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.verb}-"))
        self.health, self.metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        command = [
            *(*self._program(), self.verb, "-v"),
            f"--health-probe-bind-address={self.health}",
            f"--metrics-bind-address={self.metrics}",
            *self._flags(),
        ]
        log = self.folder / f"{self.verb}.log"
        self.process = Process(self.verb, command, log, environment=our_environment(), grace_seconds=180)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.process.stop()
        if kind is not None:
            print(self.process.tail(60), file=sys.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _program(self) -> list[str]:
        """Asked once the folder is there, as the flags are."""
        return [sys.executable, "-m", "webhook"]

    def _flags(self) -> list[str]:
        raise NotImplementedError

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
