"""Plain English: words that read as translated stay out of the product's docstrings and messages."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from webhook.commands.verbs import VERBS, command_line_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "webhook"
AVOIDED = re.compile(r"\b(anew|nobody|so\s+many|somebody|told|whoever)\b", re.IGNORECASE)


def avoided_words(path: Path) -> set[str]:
    """The avoided words in a module's string literals, docstrings included. Identifiers do not count."""
    literals = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
    return {word.lower() for text in literals if isinstance(text, str) for word in AVOIDED.findall(text)}


def test_docstrings_and_messages_use_plain_words() -> None:
    found = {str(path.relative_to(ROOT)): avoided_words(path) for path in sorted(PACKAGE.rglob("*.py"))}
    assert {module: words for module, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "path",
    [path for pattern in ("webhook/**/*.json", "webhook/**/*.md", "README.md") for path in sorted(ROOT.glob(pattern))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_texts_that_users_read_use_plain_words(path: Path) -> None:
    assert AVOIDED.findall(path.read_text()) == []


GONE = re.compile(
    r"(?:`|webhook[ -]|dtaint )bundle\b|\bbundle\.md|support (?:archive|bundle)|--redact"
    r"|notif(?:y|ication)|cloud-?event",
    re.IGNORECASE,
)
"""Names of features that were taken out: people would look for them."""


def test_no_page_manifest_or_help_names_a_feature_that_is_gone() -> None:
    written = ("docs/*", "docs/development/*.md", "manifests/**/*")
    pages = [ROOT / "README.md", ROOT / "SECURITY.md", *(page for pattern in written for page in ROOT.glob(pattern))]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in pages if path.is_file()}
    texts |= {verb: f"`{verb}` {VERBS[verb]} {command_line_of(verb).format_help()}" for verb in VERBS}
    found = {place: sorted(set(GONE.findall(text))) for place, text in texts.items() if GONE.search(text)}
    assert found == {}


COMMENTED = sorted([*ROOT.glob("manifests/**/*.yaml"), *ROOT.glob("certs/**/*.yaml"), ROOT / "Dockerfile"])


@pytest.mark.parametrize("path", COMMENTED, ids=lambda path: str(path.relative_to(ROOT)))
def test_comments_in_files_that_users_apply_use_plain_words(path: Path) -> None:
    comments = re.findall(r"(?:^|\s)#.*$", path.read_text(), re.MULTILINE)
    assert [text for text in comments if AVOIDED.search(text)] == []


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
