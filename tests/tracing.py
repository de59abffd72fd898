"""Where coverage is measured, and where it would only cost time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import coverage

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE: Final = "COVERAGE_PROCESS_START"
"""Child processes measure their coverage if it is set."""
COUNTED: Final = VARIABLE in os.environ
"""Whether coverage is measured to be reported, and not to find out which tests reach a line."""
_FOLDER: Final = "apiserver"
_REPEATED: Final = frozenset({"golden", "properties"})
_UNITS: Final = "unit"
_COMPARISON: Final = "test_generated"


def is_traced(path: Path, *, slow: bool, untraced: bool = False) -> bool:
    """Whether a test of a module (relative to this folder) counts for coverage; `slow` and `untraced` are its marks.

    The properties, the golden files, unit tests with these marks, the folders of `apiserver` and the two large
    comparisons with an API server run the same code thousands of times. Under a tracer they need half as much CPU time
    again, the properties several times as much, and find nothing that the unit tests and the modules next to those
    folders do not reach.
    """
    if path.parts[0] == _UNITS and (slow or untraced):
        return False
    if path.parts[0] != _FOLDER:
        return path.parts[0] not in _REPEATED
    return len(path.parts) == 2 and not path.name.startswith(_COMPARISON)


class Tracing:
    """Switches coverage off and on, of this process and of those that it starts from then on."""

    def __init__(self) -> None:
        self._stopped: coverage.Coverage | None = None
        self._value: str | None = None

    def switch(self, *, on: bool) -> None:
        """No effect where coverage is not measured, or if nothing changes."""
        if on and self._stopped is not None:
            if self._value is not None:
                os.environ[VARIABLE] = self._value
            self._stopped.start()
            self._stopped = None
        elif not on and self._stopped is None:
            # One that is stopped is not the current one any more.
            self._stopped = coverage.Coverage.current()
            if self._stopped is not None:
                self._value = os.environ.pop(VARIABLE, None)
                self._stopped.stop()

    def save(self) -> None:
        """Writes what was measured: on a busy machine the 10 s that xdist gives a worker to end may be too short."""
        measured = self._stopped or coverage.Coverage.current()
        if COUNTED and measured is not None:
            measured.save()
