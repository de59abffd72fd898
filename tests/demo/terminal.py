"""What the demo writes: chapters, commands with their output, and how long things take.

Colours only where they are wanted: on a terminal, and unless NO_COLOR is set.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

WIDEST = 100
_TICK_SECONDS = 1.0
_STATUS_SECONDS = 30.0
"""Between two lines of a status where lines cannot be rewritten, as in the log of a CI job."""
_ANSI = {"bold": "1", "dim": "2", "title": "1;36", "notice": "33", "bad": "31"}
_TEXT, _OUTPUT = "   ", "     "


class Terminal:
    """Writes to a terminal, a pipe or a CI log; lines are wrapped at its width, but never within a word."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stdout
        self._rewrites = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._colours = self._rewrites and not os.environ.get("NO_COLOR")
        # one column less: some terminals wrap a line that is exactly full
        self._width = min(shutil.get_terminal_size((WIDEST, 24)).columns - 1, WIDEST)

    def title(self, text: str) -> None:
        """The first line, or the first of a part."""
        self._write(self._wrapped(text, ""), "title")

    def chapter(self, number: int, text: str) -> None:
        """A numbered heading, after an empty line."""
        self.blank()
        self._write(self._wrapped(f"{number}. {text}", "", "   "), "title")

    def say(self, text: str) -> None:
        self._write(self._wrapped(text, _TEXT))

    def command(self, line: str) -> None:
        """What a user would type."""
        self._write(self._wrapped(f"$ {line}", _TEXT, f"{_TEXT}    "), "bold")

    def output(self, text: str, *, refused: bool = False) -> None:
        """What a program said, each line as it came but for the wrapping: refusals are red, warnings yellow."""
        for line in text.rstrip("\n").split("\n"):
            style = "notice" if re.search(r"\bwarning: ", line, re.IGNORECASE) else "bad" if refused else ""
            self._write(self._wrapped(line.rstrip(), _OUTPUT, f"{_OUTPUT}  "), style)

    def aside(self, text: str) -> None:
        """A sentence of ours about something else than the chapter."""
        self._write(self._wrapped(text, _TEXT), "dim")

    def lines(self, *lines: str) -> None:
        """Lines of ours that must not be wrapped: tables, and what is there to be copied."""
        for line in lines:
            self._write(f"{_TEXT}{line}")

    def entry(self, name: str, text: str, column: int = 21) -> None:
        """A line of a table: the text begins at the column, or below a longer name."""
        indent = _TEXT + " " * column
        if len(name) >= column:
            self._write(f"{_TEXT}{name}")
            name = ""
        self._write(self._wrapped(text, f"{_TEXT}{name:<{column}}", indent))

    def notice(self, text: str) -> None:
        """Something that is not as usual."""
        self._paragraphs(text, "notice")

    def failure(self, text: str) -> None:
        """Why the demo cannot go on, or did not go as told."""
        self.blank()
        self._paragraphs(text, "bad")

    def blank(self) -> None:
        """An empty line."""
        self._write("")

    @contextlib.contextmanager
    def task(self, what: str) -> Iterator[None]:
        """Says what is being done, that it goes on, and when it is done how many seconds that took."""
        self._stream.write(f"{_TEXT}{what} ...")
        self._stream.flush()
        started = time.monotonic()
        done = threading.Event()
        ticking = threading.Thread(target=self._tick, args=[done], daemon=True)
        ticking.start()
        outcome = "stopped"
        try:
            yield
            outcome = f"{time.monotonic() - started:.1f} s"
        finally:
            done.set()
            ticking.join()
            self._write(f" {outcome}")

    @contextlib.contextmanager
    def status(self) -> Iterator[Callable[[str], None]]:
        """Gives what shows how far something is: one line that is rewritten, or one every half minute."""
        last, shown_at = "", -_STATUS_SECONDS

        def show(text: str) -> None:
            nonlocal last, shown_at
            if not text or text == last or (not self._rewrites and time.monotonic() - shown_at < _STATUS_SECONDS):
                return
            last, shown_at = text, time.monotonic()
            if self._rewrites:
                self._stream.write(f"\r\033[K{f'{_TEXT}{text}'[: self._width]}")
                self._stream.flush()
            else:
                self.aside(text)

        try:
            yield show
        finally:
            if self._rewrites and last:
                self.blank()

    def _tick(self, done: threading.Event) -> None:
        while not done.wait(_TICK_SECONDS):
            self._stream.write(".")
            self._stream.flush()

    def _wrapped(self, text: str, indent: str, further: str | None = None) -> str:
        return textwrap.fill(
            text,
            self._width,
            initial_indent=indent,
            subsequent_indent=indent if further is None else further,
            break_long_words=False,
            break_on_hyphens=False,
        )

    def _paragraphs(self, text: str, style: str) -> None:
        for line in text.split("\n"):
            self._write(self._wrapped(line, _TEXT), style)

    def _write(self, text: str, style: str = "") -> None:
        self._stream.write(f"\033[{_ANSI[style]}m{text}\033[0m\n" if style and self._colours else f"{text}\n")
        self._stream.flush()
