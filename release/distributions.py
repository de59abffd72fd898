"""The Python package, as wheel and as source distribution."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from release.source import ReleaseError
from release.tools import run_tool

if TYPE_CHECKING:
    from release.source import Source

_PARTS: Final = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
_LINKS: Final = "webhook/api/names.py"


def build_distributions(source: Source, repository: str, folder: Path) -> Path:
    """Builds both with the locked hatchling, from a copy whose links lead to `repository`, and gives the wheel.

    Raises: ReleaseError.
    """
    with tempfile.TemporaryDirectory() as made:
        tree = Path(made)
        for name in _PARTS:
            shutil.copy(source.root / name, tree)
        shutil.copytree(source.root / "webhook", tree / "webhook", ignore=shutil.ignore_patterns("__pycache__"))
        (tree / _LINKS).write_text(source.linked((source.root / _LINKS).read_text(encoding="utf-8"), repository))
        run_tool([sys.executable, "-m", "hatchling", "build", "--directory", str(folder)], source, tree)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise ReleaseError(f"hatchling built {len(wheels)} wheels, not one")
    return wheels[0]
