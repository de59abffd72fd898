"""Whether a CEL expression parses. Types, libraries and cost are the API server's to judge."""

from __future__ import annotations

from functools import lru_cache

from webhook.expressions.parser import BadExpression, parse


@lru_cache(maxsize=256)
def expression_problem(expression: str) -> str | None:
    """What is wrong with the expression's syntax, or None (R-10)."""
    try:
        parse(expression)
    except BadExpression as error:
        return error.detail
    return None
