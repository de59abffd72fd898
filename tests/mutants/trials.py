"""Running the tests of a room against a mutant, in a copy of the tree: the tree itself is only read."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import time
from enum import StrEnum
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import TYPE_CHECKING, Final

from tests.mutants.forks import Forks
from tests.mutants.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.mutants.places import Mutant

PROPERTIES: Final = {
    "api": ("versions", "formats", "hostile", "wire_structs", "slices"),
    "expressions": ("expressions", "kinds"),
    "inventory": (*("inventory", "inventory_scan", "guard", "hardware", "patch_guard", "released", "window"),),
    "policy": (
        *("policy", "policy_documents", "policy_index", "policy_reviews", "shadows", "explain", "taint_rules"),
        "windows",
    ),
    "validation": ("formats", "versions", "hostile", "slices"),
    "admission": (
        *("guard", "confirmation", "defaulting", "policy_reviews", "shadows", "hostile", "explain", "window"),
        *("taint_rules", "stepwise", "softening", "known_specs", "patch_guard", "ceiling_groups"),
    ),
    "eviction": ("eviction", "windows", "units", "released", "ceiling_groups"),
    "patches": (
        *("patch_index", "patches", "reactions", "slice_ledger", "originals", "hidden_taints", "patch_guard", "kinds"),
    ),
}
MORE: Final = {
    "api": (
        *("tests/unit/validation", "tests/unit/test_cases.py", "tests/unit/files"),
        "tests/unit/admission/test_not_before.py",
    ),
    "expressions": ("tests/unit/policy/test_document.py", "tests/unit/policy/test_checks.py"),
    "inventory": (
        *("tests/unit/admission/test_guard.py", "tests/unit/admission/test_recent_impact.py"),
        *("tests/unit/admission/test_rule_delta.py", "tests/unit/admission/test_asking_for_more.py"),
        *("tests/unit/admission/test_not_before.py", "tests/unit/eviction/test_not_before.py"),
    ),
    "policy": (
        *("tests/unit/admission", "tests/unit/commands/test/test_command.py"),
        *("tests/unit/commands/explain/test_command.py", "tests/unit/commands/test_export_vap.py"),
    ),
    "validation": ("tests/unit/test_cases.py", "tests/unit/admission/test_chain.py"),
    "admission": (
        *("tests/unit/test_cases.py", "tests/unit/server", "tests/unit/commands/audit/test_command.py"),
        "tests/unit/commands/explain/test_command.py",
    ),
    "eviction": ("tests/unit/telemetry/test_eviction.py", "tests/unit/cluster/test_in_tree_probe.py"),
    "patches": (
        "tests/unit/daemons/test_patch_controller.py",
        "tests/unit/cluster/test_patch_writer.py",
        "tests/unit/policy/test_reactions.py",
    ),
}
"""Tests of other rooms in which most of a room's behaviour is seen."""
_FOLDERS: Final = ("webhook", "tests", "docs", "manifests", "monitoring", "pyproject.toml", "README.md", "CHANGELOG.md")
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", ".*cache", ".hypothesis")
# A mutant that allocates for ever must not take the machine with it: 4 GiB of addresses.
# And a test of a law must neither fail for being slow nor try other examples the next time, and that it fails is enough
# to know, without the smallest example.
_PROFILE: Final = "mutants"
_SETTINGS: Final = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from hypothesis import HealthCheck, Phase, settings
settings.register_profile(
    "{_PROFILE}", max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow],
    derandomize=True, database=None, phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("{_PROFILE}")
"""
_MEASURE: Final = f"{_SETTINGS}from tests.mutants import reach\nsys.exit(reach.main(sys.argv[1:]))\n"
_OPTIONS: Final = (
    *("-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-m", "not apiserver and not slow"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # of hypothesis, which is there already
)
_FIRST: Final = 30
"""Tests that are run before the others that reach a place: most mutants are found out by these."""
_SLOWER: Final = 3.0
"""How much longer than while they were measured tests may take, before a mutant counts as one that hangs."""
_SPARE_SECONDS: Final = 120.0
"""On a busy machine the same tests take several times the processor time, so that is no sign of a mutant that hangs."""


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
        self._reach = Reach({}, {})
        self._laws_seconds = 0.0
        self._forks = Forks(_SETTINGS, at, self._env())

    def measure(self, rooms: Iterable[str]) -> None:
        """Runs the tests of some rooms as they are, and remembers what they reach. Raises NotGreenError."""
        code = "import sys, webhook; sys.stdout.write(webhook.__file__)"
        command = [sys.executable, "-c", code]
        where = subprocess.run(command, cwd=self.at, env=self._env(), capture_output=True, check=True).stdout.decode()
        if not Path(where).is_relative_to(self.at):
            raise NotGreenError(f"tests would run against {where}, which is not the copy")
        into = self.at / "reach.json"
        rooms = tuple(rooms)
        measured = dict.fromkeys(test for room in rooms for test in unit_tests_of(room))
        subprocess.run(
            [sys.executable, "-c", _MEASURE, str(into), *_OPTIONS, *measured],
            cwd=self.at,
            env=self._env(),
            capture_output=True,
            check=False,  # what fails is in the file
        )
        if not into.exists():
            raise NotGreenError("tests cannot be measured")
        self._reach = Reach.read(into)
        laws = tuple(dict.fromkeys(law for room in rooms for law in laws_of(room)))
        before = time.monotonic()
        status, output = self._pytest(laws, None)
        if status != 0:
            raise NotGreenError(f"tests fail without a mutant:\n{output}")
        self._laws_seconds = time.monotonic() - before
        # A test that fails while it is measured may pass otherwise.
        if self._reach.failed:
            status, output = self._pytest(self._reach.failed, None)
            if status != 0:
                raise NotGreenError(f"tests fail without a mutant:\n{output}")

    def twin(self, root: Path, at: Path) -> Copy:
        """Another copy, which knows what tests reach."""
        copy = Copy(root, at)
        copy._reach, copy._laws_seconds = self._reach, self._laws_seconds
        return copy

    def outcome_of(self, mutant: Mutant, *, thorough: bool = True) -> Outcome:
        """What the room's tests make of it; if not thorough, only the laws and the unit tests that reach the place."""
        path = self.at / mutant.path
        source = path.read_text()
        steps = list(self._steps(mutant, source, thorough=thorough))
        try:
            path.write_text(mutant.source)
            for tests, seconds in steps:
                try:
                    status, _ = self._pytest(tests, seconds * _SLOWER + _SPARE_SECONDS)
                except subprocess.TimeoutExpired:
                    return Outcome.TIMED_OUT
                if status != 0:
                    return Outcome.KILLED
        finally:
            path.write_text(source)
        return Outcome.SURVIVED

    def _steps(self, mutant: Mutant, source: str, *, thorough: bool) -> Iterator[tuple[tuple[str, ...], float]]:
        """Tests that are run together, and the seconds they took, one step after the other.

        Laws come after the unit tests that reach the mutant, then all unit tests. What a fixture or a cache has kept
        is seen under the first test alone that asked for it, so that the others may notice a mutant without being
        seen to reach it.
        """
        of_room = unit_tests_of(mutant.room)
        reaching = [
            test
            for test in self._reach.tests_of(mutant.path, source, mutant.line)
            if test.id.startswith(tuple(each if each.endswith(".py") else f"{each}/" for each in of_room))
        ]
        for some in (reaching[:_FIRST], reaching[_FIRST:]):
            if some:
                yield tuple(test.id for test in some), sum(test.seconds for test in some)
        yield laws_of(mutant.room), self._laws_seconds
        if thorough or not reaching:
            yield of_room, self._reach.seconds

    def _env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(self.at), "HYPOTHESIS_PROFILE": _PROFILE}

    def _pytest(self, tests: Iterable[str], most_seconds: float | None) -> tuple[int, str]:
        """Exit status and output. Raises TimeoutExpired."""
        return self._forks.run((*_OPTIONS, "-x", *tests), most_seconds)

    def close(self) -> None:
        """Ends its processes."""
        self._forks.close()


def unit_tests_of(room: str) -> tuple[str, ...]:
    """The unit tests that are to notice a mutant of the room."""
    return f"tests/unit/{room}", *MORE[room]


def laws_of(room: str) -> tuple[str, ...]:
    """The properties that are to notice it."""
    return tuple(f"tests/properties/test_{name}.py" for name in PROPERTIES[room])
