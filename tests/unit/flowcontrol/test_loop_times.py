"""Loops look, wait and retry when they always did: `loop_times.txt` has it as data."""

from __future__ import annotations

import pytest

from tests.unit.flowcontrol.loop_times import FILE, SCHEDULES, SUBJECTS, Subject, told

RECORDED = FILE.read_text().rstrip("\n").split("\n\n")
NAMES = [(kind, name) for kind in SUBJECTS for name in SCHEDULES]
CASES = [pytest.param(*which, text, id=text.partition("\n")[0]) for which, text in zip(NAMES, RECORDED, strict=True)]


@pytest.mark.parametrize(("kind", "name", "recorded"), CASES)
def test_loop_does_what_it_did_when_it_did_it(kind: type[Subject], name: str, recorded: str) -> None:
    """`python -m tests.unit.flowcontrol.loop_times` rewrites the file."""
    assert told(kind, name).splitlines() == recorded.splitlines()
