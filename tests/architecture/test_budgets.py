"""Each room has a budget of modules and lines, which only falls, and the root a list of names."""

from __future__ import annotations

import subprocess
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
FILE: Final = Path(__file__).with_name("budgets.toml")
BUDGETS: Final = tomllib.loads(FILE.read_text())
SLACK: Final = 30
"""Lines that a room may be below its budget before the budget has to follow."""


@cache
def _lines() -> tuple[Counter[str], Counter[str]]:
    """Modules and lines of each room; an inner room that is named counts by itself."""
    modules, lines = Counter[str](), Counter[str]()
    for file in (ROOT / "webhook").rglob("*.py"):
        folders = file.relative_to(ROOT / "webhook").parts[:-1]
        inner = "/".join(folders[:2])
        room = inner if inner in BUDGETS["rooms"] else folders[0] if folders else "root"
        modules[room] += 1
        lines[room] += len(file.read_text().splitlines())
    return modules, lines


def test_every_room_has_a_budget_and_no_other() -> None:
    assert set(BUDGETS["rooms"]) == set(_lines()[0])


@pytest.mark.parametrize("room", BUDGETS["rooms"])
def test_room_keeps_to_its_budget_and_the_budget_follows_it_down(room: str) -> None:
    """A commit that raises a number says in its message what leaves instead."""
    modules, lines = (each[room] for each in _lines())
    most = BUDGETS["rooms"][room]
    assert modules <= most["modules"], "a module more: name in budgets.toml, and in the commit, what leaves instead"
    assert lines <= most["lines"], "more lines: name in budgets.toml, and in the commit, what leaves instead"
    assert most["modules"] == modules, f"lower the number of modules in {FILE.name}: nothing may take that room"
    assert most["lines"] <= lines + SLACK, f"lower the number of lines in {FILE.name}: nothing may take that room"


def test_root_holds_what_is_listed_and_nothing_else() -> None:
    tracked = subprocess.run(
        ["git", "ls-files"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = {line.partition("/")[0] for line in tracked.stdout.splitlines()}
    assert sorted(found) == sorted(BUDGETS["root"]["names"])
