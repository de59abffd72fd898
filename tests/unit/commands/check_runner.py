"""Runs check for tests, in a folder of their own."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.commands.runner import Runner
from webhook.commands import check
from webhook.commands.shared.main import main_of

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


class CheckRunner(Runner):
    """Writes files given as text or as objects, runs check over them, and gives exit code and output.

    A file called `old` is what `--old` names.
    """

    sorts = True

    def __call__(self, *arguments: str, **files: Any) -> tuple[int, str]:
        words = list(arguments)
        for stem, content in files.items():
            name = self.write(stem, content)
            words += ["--old", name] if stem == "old" else [name]
        return self.said(main_of(check, words))[:2]


def findings(output: str) -> list[tuple[str, str, str | None]]:
    """Severity, field and code of everything in a JSON report."""
    return [(each["severity"], each["field"], each["code"]) for each in json.loads(output)["findings"]]
