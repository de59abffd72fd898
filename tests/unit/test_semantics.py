"""docs/development/semantics.md, the code and the tests speak of the same facts."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_ID = re.compile(r"\b([TLRSDMNPVEK])-([0-9]{1,2})(?: to \1-([0-9]{1,2}))?\b")


def ids_in(text: str) -> set[str]:
    """Every id that a text names; "T-1 to T-3" names three."""
    found: set[str] = set()
    for letter, first, last in _ID.findall(text):
        found |= {f"{letter}-{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def listed() -> dict[str, str]:
    """id -> fact. What no server ships, N and P, is on the page about the source documents."""
    found: dict[str, str] = {}
    for page, letters in (("semantics.md", "TLRSDMVEK"), ("seeds.md", "NP")):
        text = (ROOT / "docs" / "development" / page).read_text()
        rows = re.findall(rf"^\|([{letters}]-[0-9]+)\|([^|]+)\|", text, re.MULTILINE)
        found |= dict(rows)
        assert rows
        assert len(dict(rows)) == len(rows)
    return found


def ids_of(folder: str, *patterns: str) -> set[str]:
    paths = [path for pattern in patterns for path in (ROOT / folder).rglob(pattern) if path != Path(__file__)]
    return set().union(*(ids_in(path.read_text()) for path in paths))


def test_every_fact_that_the_code_names_is_listed() -> None:
    assert ids_of("webhook", "*.py") - set(listed()) == set()


def test_every_fact_is_named_by_a_test_or_a_case() -> None:
    """Rows of N and P that the code does not name have their tests beside them."""
    facts = {id_ for id_ in listed() if id_[0] not in "NP"} | ids_of("webhook", "*.py")
    assert facts - ids_of("tests", "test_*.py", "*.yaml") == set()
