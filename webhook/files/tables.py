"""Tables as text: columns as kubectl prints them, without borders."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from webhook.files.render import visible

_GAP: Final = "   "
_WORD: Final = re.compile(r"(?:\A\s*)?\S+\s*")


def table(
    rows: Iterable[Sequence[str]],
    *,
    headers: Sequence[str] = (),
    right: Collection[int] = (),
    width: int | None = None,
    color: bool = False,
) -> list[str]:
    """The lines of a table, without blanks at their ends; none for no rows. All rows have the same number of cells.

    `right` holds the indexes of right-aligned columns. `width` is that of the terminal, in columns: where a line would
    be longer, the cells of the last column are folded. Without one, or where the other columns fill the terminal,
    nothing is folded. `color` prints the headers in bold.
    """
    cells = [[visible(cell) for cell in row] for row in rows]
    if not cells:
        return []
    if headers:
        cells.insert(0, list(headers))
    widths = [max(map(_columns, column)) for column in zip(*cells, strict=True)]
    room = 0 if width is None else width - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
    if 0 < room < widths[-1]:
        widths[-1] = room
    lines = []
    for number, (*others, last) in enumerate(cells):
        for part, piece in enumerate(_folded(last, widths[-1])):
            line = [*(others if part == 0 else [""] * len(others)), piece]
            padded = [_padded(cell, widths[at], right=at in right) for at, cell in enumerate(line)]
            if color and headers and number == 0:
                lines.append(_bold(_GAP).join(map(_bold, padded)))
            else:
                lines.append(_GAP.join(padded).rstrip())
    return lines


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m"


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes: wide East Asian characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(1 + (unicodedata.east_asian_width(each) in "WF") for each in text if not unicodedata.combining(each))


def _padded(text: str, width: int, *, right: bool) -> str:
    blanks = " " * (width - _columns(text))
    return blanks + text if right else text + blanks


def _folded(text: str, width: int) -> Iterator[str]:
    """A text in lines of at most `width` columns, broken between words; a longer word begins on a line of its own."""
    line = ""
    for word in _WORD.findall(text):
        if _columns(line + word.rstrip()) <= width:
            line += word
            continue
        if line:
            yield line.rstrip()
        line = ""
        for each in word.rstrip():
            if _columns(line + each) > width:
                yield line
                line = ""
            line += each
        line += " " * (len(word) - len(word.rstrip()))
    yield line.rstrip()
