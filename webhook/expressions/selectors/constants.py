"""Constants in a selector: what they are when it is compiled, which ones no evaluation can use, and sets of them.

Source: cel-go interpreter/decorators.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import UNSET

from webhook.expressions.selectors.faults import SelectorError
from webhook.expressions.selectors.kinds import TYPE_NAMES
from webhook.expressions.selectors.library import LIBRARY, dispatched
from webhook.expressions.selectors.syntax import Constant, Field, Ident, Invocation, ListOf, MapOf, Node, children
from webhook.expressions.selectors.texts import PATTERNS, PatternFault, compiled_pattern
from webhook.expressions.selectors.values import (
    AbortedError,
    Charge,
    TypeName,
    check_hashable,
    is_equal,
    is_number,
    literal_key,
)
from webhook.expressions.values import EvaluationError

_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
_HASHED: Final = (bool, int, float, str)


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
    """The program of a call's constant pattern; else None. Raises SelectorError, for a constant that is no pattern."""
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


# --- `x in [...]` where all entries are literals (maybeOptimizeSetMembership) --------------------


def constant_entries(node: Invocation) -> tuple[Any, ...] | None:
    """The entries, if they are all literals that the API server puts into a set; None if it does not."""
    entries = node.arguments[1]
    if not isinstance(entries, ListOf) or entries.optional:
        return None
    values = [entry.value for entry in entries.entries if isinstance(entry, Constant)]
    if len(values) < len(entries.entries) or not all(isinstance(value, _HASHED) for value in values):
        return None
    return tuple(values)


def is_member(entries: Sequence[Any], charge: Charge, value: Any) -> bool:
    """Whether the value is among them. Raises AbortedError, for versions and bytes, as the API server does."""
    charge(len(entries))
    check_hashable(value)
    if is_number(value):
        return any(is_number(entry) and _has_number(value, entry) for entry in entries)
    return any(is_equal(value, entry, charge) for entry in entries)


def _has_number(value: Any, entry: Any) -> bool:
    """Whether the set of an entry has the value: integers add their nearest double, doubles only an equal integer."""
    return value == float(entry) if isinstance(value, float) else value == entry
