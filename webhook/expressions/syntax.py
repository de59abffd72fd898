"""Whether a CEL expression parses. Types, libraries and cost are the API server's to judge."""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from celpy import Environment


@cache
def _environment() -> Environment:
    # Imported on first use: celpy costs 0.3 s and 30 MiB, and only retired selectors and policies need it. An
    # environment raises the recursion limit of the whole process, which is not its to change.
    from celpy import Environment  # noqa: PLC0415

    limit = sys.getrecursionlimit()
    try:
        return Environment()
    finally:
        sys.setrecursionlimit(limit)


@lru_cache(maxsize=256)
def expression_problem(expression: str) -> str | None:
    """What is wrong with the expression's syntax, or None (R-10)."""
    if not expression.strip():
        return "compilation failed: the expression is empty"
    environment = _environment()
    from celpy.celparser import CELParseError  # noqa: PLC0415 -- see above

    try:
        environment.compile(expression)
    except CELParseError as error:
        return f"compilation failed: syntax error at line {error.line}, column {error.column}"
    return None
