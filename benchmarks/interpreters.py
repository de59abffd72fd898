"""The Pythons that our server is measured on: the image's, and this machine's where that is another one."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from release.bases import CannotBuildError, NotHereError
from tests.chroot import DEVICES, TEMPORARY, Mount, chrooted
from tests.image import python313

ROOT: Final = Path(__file__).parents[1]
_TREE: Final = "/mnt"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python with every locked package; the code is that of the work tree."""

    version: str
    """Major and minor, such as 3.13."""
    root: Path | None = None
    """Where its root file system lies; None for the Python that runs the benchmark."""

    def module(self, folder: Path, *arguments: str) -> list[str]:
        """What runs a module with arguments; it may read and write in `folder`, and finds it at the same path.

        What runs has the process id that was started, and its one process.
        """
        if self.root is None:
            return [sys.executable, "-m", *arguments]
        # Compiled once for all servers, as in the image.
        environment = {"PYTHONPATH": _TREE, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
        return chrooted(
            self.root,
            python313.PYTHON,
            "-m",
            *arguments,
            environment=environment,
            mounts=[Mount(ROOT, _TREE), DEVICES, TEMPORARY, Mount(folder, str(folder))],
            folder=_TREE,
            read_only=False,
        )


HERE: Final = Interpreter(".".join(platform.python_version_tuple()[:2]))
"""The Python that runs the benchmark."""


def of_image() -> tuple[Interpreter, str]:
    """The image's Python, and an empty text; or this machine's, and why the other one cannot be had."""
    if HERE.version == python313.VERSION:
        return HERE, ""
    try:
        return Interpreter(python313.VERSION, python313.packages()), ""
    except NotHereError as error:
        return HERE, f"Python {python313.VERSION}, the image's, cannot be measured here: {error}"
    except CannotBuildError as error:
        return HERE, f"Python {python313.VERSION}, the image's, could not be prepared: {error}"
