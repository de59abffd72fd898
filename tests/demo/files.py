"""The stage without a cluster: our command line in a folder with the story's files."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from tests.demo.telling import Outcome, StoryError, copy_story, run_program


class Files:
    """A folder with the story's files, in which no server runs."""

    def __init__(self, folder: Path) -> None:
        self._story = copy_story(folder / "story")

    def run(self, command: str) -> Outcome:
        """Our command line, or a program that every system has."""
        return run_program(command, self._story, dict(os.environ))

    def validations(self) -> int:
        """None: no server is asked."""
        return 0

    def log(self) -> str:
        """Nothing: no server writes one."""
        return ""

    def follow(self, command: str) -> NoReturn:
        """Nothing here goes on by itself. Raises: StoryError."""
        raise StoryError(f"nothing to follow: {command}")


@contextlib.contextmanager
def files() -> Iterator[Files]:
    """The stage, until its folder goes."""
    with tempfile.TemporaryDirectory(prefix="demo-") as folder:
        yield Files(Path(folder))
