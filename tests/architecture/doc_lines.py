"""Wraps the lines of pages that are too long; `make docs` runs it. Tables, headings and code stay as they are."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LENGTH: Final = 120
ROOT: Final = Path(__file__).parents[2]
MADE: Final = frozenset({"cli.md", "policy-reference.md"})
"""Pages that are made from code."""
_ITEM: Final = re.compile(r"(\s*)((?:[-*+]|\d+\.) )?")
_BEGINS: Final = re.compile(r"\s*($|[|#>]|```|<!--|(?:[-*+]|\d+\.) )")
"""What begins something else than another line of the same paragraph."""


def pages() -> list[Path]:
    """The pages that are written by hand, with that of the warning codes."""
    written = [page for page in ROOT.glob("docs/**/*.md") if page.name not in MADE]
    return sorted([*written, ROOT / "webhook" / "commands" / "explain" / "codes.md"])


def wrapped(text: str) -> str:
    """The text, with each paragraph wrapped from its first line on that is too long."""
    return "\n".join(_wrapped(text.split("\n")))


def _wrapped(lines: list[str]) -> Iterator[str]:
    code, number = False, 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.lstrip().startswith("```"):
            code = not code
        if code or len(line) <= LENGTH or re.match(r"\s*[|#>]", line):
            yield line
            continue
        part = [line.strip()]
        while number < len(lines) and not _BEGINS.match(lines[number]):
            part.append(lines[number].strip())
            number += 1
        item = _ITEM.match(line)
        assert item is not None
        yield from textwrap.wrap(
            " ".join(part),
            LENGTH,
            initial_indent=item[1],
            subsequent_indent=item[1] + " " * len(item[2] or ""),
            break_long_words=False,
            break_on_hyphens=False,
        )


if __name__ == "__main__":
    for found in pages():
        found.write_text(wrapped(found.read_text()))
