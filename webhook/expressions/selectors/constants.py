"""Constants in a selector, of which the API server finds out when it compiles that no evaluation can use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.expressions.selectors.faults import SelectorError
from webhook.expressions.selectors.library import LIBRARY, dispatched
from webhook.expressions.selectors.syntax import Constant, Invocation, ListOf, MapOf
from webhook.expressions.selectors.texts import PatternFault, compiled_pattern
from webhook.expressions.values import EvaluationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.expressions.selectors.syntax import Node

_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
_PATTERNS: Final = {"matches": 1, "find": 1, "findAll": 1}
"""Functions that take a pattern, and which operand it is."""


def folded(node: Node) -> Constant | None:
    """A literal, or the conversion of one, which the API server evaluates when it compiles.

    Raises: SelectorError, if that fails.
    """
    if isinstance(node, Constant):
        return node
    if not isinstance(node, Invocation) or node.function not in _CONVERSIONS or len(node.arguments) != 1:
        return None
    argument = folded(node.arguments[0])
    if argument is None or not any(overload in LIBRARY for overload in node.overloads):
        return None
    try:
        return Constant(value=dispatched(node.overloads)(argument.value), type=node.type)
    except EvaluationError as error:
        raise SelectorError.internal(str(error)) from None


def is_no_key(node: Node) -> bool:
    """Whether an index is a constant that no list and no map has an entry for."""
    if isinstance(node, Invocation) and node.function == "dyn":
        return is_no_key(node.arguments[0])
    constant = folded(node)
    if constant is not None:
        return not isinstance(constant.value, bool | int | float | str)
    parts: list[Node] = []
    match node:
        case ListOf():
            parts = node.entries
        case MapOf():
            parts = [part for entry in node.entries for part in entry]
        case _:
            return False
    return not node.optional and all(folded(part) is not None for part in parts)


def check_pattern(node: Invocation, operands: Sequence[Node]) -> None:
    """Refuse a call whose pattern is a constant that is none.

    Raises: SelectorError.
    """
    position = _PATTERNS.get(node.function)
    pattern = operands[position] if position is not None else None
    if not isinstance(pattern, Constant) or not isinstance(pattern.value, str):
        return
    match compiled_pattern(pattern.value):
        case PatternFault.ILLEGAL:
            raise SelectorError.internal("error parsing regexp")
        case PatternFault.TOO_LARGE:
            raise SelectorError.unsupported(PatternFault.TOO_LARGE.value)
        case _:
            return
