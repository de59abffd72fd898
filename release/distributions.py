"""The Python package, as wheel and as source distribution."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from release.source import ReleaseError
from release.tools import run_tool

if TYPE_CHECKING:
    from pathlib import Path

    from release.source import Source


def build_distributions(source: Source, folder: Path) -> Path:
    """Builds both with the locked hatchling, and gives the wheel.

    Raises: ReleaseError.
    """
    run_tool([sys.executable, "-m", "hatchling", "build", "--directory", str(folder)], source)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ReleaseError(f"hatchling built {len(wheels)} wheels, not one")
    return wheels[0]
