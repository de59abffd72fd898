"""Child processes with a log, a deadline for being ready, and an end that is certain."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

POLL_SECONDS = 0.05
# Below the ports that kernels hand out by themselves (Linux: from 32768), so neither a connection nor a listener on
# port 0 takes one of these between the look and its use; above those that programs have by default.
_PORTS = range(12_000, 32_000)
_SHARE = 2_000
"""Of a process of a test run: neither another one nor its own next call takes a port between the look and its use."""

# Asks the kernel to end the child when the thread that started it dies (PR_SET_PDEATHSIG is 1, SIGTERM 15), so
# that a test run killed without a chance to clean up leaves nothing behind. Survives execv.
_DIE_WITH_PARENT = "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,15,0,0,0);os.execv(sys.argv[1],sys.argv[1:])"


class NotReadyError(Exception):
    """Something did not happen in time, or a process ended; the message has the end of its log."""


def _own_ports() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    begin = worker * _SHARE % len(_PORTS)
    share, first = _PORTS[begin : begin + _SHARE], secrets.randbelow(_SHARE)
    return itertools.cycle([*share[first:], *share[:first]])


_ports = _own_ports()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that no process listens on right now; one of another test run may take it before you."""
    while True:
        port = next(_ports)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def wait_until(
    condition: Callable[[], bool], what: str, *, seconds: float = 240.0, every: float = POLL_SECONDS
) -> None:
    """Polls until the condition holds, with a pause of so many seconds in between.

    Raises: NotReadyError after the given seconds, naming what was waited for.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise NotReadyError(f"not within {seconds:g} s: {what}")
        time.sleep(every)


class Process:
    """One running child; start it from a thread that outlives it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        grace_seconds: float = 10.0,
    ) -> None:
        self.name = name
        self.log = log
        self._grace_seconds = grace_seconds
        arguments = [str(part) for part in command]
        if sys.platform == "linux":
            arguments = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, *arguments]
        # A session of its own: an interrupt from the terminal is for the tests, which then end it in order.
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment) if environment is not None else None,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The child's process id, also after its end."""
        return self._popen.pid

    @property
    def code(self) -> int | None:
        """The exit code (negative: the signal that ended it), None while it runs."""
        return self._popen.poll()

    def tail(self, lines: int = 20) -> str:
        """The end of what the process has written."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_ready(self, ready: Callable[[], bool], *, seconds: float = 240.0) -> None:
        """Polls until ready() holds.

        Raises: NotReadyError if it does not in time, or if the process ends before.
        """

        def ready_or_ended() -> bool:
            return self.code is not None or ready()

        try:
            wait_until(ready_or_ended, f"{self.name} ready", seconds=seconds)
        except NotReadyError as e:
            raise NotReadyError(f"{e}\n{self.log}:\n{self.tail()}") from None
        if self.code is not None:
            raise NotReadyError(f"{self.name} ended with {self.code}\n{self.log}:\n{self.tail()}")

    def wait(self, *, seconds: float = 300.0) -> int:
        """The exit code of a process that ends by itself.

        Raises: subprocess.TimeoutExpired.
        """
        return self._popen.wait(timeout=seconds)

    def terminate(self) -> None:
        """Sends SIGTERM and does not wait."""
        if self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._popen.terminate()

    def stop(self) -> int:
        """SIGTERM, after the grace SIGKILL; returns the exit code. Fine to call again."""
        self.terminate()
        try:
            return self._popen.wait(timeout=self._grace_seconds)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()
