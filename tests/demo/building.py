"""The control plane, built by a process of its own while the first chapters are told.

As a program, `python -m tests.demo.building`, it is that process: it says how far it is in lines of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from tests.controlplane import assets
from tests.controlplane.gobuild import AssetsUnavailableError
from tests.controlplane.processes import Process
from tests.controlplane.webhook_process import ROOT
from tests.demo.terminal import Terminal

COMMAND = (sys.executable, "-m", "tests.demo.building")
_LOWEST_PRIORITY = 19
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 30.0
_TAIL = 20


class BackgroundBuild:
    """Builds from entry on. Leaving ends the build if it goes on, with every compiler that it runs."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="demo-build-")
        self._log = Path(self._folder.name) / "build.log"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = Process("build", COMMAND, self._log, environment=environment, grace_seconds=_GRACE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()
        self._folder.cleanup()

    @property
    def ended(self) -> bool:
        """Whether it is over, well or not."""
        return self._process.code is not None

    @property
    def state(self) -> str:
        """How far it is, in the words of `gobuild`; empty if it has not said anything yet."""
        said = [str(line["progress"]) for line in self._lines() if "progress" in line]
        return said[-1] if said else ""

    @property
    def failure(self) -> str:
        """Why there is no control plane, once it has ended; empty if there is one."""
        if not self._process.code:
            return ""
        said = [str(line["unavailable"]) for line in self._lines() if "unavailable" in line]
        return said[-1] if said else f"the build ended with {self._process.code}:\n{self._process.tail(_TAIL)}"

    def _lines(self) -> list[dict[str, Any]]:
        # the last line may be there in part only
        lines = self._log.read_text(errors="replace").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]


class BuildNews:
    """Says between chapters how far a build is, where that has changed."""

    def __init__(self, build: BackgroundBuild, terminal: Terminal) -> None:
        self._build = build
        self._terminal = terminal
        self._said = ""

    def tell(self) -> None:
        """A line, or none if there is nothing new."""
        state = self._build.state
        if self._build.ended:
            failed = bool(self._build.failure)
            state = "the build has failed; why follows below" if failed else "the control plane is built"
        if state and state != self._said:
            self._said = state
            self._terminal.aside(f"(in the background: {state})")

    def wait(self) -> str:
        """Waits for the end of the build, and says so meanwhile. Why it failed; empty if it did not."""
        if not self._build.ended:
            self._terminal.blank()
            self._terminal.title(
                "What comes next needs the real control plane. Waiting for its build; Ctrl-C ends both."
            )
            with self._terminal.status() as show:
                while not self._build.ended:
                    show(self._build.state)
                    time.sleep(_POLL_SECONDS)
        return self._build.failure


def main() -> int:
    """Builds what the demo needs. Ends with 1 if that cannot be."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # an exception ends Go's processes too
    os.nice(_LOWEST_PRIORITY)
    try:
        assets.find(kwok=True, progress=lambda line: _say(progress=line))
    except AssetsUnavailableError as e:
        _say(unavailable=str(e))
        return 1
    return 0


def _say(**line: str) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
