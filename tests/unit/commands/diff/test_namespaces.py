"""`diff -n`: a namespace that has nothing may be misspelt, and is no proof that two policies agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tables import table
from tests.unit.commands.diff.test_command import OPEN, STRICT, WORLD, DiffRunner


@table(
    "namespace, code, says",
    {
        "one with other claims": ("ml", 1, ""),
        "one that the dump does not have": (
            "mll",
            2,
            "dump.yaml: error: contains no claim or template in namespace mll that the webhook is asked about",
        ),
    },
)
def test_namespace_without_claims_in_a_dump_is_an_error(
    namespace: str, code: int, says: str, alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert any(each["kind"] == "DeviceTaintRule" for each in WORLD), "which -n leaves in"
    found: Any = DiffRunner(alone, capsys)(OPEN, STRICT, "-n", namespace)
    assert (found[0], says in "".join(found[1:])) == (code, True)
