"""Children that tests start are ready in time or explained, and end for certain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane.processes import NotReadyError, Process, wait_until

ROOT = Path(__file__).parents[2]
PAUSE = "print('up', flush=True); import signal; signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + PAUSE


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _start(folder: Path, code: str, grace_seconds: float = 10.0) -> Process:
    process = Process("child", [sys.executable, "-c", code], folder / "log", grace_seconds=grace_seconds)
    try:
        process.wait_ready(lambda: "up" in process.tail(), seconds=60)
    except BaseException:
        process.stop()
        raise
    return process


def test_a_child_is_stopped_by_sigterm(tmp_path: Path) -> None:
    process = _start(tmp_path, PAUSE)
    assert process.code is None
    assert process.stop() == -signal.SIGTERM
    assert process.stop() == -signal.SIGTERM
    assert not _alive(process.pid)


def test_a_child_that_is_deaf_to_sigterm_is_killed(tmp_path: Path) -> None:
    process = _start(tmp_path, DEAF, grace_seconds=0.2)
    assert process.stop() == -signal.SIGKILL


def test_a_child_that_ends_too_early_is_explained_by_its_log(tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match=r"child ended with 3\n.*log:\nno disk"):
        _start(tmp_path, "print('no disk'); raise SystemExit(3)")


def test_a_child_that_is_not_ready_in_time_is_explained_by_its_log(tmp_path: Path) -> None:
    process = _start(tmp_path, PAUSE)
    with pytest.raises(NotReadyError, match=r"not within 0\.1 s: child ready\n.*log:\nup"):
        process.wait_ready(lambda: False, seconds=0.1)
    process.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_children_die_with_a_test_run_that_is_killed(tmp_path: Path) -> None:
    parent_code = (
        "import pathlib, sys\n"
        "from tests.controlplane.test_processes import PAUSE, _start\n"
        f"print(_start(pathlib.Path({str(tmp_path)!r}), PAUSE).pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent_code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert _alive(child)
        parent.kill()
    wait_until(lambda: not _alive(child), "the child is gone", seconds=60)
