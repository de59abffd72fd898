"""Writing to standard output, which can be closed, full, or read by something that has seen enough."""

from __future__ import annotations

import os
import sys
from typing import Final

from webhook.config.command_line import program

_FAILED: Final = 2


def write(content: str, code: int) -> int:
    """Writes everything at once. Returns the exit code: `code`, or 2 if it could not be written."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(content.encode())  # whatever the locale says: files and CI expect UTF-8
    except OSError as error:
        return _not_written(error, code)
    return flushed(code)


def flushed(code: int) -> int:
    """The exit code once everything is out. Left to the interpreter, a full disk would end in 120 and an exception."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return _not_written(error, code)
    return code


def _not_written(error: OSError, code: int) -> int:
    # the interpreter would try once more when it ends, and complain
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return code  # a reader that has seen enough is no fault
    sys.stderr.write(f"{program()}: standard output: {error.strerror or error}\n")
    return _FAILED


def without_output() -> bool:
    """Whether standard output is closed (`>&-`); a standard error that is closed is opened to nowhere."""
    if sys.stderr is None:  # Python's types say that this cannot be
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 -- for as long as we run
    return sys.stdout is None
