"""Constants in a selector, of which the API server finds out when it compiles that no evaluation can use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from webhook.expressions.selectors.declarations import TYPE_NAMES
from webhook.expressions.selectors.faults import SelectorError
from webhook.expressions.selectors.library import LIBRARY, dispatched
from webhook.expressions.selectors.syntax import Constant, Field, Ident, Invocation, ListOf, MapOf, children
from webhook.expressions.selectors.texts import PATTERNS, PatternFault, compiled_pattern
from webhook.expressions.selectors.values import AbortedError, TypeName, literal_key
from webhook.expressions.values import EvaluationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.expressions.selectors.syntax import Node

_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)


def folded(node: Node) -> Constant | None:
    """A literal, the name of a type, or the conversion of one, which the API server evaluates when it compiles.

    Found once for each node. Raises: SelectorError, if that fails.
    """
    if node.folded is UNSET:
        node.folded = _folded(node)
    return node.folded


def _folded(node: Node) -> Constant | None:
    match node:
        case Constant():
            return node
        case Ident(name=name) if node.type.kind == "type" and name.removeprefix(".") in TYPE_NAMES:
            return Constant(value=TypeName(name.removeprefix(".")), type=node.type)
        case Field() if node.names_type:
            return Constant(value=TypeName(node.type.of[0].name), type=node.type)
        case ListOf() | MapOf():
            return _folded_literal(node)
        case Invocation(arguments=[argument]) if node.function in _CONVERSIONS:
            return _converted(node, folded(argument))
        case _:
            return None


def _converted(node: Invocation, argument: Constant | None) -> Constant | None:
    if argument is None or not any(overload in LIBRARY for overload in node.overloads):
        return None
    try:
        return Constant(value=dispatched(node.overloads)(argument.value), type=node.type)
    except EvaluationError as error:
        raise SelectorError.internal(str(error)) from None


def _folded_literal(node: ListOf | MapOf) -> Constant | None:
    parts = [folded(part) for part in children(node)]
    values = [part.value for part in parts if part is not None]
    if len(values) < len(parts) or node.optional:
        return None
    if isinstance(node, ListOf):
        return Constant(value=values, type=node.type)
    try:
        keys = [literal_key(key) for key in values[::2]]
    except AbortedError as error:
        raise SelectorError.internal(str(error)) from None
    return Constant(value=dict(zip(keys, values[1::2], strict=True)), type=node.type)


def is_no_key(node: Node) -> bool:
    """Whether an index is a constant that no list and no map has an entry for."""
    if isinstance(node, Invocation) and node.function == "dyn":
        return is_no_key(node.arguments[0])
    constant = folded(node)
    return constant is not None and not isinstance(constant.value, bool | int | float | str)


def program_of(node: Invocation, operands: Sequence[Node]) -> Any:
    """That of a call's pattern, if the pattern is a constant; else None.

    Raises: SelectorError, for a constant that is no pattern.
    """
    position = PATTERNS.get(node.function)
    pattern = operands[position] if position is not None else None
    if not isinstance(pattern, Constant) or not isinstance(pattern.value, str):
        return None
    program = compiled_pattern(pattern.value)
    if program is PatternFault.ILLEGAL:
        raise SelectorError.internal("error parsing regexp")
    if program is PatternFault.TOO_LARGE:
        raise SelectorError.unsupported(PatternFault.TOO_LARGE.value)
    return program
