"""Files in, reports out: manifests are read with the position of each value, and findings printed at those positions.

`read` yields the manifests of files, folders and standard input, by way of `yaml_documents` and `json_documents`;
`spots` maps field paths to lines and columns. `manifests` reads a policy, and what a dump says about a cluster. A run's
results are rows of `report`, which prints them as text, JSON, YAML and JUnit; `ci_formats` has the formats of tools.
Start with `read` and `report`. Nothing here decides about an object. What is below is needed without all that.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

STDIN: Final = "-"
STDIN_NAME: Final = "<stdin>"
"""What standard input is called in every report."""


TEXT_MAX_BYTES: Final = 1024 * 1024
"""Twice the limit of a policy: of a longer text this much shows that it is too long."""
_NO_WAITING: Final = getattr(os, "O_NONBLOCK", 0)


def text_of(path: Path) -> str:
    """Return the text of a regular file, which is UTF-8; its beginning if it is longer than TEXT_MAX_BYTES.

    Symbolic links are followed. Raises OSError, also for what is no regular file (a pipe may never end, nor say that
    it changed), and ValueError for what is not UTF-8.
    """
    # Without the flag, opening a pipe waits until another process writes to it. Regular files do not look at it.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NO_WAITING)) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        data = stream.read(TEXT_MAX_BYTES)
    return data.decode(errors="replace" if len(data) == TEXT_MAX_BYTES else "strict")
