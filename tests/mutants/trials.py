"""Running the tests of a room against a mutant, in a copy of the tree: the tree itself is only read."""

from __future__ import annotations

import compileall
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from enum import StrEnum
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.mutants.places import Mutant

PROPERTIES: Final = {
    "api": ("versions", "formats", "hostile"),
    "expressions": ("expressions",),
    "inventory": ("inventory", "inventory_scan", "guard"),
    "policy": ("policy", "policy_documents", "policy_reviews", "shadows"),
    "validation": ("formats", "versions", "hostile"),
    "admission": ("guard", "confirmation", "defaulting", "policy_reviews", "shadows", "hostile"),
}
MORE: Final = {
    "api": ("tests/unit/validation", "tests/unit/test_cases.py", "tests/unit/files"),
    "expressions": ("tests/unit/policy/test_document.py", "tests/unit/policy/test_checks.py"),
    "inventory": ("tests/unit/admission/test_guard.py", "tests/unit/admission/test_recent_impact.py"),
    "policy": ("tests/unit/admission", "tests/unit/commands/test/test_command.py"),
    "validation": ("tests/unit/test_cases.py", "tests/unit/admission/test_chain.py"),
    "admission": ("tests/unit/test_cases.py", "tests/unit/server", "tests/unit/commands/audit/test_command.py"),
}
"""Tests of other rooms in which most of a room's behaviour is seen."""
_FOLDERS: Final = ("webhook", "tests", "docs", "manifests", "monitoring", "pyproject.toml", "README.md", "CHANGELOG.md")
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", ".*cache", ".hypothesis")
# A mutant that allocates for ever must not take the machine with it: 4 GiB of addresses.
# And a test of a law must neither fail for being slow nor try other examples the next time.
_PROFILE: Final = "mutants"
_BOOT: Final = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
import pytest
from hypothesis import settings
settings.register_profile("{_PROFILE}", max_examples=20, deadline=None, derandomize=True, database=None)
settings.load_profile("{_PROFILE}")
sys.exit(pytest.main(sys.argv[1:]))
"""
_SPARE_SECONDS: Final = 30.0


class Outcome(StrEnum):
    """What became of a mutant. One that hangs is found out as well."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"


class NotGreenError(Exception):
    """The tests fail, or cannot be run, without any mutant."""


class Copy:
    """A copy of the tree, for one worker."""

    def __init__(self, root: Path, at: Path) -> None:
        self.at = at
        at.mkdir(parents=True)
        for name in _FOLDERS:
            source = root / name
            if source.is_dir():
                shutil.copytree(source, at / name, ignore=_LEFT_OUT)
            elif source.exists():
                shutil.copy(source, at / name)
        # By its hash and not by its time: a mutant is written within the second in which the last one was.
        mode = PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(at / "webhook", quiet=2, invalidation_mode=mode)
        self._seconds = 0.0

    def measure(self, rooms: Iterable[str]) -> None:
        """Runs the tests of some rooms as they are, and remembers how long they take. Raises NotGreenError."""
        code = "import sys, webhook; sys.stdout.write(webhook.__file__)"
        command = [sys.executable, "-c", code]
        where = subprocess.run(command, cwd=self.at, env=self._env(), capture_output=True, check=True).stdout.decode()
        if not Path(where).is_relative_to(self.at):
            raise NotGreenError(f"tests would run against {where}, which is not the copy")
        tests = tuple(dict.fromkeys(test for room in rooms for step in self._steps(room) for test in step))
        before = time.monotonic()
        status, output = self._pytest(tests, None)
        if status != 0:
            raise NotGreenError(f"tests fail without a mutant:\n{output}")
        self._seconds = time.monotonic() - before

    def twin(self, root: Path, at: Path) -> Copy:
        """Another copy, which knows how long tests take."""
        copy = Copy(root, at)
        copy._seconds = self._seconds
        return copy

    def outcome_of(self, mutant: Mutant) -> Outcome:
        """What the room's tests make of it."""
        path = self.at / mutant.path
        source = path.read_text()
        named = self._named(mutant)
        try:
            path.write_text(mutant.source)
            for step in (named, *self._steps(mutant.room)) if named else self._steps(mutant.room):
                try:
                    # Each step is a part of what was measured.
                    status, _ = self._pytest(step, self._seconds + _SPARE_SECONDS)
                except subprocess.TimeoutExpired:
                    return Outcome.TIMED_OUT
                if status != 0:
                    return Outcome.KILLED
        finally:
            path.write_text(source)
        return Outcome.SURVIVED

    def _named(self, mutant: Mutant) -> tuple[str, ...]:
        """The test modules that have the name of the mutant's module, which most often know."""
        module = Path(mutant.path).stem
        return tuple(
            str(path.relative_to(self.at))
            for path in sorted((self.at / "tests" / "unit" / mutant.room).glob("test_*.py"))
            if _alike(path.stem.removeprefix("test_"), module)
        )

    @staticmethod
    def _steps(room: str) -> tuple[tuple[str, ...], ...]:
        laws = tuple(f"tests/properties/test_{name}.py" for name in PROPERTIES[room])
        return (f"tests/unit/{room}",), MORE[room], laws

    def _env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.at), "HYPOTHESIS_PROFILE": _PROFILE}

    def _pytest(self, tests: tuple[str, ...], most_seconds: float | None) -> tuple[int, str]:
        """Exit status and output. Raises TimeoutExpired."""
        command = [sys.executable, "-c", _BOOT, "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
        command += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of hypothesis, which is there already
        process = subprocess.Popen(
            [*command, "-m", "not apiserver and not slow", *tests],
            cwd=self.at,
            env=self._env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=most_seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what a test has started
            process.wait()
        return process.returncode, output.decode(errors="replace")


def _alike(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}_") or other.startswith(f"{one}_")
