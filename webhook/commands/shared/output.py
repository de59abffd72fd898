"""Writing to standard output, which may be closed, full, or read by a program that stops early, such as `head`."""

from __future__ import annotations

import os
import re
import sys
from typing import Final

from webhook.config.command_line import program

_FAILED: Final = 2
_STEERING: Final = re.compile(
    r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
    r"|\x1b(?!\[(?:0|1|32|36|1;31|1;33)m)"
)
"""All that moves a cursor, ends a line or turns the direction of text, but not our colors."""


def steady(text: str) -> str:
    """The text with everything escaped that steers a terminal, its lines and our colors apart."""
    return _STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def write(content: str, code: int) -> int:
    """Writes everything at once. Returns the exit code: `code`, or 2 if it could not be written."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(steady(content).encode())  # whatever the locale says: files and CI expect UTF-8
    except OSError as error:
        return _not_written(error, code)
    return flushed(code)


def write_more(content: str, *, screen: bool = False) -> int | None:
    """Writes a part of what is still to come, which may steer the terminal if it is a `screen`.

    Returns None if more may follow, else the exit code to end with.
    """
    try:
        sys.stdout.buffer.write((content if screen else steady(content)).encode())
        sys.stdout.flush()
    except OSError as error:
        return _not_written(error, 0)
    return None


def flushed(code: int) -> int:
    """The exit code after everything is flushed. Without this, a full disk would end in code 120 and a traceback."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return _not_written(error, code)
    return code


def _not_written(error: OSError, code: int) -> int:
    # the interpreter would try again on exit, and report an error
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return code  # a reader that stops early is no error
    sys.stderr.write(f"{program()}: standard output: {error.strerror or error}\n")
    return _FAILED


def without_output() -> bool:
    """Whether standard output is closed (`>&-`); a standard error that is closed is opened to nowhere."""
    if sys.stderr is None:  # Python's types say that this cannot be
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 -- for as long as we run
    return sys.stdout is None
