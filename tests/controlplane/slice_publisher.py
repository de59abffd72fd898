"""A driver that publishes slices with Kubernetes' own library, and what the library reports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, Self

from tests.controlplane.assets import slice_publisher
from tests.controlplane.gobuild import built
from tests.controlplane.processes import wait_until

USER_AGENT: Final = "slicepublisher"
"""By which the audit log tells its requests."""


class SlicePublisher:
    """Starts on entry with what it publishes at first; ends on exit and leaves its slices behind.

    Raises: AssetsUnavailableError, if the program cannot be built.
    """

    def __init__(self, kubeconfig: Path, folder: Path, driver: str, *pools: tuple[str, list[list[Any]]]) -> None:
        """`pools`: a name, and for each slice a list of devices. A second after slices change it looks again."""
        program = built(slice_publisher(), lambda text: print(text, file=sys.stderr)) / USER_AGENT
        self._command: list[str | Path] = [
            program,
            "--kubeconfig",
            kubeconfig,
            "--driver",
            driver,
            "--sync-delay",
            "1s",
        ]
        self._log = folder / f"{driver}.log"
        self._pools = pools

    def __enter__(self) -> Self:
        self._log.write_bytes(b"")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.publish(*self._pools)
        wait_until(lambda: {"ready": True} in self.reports, "the driver has begun")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            assert self._process.wait(timeout=300) == 0, self._log.read_text()
        finally:
            self._process.kill()

    def publish(self, *pools: tuple[str, list[list[Any]]]) -> None:
        """What there is from now on: all of it, as a driver says it."""
        self._pools = pools
        assert self._process.stdin is not None
        resources = {
            "Pools": {
                name: {"AllNodes": True, "Slices": [{"Devices": devices} for devices in slices]}
                for name, slices in pools
            }
        }
        self._process.stdin.write(json.dumps(resources).encode() + b"\n")
        self._process.stdin.flush()

    def restart(self) -> None:
        """A new process, which knows what the old one was made to publish last."""
        self.__exit__()
        self.__enter__()

    @property
    def reports(self) -> list[dict[str, Any]]:
        """What it has said since it started: that it is ready, and each error of the library."""
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    @property
    def dropped(self) -> int:
        """How often the library has said that fields were dropped."""
        return sum(each.get("dropped", False) for each in self.reports)
