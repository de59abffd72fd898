"""Tests side by side: what shares a control plane stays in one process, and what waits goes beside what computes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
_FIRST: Final = ("apiserver", "controlplane", "image", "release")
"""Folders that begin first: a scope may take minutes there, and control planes are used nowhere else."""
_THEN: Final = ("properties", "https", "golden")
_WAITING: Final = "tests/apiserver/eviction/"
"""Scopes that wait for clocks most of their time, and use half a core."""


class ByControlPlane(LoadScopeScheduling):
    """A module at a time, or a folder where its conftest.py has a fixture of package scope."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid.partition("::")[0])


@cache
def scope_of(file: str) -> str:
    """Of a test module, by its path below the root."""
    folder = (ROOT / file).parent
    conftest = folder / "conftest.py"
    shared = conftest.is_file() and 'scope="package"' in conftest.read_text()
    return str(folder.relative_to(ROOT)) if shared else file


def begun_in_order(scopes: Iterable[str]) -> list[str]:
    """The scopes that take minutes first, with those that wait spread evenly among them, so that no core is idle.

    scopes: each once; scopes of one sort stay in this order.
    """
    at = {
        scope: (rank, (number + 0.5) / len(group))
        for (rank, _), group in _groups(scopes).items()
        for number, scope in enumerate(group)
    }
    return sorted(at, key=at.__getitem__)


def may_use_planes(scope: str) -> bool:
    """Whether its tests may use the control planes of the session: those that begin first do."""
    return _rank(scope) == 0


def _groups(scopes: Iterable[str]) -> dict[tuple[int, bool], list[str]]:
    groups: dict[tuple[int, bool], list[str]] = {}
    for scope in scopes:
        groups.setdefault((_rank(scope), scope.startswith(_WAITING)), []).append(scope)
    return groups


def _rank(scope: str) -> int:
    folder = Path(scope).parts[1]
    return 0 if folder in _FIRST else 1 + _THEN.index(folder) if folder in _THEN else 1 + len(_THEN)
