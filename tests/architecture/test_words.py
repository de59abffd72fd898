"""Plain English: words that read as translated stay out of the product's docstrings and messages."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "webhook"
AVOIDED = re.compile(r"\b(anew|nobody|so\s+many|somebody|told|whoever)\b", re.IGNORECASE)
# Rooms that still have such words. The set only shrinks: a room without them must leave it.
TO_DO = {"commands"}
# Texts in which a word is right all the same, by module. Each has its reason.
EXCEPTIONS: dict[str, set[str]] = {
    # The context's fields are described together with the caches that fill them.
    "webhook/admission/context.py": {"nobody"},
}


def avoided_words() -> dict[str, dict[str, set[str]]]:
    """The avoided words in string literals, docstrings included: by room, then by module. Identifiers do not count."""
    found: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        texts = [
            node.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        module = str(path.relative_to(ROOT))
        words = {word.lower() for text in texts for word in AVOIDED.findall(text)} - EXCEPTIONS.get(module, set())
        if words:
            found[room][module] = words
    return found


def test_docstrings_and_messages_use_plain_words() -> None:
    assert {room: modules for room, modules in avoided_words().items() if room not in TO_DO} == {}


def test_no_clean_room_is_still_to_do() -> None:
    assert sorted(TO_DO - avoided_words().keys()) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Nobody has to be told.", ["Nobody", "told"]),
        ("so many requests, counted anew", ["so many", "anew"]),
        ("an untold number of renewed leases", []),
        ("told_at", []),
    ],
)
def test_words_count_only_as_whole_words(text: str, found: list[str]) -> None:
    assert AVOIDED.findall(text) == found
