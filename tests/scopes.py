"""Tests side by side: what shares a control plane stays in one process."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[1]


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
