"""`status --watch`: shows a report again and again, on a screen without flicker, elsewhere one after the other."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any, Final

from webhook.api.names import PROGRAM
from webhook.commands.shared.main import ClusterUnreachable
from webhook.commands.shared.output import write_more
from webhook.files.structured import STRUCTURED, json_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.commands.status.report import StatusReport

_CLEAR: Final = "\x1b[2J"
_HOME: Final = "\x1b[H"
_TO_END_OF_LINE: Final = "\x1b[K"
_TO_END_OF_SCREEN: Final = "\x1b[J"
_CUT_LINES, _WRAP_LINES = "\x1b[?7l", "\x1b[?7h"
"""What is wider than the screen would otherwise take more lines than were counted."""


def watch(
    report: StatusReport,
    look: Callable[[], StatusReport],
    show: Callable[[StatusReport], str],
    *,
    seconds: float,
    screen: bool,
) -> int:
    """Shows `report`, then what `look` returns, every so often, until standard output is closed.

    While the cluster does not answer, the last report stays, with a note. Returns the exit code; ends by an interrupt.
    """
    written = write_more(_CLEAR if screen else "", screen=screen)
    while written is None:
        content = show(report)
        written = write_more(framed(content, shutil.get_terminal_size().lines) if screen else content, screen=screen)
        if written is None:
            time.sleep(seconds)
            report = _next(report, look)
    return written


def _next(report: StatusReport, look: Callable[[], StatusReport]) -> StatusReport:
    try:
        return look()
    except ClusterUnreachable as error:
        note = f"this is the last answer, because the cluster cannot be read now: {error}"
        report.notes = [*[each for each in report.notes if not each.startswith("this is the last answer")], note]
        return report


def framed(content: str, height: int) -> str:
    """Text in place of what the screen has shown before: each line is overwritten, so nothing is blank in between."""
    lines = content.splitlines()
    if len(lines) >= height > 1:
        rest = len(lines) - height + 2
        lines = [*lines[: height - 2], f"and {rest} more lines; {PROGRAM} status without --watch shows all"]
    body = "".join(f"{each}{_TO_END_OF_LINE}\n" for each in lines)
    return f"{_HOME}{_CUT_LINES}{body}{_TO_END_OF_SCREEN}{_WRAP_LINES}"


def document(output: str, values: dict[str, Any]) -> str:
    """One of several documents: a line of JSON, or YAML after `---`."""
    if output == "json":
        return json_text(values, indent=None)
    return f"---\n{STRUCTURED[output](values)}"
