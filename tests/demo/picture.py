"""Screens of the demo as an SVG, for the README:  python -m tests.demo.picture FILE

Plays the demo against a real control plane and draws the chapters in which the commands below are typed, exactly
as a terminal shows them. Nothing is drawn if a step fails. Exit codes as for the demo; 2 without a control plane.
"""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from tests.controlplane import assets
from tests.controlplane.gobuild import AssetsUnavailableError
from tests.controlplane.processes import NotReadyError
from tests.demo.__main__ import play
from tests.demo.telling import StoryError
from tests.demo.terminal import Terminal

SHOWN: Final = ("$ kubectl apply -f all-gpus.yaml", "$ kubectl dtaint drain server.example.com/server-1 --interval 10")
"""Of several chapters with the same command, the first is drawn."""
_CHAPTER: Final = re.compile(r"\d+\. ")
_COLOUR: Final = re.compile(r"\033\[([\d;]+)m")
_CLASSES: Final = {"1": "bold", "2": "dim", "1;36": "title", "33": "notice", "31": "bad"}
_WIDTH: Final = 8.4
_HEIGHT: Final = 19
_MARGIN: Final = 16
_STYLE: Final = (
    "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#e6edf3;"
    "white-space:pre}.bold{font-weight:bold}.dim{fill:#9da7b3}.title{fill:#56d4dd;font-weight:bold}"
    ".notice{fill:#e3b341}.bad{fill:#ff7b72}"
)

# With xml:space, viewers without CSS keep the columns of tables too.
_OPENING: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
    'xml:space="preserve">'
)


class Recording(io.StringIO):
    """A colour terminal that remembers what it showed, and shows it on standard output as well."""

    def isatty(self) -> bool:
        """Colours are wanted."""
        return True

    def write(self, text: str) -> int:
        sys.stdout.write(text)
        return super().write(text)


class Line(NamedTuple):
    """A line as the terminal shows it; `style` is a class of the picture, or nothing."""

    text: str
    style: str = ""


def read(text: str) -> list[Line]:
    """What a terminal shows for a text with colours; a colour goes on over the lines until it is reset."""
    style, lines = "", []
    for raw in text.splitlines():
        codes = _COLOUR.findall(raw)
        opened = next((_CLASSES[code] for code in codes if code in _CLASSES), style)
        lines.append(Line(_COLOUR.sub("", raw), opened))
        style = "" if codes and codes[-1] == "0" else opened
    return lines


def screens(lines: Sequence[Line], commands: Sequence[str]) -> list[Line]:
    """The first chapter with each command. Raises: LookupError if no chapter has it."""
    starts = [number for number, line in enumerate(lines) if line.style == "title" and _CHAPTER.match(line.text)]
    chapters = [lines[start:end] for start, end in pairwise([*starts, len(lines)])]
    shown: list[Line] = []
    for command in commands:
        found = next((each for each in chapters if any(command in line.text for line in each)), None)
        if found is None:
            raise LookupError(f"no chapter of the demo has the command {command}")
        while found and not found[-1].text.strip():
            found = found[:-1]
        shown += [Line(""), *found] if shown else found
    return shown


def drawn(lines: Iterable[Line]) -> str:
    """The lines as an SVG. Each is as wide as its number of characters, whatever font the reader has."""
    rows: list[str] = []
    columns = 0
    number = 0
    for number, line in enumerate(lines, 1):
        columns = max(columns, len(line.text))
        visible = line.text.lstrip()
        if not visible:
            continue
        x = _MARGIN + _WIDTH * (len(line.text) - len(visible))
        y = _MARGIN + _HEIGHT * number - 5
        style = f' class="{line.style}"' if line.style else ""
        length = _WIDTH * len(visible)
        rows.append(f'<text x="{x:.1f}" y="{y}" textLength="{length:.1f}"{style}>{escape(visible)}</text>')
    width, height = round(2 * _MARGIN + _WIDTH * columns), 2 * _MARGIN + _HEIGHT * number
    return "\n".join(
        [
            _OPENING.format(width=width, height=height),
            "<title>Screens of the demo</title>",
            f"<style>{_STYLE}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
            *rows,
            "</svg>\n",
        ]
    )


def main(file: str) -> int:
    """Plays, then draws; see the module."""
    try:
        assets.find(kwok=True)
    except AssetsUnavailableError as error:
        sys.stderr.write(f"picture: {error}\n")
        return 2
    os.environ.update(COLUMNS="101", TERM="xterm")
    os.environ.pop("NO_COLOR", None)
    recording = Recording()
    try:
        code = play(Terminal(recording), whole=False, keep=False)
    except (StoryError, NotReadyError) as error:
        sys.stderr.write(f"picture: {error}\n")
        return 1
    if code == 0:
        path = Path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(drawn(screens(read(recording.getvalue()), SHOWN)))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
