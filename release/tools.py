"""Running the tools of a build, without what this machine and this user would add to their output."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from release.source import ReleaseError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from release.source import Source


def run_tool(
    command: Sequence[str], source: Source, folder: Path | None = None, *, without: tuple[str, ...] = ()
) -> str:
    """What the command printed to standard output, run in the tree or in `folder`.

    without: prefixes of variables that the tool must not see, because their values would end up in its output.

    Raises: ReleaseError with its output if it failed or is not there.
    """
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(without)},
        "SOURCE_DATE_EPOCH": str(source.epoch),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
    }
    try:
        done = subprocess.run(
            command, cwd=folder or source.root, env=environment, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ReleaseError(f"{command[0]}: {error.strerror or error}") from error
    if done.returncode != 0:
        raise ReleaseError(
            f"{' '.join(command[:4])} ended with {done.returncode}: {(done.stderr or done.stdout)[-4000:]}"
        )
    return done.stdout
