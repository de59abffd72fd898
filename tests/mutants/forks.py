"""Runs of pytest that are forked from a process which has imported what no mutant changes: that saves a second each."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_SERVE: Final = """
import json, os, resource
import aiohttp, celpy, cryptography.x509, hypothesis.core, hypothesis.strategies, jsonschema, msgspec, pytest, yaml
for line in sys.stdin:
    arguments, output, most = json.loads(line)
    child = os.fork()
    if child == 0:
        status = 3
        try:
            os.setsid()
            if most:
                resource.setrlimit(resource.RLIMIT_CPU, (most, most))
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
            os.dup2(1, 2)
            status = int(pytest.main(arguments))
            sys.stdout.flush()
        finally:
            os._exit(status)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
# A test that waits needs no processor, and on a busy machine none gets as much as it could use.
_WAITS: Final = 4.0


class Forks:
    """The process that forks. It imports nothing of this project, so that each run reads it as it is then."""

    def __init__(self, settings: str, folder: Path, environment: Mapping[str, str]) -> None:
        """`settings` is a program that is run first, and imports sys."""
        self._output = folder / "output.txt"
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"{settings}{_SERVE}"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def run(self, arguments: Sequence[str], most_seconds: float | None) -> tuple[int, str]:
        """Exit status of pytest, and its output.

        most_seconds: of processor time, whatever else the machine does; of time, four times as many.

        Raises: TimeoutExpired.
        """
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps([list(arguments), str(self._output), math.ceil(most_seconds or 0)]) + "\n")
        child = int(answers.readline())
        in_time = select.select([answers], [], [], most_seconds and most_seconds * _WAITS)[0]
        if not in_time:
            _end(child)
        status = int(answers.readline())
        _end(child)  # what a test has started
        if not in_time or status in {-signal.SIGXCPU, -signal.SIGKILL}:
            raise subprocess.TimeoutExpired("pytest", most_seconds or 0.0)
        return status, self._output.read_text(errors="replace")

    def close(self) -> None:
        """Ends the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
