"""docs/semantics.md, the code and the tests speak of the same facts."""

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
    """id -> where it is implemented."""
    page = (ROOT / "docs" / "semantics.md").read_text()
    return dict(re.findall(r"^\| ([TLRSDMNPVEK]-[0-9]+) \| .* \| (.+) \|$", page, re.MULTILINE))


def ids_of(folder: str, *patterns: str) -> set[str]:
    paths = [path for pattern in patterns for path in (ROOT / folder).rglob(pattern) if path != Path(__file__)]
    return set().union(*(ids_in(path.read_text()) for path in paths))


def test_every_fact_that_the_code_names_is_listed() -> None:
    assert ids_of("webhook", "*.py") - set(listed()) == set()


def test_every_listed_fact_is_named_by_a_test_or_a_case() -> None:
    assert set(listed()) - ids_of("tests", "test_*.py", "*.yaml") == set()


def test_places_that_the_list_names_exist() -> None:
    places = {place for where in listed().values() for place in re.findall(r"`([^`]+)`", where)}
    assert {place for place in places if not (ROOT / "webhook" / place).exists()} == set()
