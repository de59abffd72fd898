"""Runs check for tests, in a folder of their own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from webhook.commands import check

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

RULE = """\
apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata:
  name: gpu-7
spec:
  deviceSelector:
    driver: gpu.example.com
  taint:
    key: gpu.example.com/unhealthy
    effect: NoSchedule
"""


class CheckRunner:
    """Writes files given as text or as objects, runs check over them, and gives exit code and output.

    A file called `old` is what `--old` names.
    """

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *arguments: str, **files: Any) -> tuple[int, str]:
        words = list(arguments)
        for stem, content in files.items():
            name = f"{stem}.yaml"
            text = content if isinstance(content, str) else yaml.safe_dump_all(_documents(content))
            (self.folder / name).write_text(text)
            words += ["--old", name] if stem == "old" else [name]
        code = check.run(words)
        return code, self._capsys.readouterr().out


def _documents(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content]


def findings(output: str) -> list[tuple[str, str, str | None]]:
    """Severity, field and code of everything in a JSON report."""
    return [(each["severity"], each["field"], each["code"]) for each in json.loads(output)["findings"]]
