"""Runs a verb for tests, in a folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.commands.api_server import ApiServer

Ran = Callable[..., tuple[int, str, str]]
"""Runs a command line: exit code, output and errors."""


class Runner:
    """Writes files, given as text, as an object or as a list of them, for the verb of a subclass."""

    sorts = False
    """The keys of objects."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys
        self.server = ApiServer()
        """The cluster that is asked, if one is served."""

    def write(self, stem: str, content: Any) -> str:
        """The name of the file."""
        documents = content if isinstance(content, list) else [content]
        text = content if isinstance(content, str) else yaml.safe_dump_all(documents, sort_keys=self.sorts)
        (self.folder / f"{stem}.yaml").write_text(text)
        return f"{stem}.yaml"

    def said(self, code: int) -> tuple[int, str, str]:
        """That exit code, output and errors."""
        said = self.capsys.readouterr()
        return code, said.out, said.err
