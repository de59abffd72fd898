"""Builds the peer and the load generator; Go's own cache decides what has to be compiled again."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO

MODULE = Path(__file__).parent / "peer"
PROGRESS_SECONDS = 5.0

Progress = Callable[[str], None]
"""Takes one line of text for the terminal."""


class BenchmarkError(Exception):
    """The benchmark cannot go on, or its figures would mean nothing; the message says why."""


def cache_folder() -> Path:
    """Outside the work tree: DEVICE_TAINT_WEBHOOK_CACHE, else the user's cache folder."""
    explicit = os.environ.get("DEVICE_TAINT_WEBHOOK_CACHE") or os.environ.get("XDG_CACHE_HOME")
    base = Path(explicit) if explicit else Path.home() / ".cache"
    return base.expanduser().absolute() / "device-taint-webhook" / "benchmarks"


def build(progress: Progress) -> tuple[Path, Path]:
    """The executables (peer, load generator); minutes the first time, about a second after.

    Raises: BenchmarkError without Go, or if it fails.
    """
    go = shutil.which("go")
    if go is None:
        raise BenchmarkError("the peer is written in Go and there is no Go to build it: install Go 1.26 or newer")
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    command = [go, "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", f"{folder}/", "./cmd/..."]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    with subprocess.Popen(command, cwd=MODULE, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        output = _Output(process.stderr)
        started = time.monotonic()
        try:
            while not output.ended.wait(PROGRESS_SECONDS):
                progress(f"building the peer: {time.monotonic() - started:.0f} s, {output.lines} packages so far")
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise BenchmarkError("go build failed:\n" + "\n".join(output.tail))
    return folder / "webhook", folder / "load"


def go_version() -> str:
    """Of the compiler, as it says it: go1.26.8."""
    return subprocess.run(["go", "env", "GOVERSION"], check=True, capture_output=True, text=True).stdout.strip()


def peer_version() -> str:
    """Of controller-runtime, from the peer's go.mod."""
    for line in (MODULE / "go.mod").read_text().splitlines():
        if line.strip().startswith("sigs.k8s.io/controller-runtime "):
            return line.split()[-1]
    raise BenchmarkError("the peer's go.mod does not name controller-runtime")


class _Output:
    """Reads what `go build -v` says, in a thread of its own: a line for each package or download."""

    def __init__(self, stream: IO[str]) -> None:
        self.lines = 0
        self.tail: deque[str] = deque(maxlen=30)
        self.ended = threading.Event()
        threading.Thread(target=self._follow, args=(stream,), daemon=True).start()

    def _follow(self, stream: IO[str]) -> None:
        for line in stream:
            self.lines += 1
            self.tail.append(line.rstrip())
        self.ended.set()
