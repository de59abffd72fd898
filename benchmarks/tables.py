"""Figures as Markdown tables, and their place in a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

BEGIN, END = "<!-- benchmark:begin -->", "<!-- benchmark:end -->"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, right: Iterable[int] = ()) -> str:
    """A Markdown table that can be read as text; the columns in `right` are aligned right."""
    aligned_right = set(right)
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            c.rjust(w) if i in aligned_right else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * (w - 1) + ":" if i in aligned_right else "-" * w for i, w in enumerate(widths)]
    return "\n".join([line(heads), f"| {' | '.join(rule)} |", *(line(row) for row in rows)])


def write(document: Path, markdown: str) -> None:
    """Replace the text between the markers of a document.

    Raises: ValueError if the document does not have both, once each and in order.
    """
    text = document.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise ValueError(f"{document.name} must have one line {BEGIN} and after it one line {END}")
    document.write_text(f"{before}{BEGIN}\n\n{markdown}\n{END}{after}")
