"""Tables of text, for people: columns as kubectl has them. What stands in them is not known here."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from webhook.files.render import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_NO_END: Final = 1_000_000
"""Columns, where nobody's screen has an edge: lines of files and pipes are not folded."""
_GAP: Final = 3


def table(
    rows: Iterable[Sequence[str]],
    *,
    headers: Sequence[str] = (),
    right: Collection[int] = (),
    width: int | None = None,
    color: bool = False,
) -> list[str]:
    """The lines of a table without borders, each without blanks at its end.

    `right` are columns that hold numbers. With a `width` the last column is folded so that lines fit; None folds none.
    """
    # Here and not above: it takes longer than reading most files.
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    cells = [[Text(visible(cell)) for cell in row] for row in rows]
    if not cells:
        return []
    made = Table(box=None, show_header=bool(headers), pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    last = len(cells[0]) - 1
    for number in range(last + 1):
        made.add_column(
            headers[number] if headers else "",
            justify="right" if number in right else "left",
            no_wrap=number != last,
            overflow="fold",
        )
    for row in cells:
        made.add_row(*row)
    console = Console(
        file=io.StringIO(),
        width=width or _NO_END,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as capture:
        console.print(made)
    return [line.rstrip() for line in capture.get().splitlines()]
