"""Types of variables, and what happens while an expression is evaluated: facts are read, every operation has an end.

Values are plain JSON; null means absent.

Whatever the JSON is, the only exception is EvaluationError. Types were settled before (`engine`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from operator import add, ge, gt, le, lt, mul, sub
from typing import Any, Final, TypeAlias

import msgspec
import re2

Scope: TypeAlias = Mapping[str, Any]
Run: TypeAlias = Callable[[Scope], Any]

MAX_LIST: Final = 32
"""Entries of a list; a longer one counts as not known."""
MAX_TEXT: Final = 1024
"""Characters of a text; a longer one counts as not known."""
MAX_INT: Final = 2**63 - 1
MIN_INT: Final = -(2**63)
MATCHED_MAX_BYTES: Final = 256
"""Of a text that `matches` looks at."""
REASON_MAX_CHARACTERS: Final = 1024
_PATTERN_MAX_MEMORY: Final = 8 * 1024  # bytes of RE2's program and caches

_TOO_LARGE: Final = b"pattern too large - compile failed"
"""What RE2 says of a pattern that needs more than its memory."""


class Scalar(StrEnum):
    """A single value. `int` has 64 bits, as in CEL."""

    BOOL = "bool"
    INT = "int"
    STRING = "string"


class ListType(msgspec.Struct, frozen=True):
    """At most MAX_LIST entries; `element` is None for the empty list literal, which fits every list."""

    element: Scalar | None

    def __str__(self) -> str:
        return f"list({self.element or 'anything'})"


class MapType(msgspec.Struct, frozen=True):
    """A map from arbitrary strings (labels, annotations) to values of one type."""

    value: Scalar

    def __str__(self) -> str:
        return f"map(string, {self.value})"


class ObjectType(msgspec.Struct, frozen=True):
    """An object with named fields; `has()` tells whether one is set to more than its empty value."""

    fields: Mapping[str, VariableType]

    def __str__(self) -> str:
        return "object"


VariableType: TypeAlias = Scalar | ListType | MapType | ObjectType


def joined(one: VariableType, other: VariableType) -> VariableType | None:
    """The type of a place where either may stand, or None."""
    if one == other:
        return one
    if isinstance(one, ListType) and isinstance(other, ListType) and (one.element is None or other.element is None):
        return ListType(one.element or other.element)
    return None


class EvaluationError(Exception):
    """The expression has no value for these facts; `str()` says why, in REASON_MAX_CHARACTERS at most."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason if len(reason) <= REASON_MAX_CHARACTERS else f"{reason[:REASON_MAX_CHARACTERS]}...")


class PatternError(Exception):
    """RE2 does not take the pattern; `str()` says why. `too_large`: with more memory it might."""

    def __init__(self, reason: str, *, too_large: bool = False) -> None:
        super().__init__(reason)
        self.too_large = too_large


def reader(wanted: VariableType, what: str) -> Callable[[Any], Any]:
    """Reads a fact of that type from JSON. What is null, too large, or of another type is not known."""
    match wanted:
        case Scalar.STRING:
            return lambda value: value if isinstance(value, str) and len(value) <= MAX_TEXT else _unread(value, what)
        case Scalar.INT:
            return lambda value: value if _is_int(value) and MIN_INT <= value <= MAX_INT else _unread(value, what)
        case Scalar.BOOL:
            return lambda value: value if isinstance(value, bool) else _unread(value, what)
        case ListType(element=element):
            read = reader(element or Scalar.STRING, f"an entry of {what}")
            return lambda value: (
                list(map(read, value)) if _is_list(value) and len(value) <= MAX_LIST else _unread(value, what)
            )
        case _:
            return lambda value: value if isinstance(value, Mapping) else _unread(value, what)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _unread(value: Any, what: str) -> Any:
    if value is None:
        raise EvaluationError(f"{what} is not set")
    if _is_list(value):
        _bound_list(value, what)
    if isinstance(value, str):
        _bound_text(value, what)
    raise EvaluationError(f"{what} is of another type")


def _bound_list(value: Any, what: str) -> Any:
    if len(value) > MAX_LIST:
        raise EvaluationError(f"{what} has more than {MAX_LIST} entries")
    return value


def _bound_text(value: str, what: str) -> str:
    if len(value) > MAX_TEXT:
        raise EvaluationError(f"{what} has more than {MAX_TEXT} characters")
    return value


def _bound_int(value: int, what: str) -> int:
    if not MIN_INT <= value <= MAX_INT:
        raise EvaluationError(f"{what} has more than 64 bits")
    return value


def keys(of: Run, what: str) -> Run:
    """The keys of a map, for macros."""
    read = reader(Scalar.STRING, f"a key of {what}")
    return lambda scope: list(map(read, _bound_list(of(scope), what)))


def present(of: Run, field: str, kind: VariableType, what: str, *, entry: bool) -> Run:
    """`has()`: of an object, a field that is empty or false is not there, as in proto3. Numbers and entries may be."""
    counts = entry or kind == Scalar.INT

    def run(scope: Scope) -> bool:
        value = of(scope).get(field)
        if value is None and isinstance(kind, ListType):  # lists are never left out unless they are not known
            _unread(value, what)
        return value is not None and (counts or bool(value))

    return run


def entry(of: Run, index: Run, what: str) -> Run:
    """One entry of a list."""

    def run(scope: Scope) -> Any:
        entries, number = of(scope), index(scope)
        if not 0 <= number < len(entries):
            raise EvaluationError(f"{what} is out of range")
        return entries[number]

    return run


def chain(operands: Sequence[Run], *, stop: bool) -> Run:
    """`&&` (stops at false) or `||` (stops at true)."""
    return lambda scope: _settled(((operand, scope) for operand in operands), stop=stop)


def quantifier(of: Run, name: str, body: Run, *, stop: bool) -> Run:
    """`all` (stops at false) or `exists` (stops at true)."""
    return lambda scope: _settled(((body, inner) for _, inner in _scopes(of, name, scope)), stop=stop)


def exists_one(of: Run, name: str, body: Run) -> Run:
    """Whether exactly one entry has it."""
    return lambda scope: sum(bool(body(inner)) for _, inner in _scopes(of, name, scope)) == 1


def filtered(of: Run, name: str, body: Run) -> Run:
    """The entries that have it."""
    return lambda scope: [item for item, inner in _scopes(of, name, scope) if body(inner)]


def mapped(of: Run, name: str, body: Run) -> Run:
    """What becomes of each entry."""
    return lambda scope: [body(inner) for _, inner in _scopes(of, name, scope)]


def _scopes(of: Run, name: str, scope: Scope) -> Iterator[tuple[Any, Scope]]:
    inner = dict(scope)
    for item in of(scope):
        inner[name] = item
        yield item, inner


def _settled(claims: Iterable[tuple[Run, Scope]], *, stop: bool) -> bool:
    """An error counts only if no other claim settles the matter, as in CEL."""
    error = None
    for claim, scope in claims:
        try:
            if claim(scope) == stop:
                return stop
        except EvaluationError as unknown:
            error = error or unknown
    if error is not None:
        raise error
    return not stop


COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {"<": lt, "<=": le, ">": gt, ">=": ge}


def quotient(left: int, right: int) -> int:
    """Cut towards zero, as in CEL."""
    if right == 0:
        raise EvaluationError("division by zero")
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


def remainder(left: int, right: int) -> int:
    """With the sign of `left`, as in CEL."""
    return left - right * quotient(left, right)


ARITHMETIC: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": quotient,
    "%": remainder,
}


def arithmetic(operator: str, left: Run, right: Run, what: str) -> Run:
    """Of two whole numbers."""
    operation = ARITHMETIC[operator]
    return lambda scope: _bound_int(operation(left(scope), right(scope)), what)


def negated(operand: Run, what: str) -> Run:
    """`-` of a whole number."""
    return lambda scope: _bound_int(-operand(scope), what)


def joined_texts(left: Run, right: Run, what: str) -> Run:
    """`+` of two texts."""
    return lambda scope: _bound_text(left(scope) + right(scope), what)


def joined_lists(left: Run, right: Run, what: str) -> Run:
    """`+` of two lists."""
    return lambda scope: _bound_list([*left(scope), *right(scope)], what)


def compiled(pattern: str, memory_bytes: int) -> Any:
    """RE2's program for a pattern; with its caches, it takes up to that much memory. Raises: PatternError."""
    options = re2.Options()
    options.max_mem = memory_bytes
    options.log_errors = False
    options.never_capture = True  # or a text takes its length times the size of the pattern
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        if reason == _TOO_LARGE:
            raise PatternError("pattern too large; use a smaller one, or several", too_large=True) from None
        raise PatternError(reason.decode(errors="replace")) from None
    except ValueError:
        raise PatternError("no text") from None
    finally:
        re2.purge()  # or it keeps 128 programs of any size


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether RE2 finds the pattern anywhere in a text, in time proportional to it. Raises PatternError."""
    search = compiled(pattern, _PATTERN_MAX_MEMORY).search

    def found(text: str) -> bool:
        # Lone surrogates cannot be encoded; to CEL they are no text either.
        encoded = text.encode(errors="replace")
        if len(encoded) > MATCHED_MAX_BYTES:
            raise EvaluationError(f"matches() takes at most {MATCHED_MAX_BYTES} bytes")
        return bool(search(encoded.decode()))

    return found
