"""Namespaces about which the registered webhook is never asked: no policy changes anything there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import make_claim, make_meta
from tests.unit.commands.diff.test_command import LONG, OPEN, STRICT, DiffRunner


def test_claims_of_exempt_namespaces_are_not_compared(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare = DiffRunner(alone, capsys)
    names = ("ml", "kube-system", "infra")
    dump = [make_claim([LONG], meta=make_meta(f"in-{name}", namespace=name)) for name in names]
    code, output, _ = compare(OPEN, STRICT, "-o", "json", "--exempt-namespaces=infra,kube-system", dump=dump)
    report = json.loads(output)
    assert (code, report["judged"], [each["namespace"] for each in report["objects"]]) == (1, 1, ["ml"])
