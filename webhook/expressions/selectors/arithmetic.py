"""Operators and conversions in selectors. Source: cel-go common/types, common/stdlib."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from webhook.expressions.selectors.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    TypeName,
    UInt,
    alike,
    is_number,
    no_overload,
    type_name,
)
from webhook.expressions.values import EvaluationError, quotient, remainder

# Up to 20 digits, as many as 64 bits take, after any zeros.
_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]{1,20})")
_UNSIGNED: Final = re.compile(r"0*([0-9]{1,20})")
# Possessive, as what they take can be read in one way only: otherwise a long text takes time by its square.
_NUMBER: Final = r"[0-9](?:_?[0-9])*+"
_FLOAT: Final = re.compile(
    rf"[+-]?(?:(?:{_NUMBER}\.?(?:{_NUMBER})?|\.{_NUMBER})(?:e[+-]?{_NUMBER})?|inf(?:inity)?)|nan",
    re.IGNORECASE | re.ASCII,
)
_HEX: Final = r"[0-9a-f](?:_?[0-9a-f])*+"
_HEX_FLOAT: Final = re.compile(rf"[+-]?0x(?:_?{_HEX}\.?(?:{_HEX})?|\.{_HEX})p[+-]?{_NUMBER}", re.IGNORECASE | re.ASCII)
_TRUTHS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_COMPARED: Final = (bool, str, bytes)
_FIXED_EXPONENTS: Final = range(-4, 6)
"""Of doubles that are written without an exponent."""


def compare(one: Any, other: Any) -> int:
    """-1, 0 or 1. Raises EvaluationError, if the values have no order."""
    same = type(one) is type(other) and isinstance(one, _COMPARED)
    numbers = is_number(one) and is_number(other)
    if same or numbers:
        if numbers:
            one, other = alike(one, other)
        if one != one or other != other:  # noqa: PLR0124 -- NaN
            raise EvaluationError("NaN values cannot be ordered")
        return int(one > other) - int(one < other)
    raise no_overload(one, other)


def _ordered(*wanted: int) -> Callable[[Any, Any], bool]:
    return lambda one, other: compare(one, other) in wanted


def bounded(value: int) -> int:
    """A result with a sign. Raises EvaluationError, if it has more than 64 bits."""
    if MIN_INT <= value <= MAX_INT:
        return value
    raise EvaluationError("integer overflow")


def _unsigned(value: int) -> UInt:
    if 0 <= value <= MAX_UINT:
        return UInt(value)
    raise EvaluationError("unsigned integer overflow")


def add(one: Any, other: Any) -> Any:
    """`+`. Raises EvaluationError."""
    if type(one) is not type(other):
        raise no_overload(one, other)
    match one:
        case bool():
            raise no_overload(one, other)
        case UInt():
            return _unsigned(int(one) + int(other))
        case int():
            return bounded(one + other)
        case float() | str() | bytes():
            return one + other
        case _:
            raise no_overload(one, other)


def _remainder(one: int, other: int) -> int:
    if other == -1:
        bounded(-one)  # the quotient must fit as well
    return remainder(one, other)


def _divided(one: float, other: float) -> float:
    if other:
        return one / other
    if one != one or one == 0:  # noqa: PLR0124 -- NaN
        return math.nan
    return math.copysign(math.inf, one) * math.copysign(1.0, other)


def _to_int(value: Any) -> int:
    if isinstance(value, float):
        if not -(2.0**63) < value < 2.0**63:
            raise EvaluationError("integer overflow")
        return int(value)
    if isinstance(value, str):
        digits = _INTEGER.fullmatch(value)
        if digits is None:
            raise EvaluationError(f"cannot convert {value!r} to int")
        return bounded(int(digits[1] + digits[2]))
    return bounded(int(value))


def _to_uint(value: Any) -> UInt:
    if isinstance(value, float):
        if not 0 <= value < 2.0**64:
            raise EvaluationError("unsigned integer overflow")
        return UInt(int(value))
    if isinstance(value, str):
        digits = _UNSIGNED.fullmatch(value)
        if digits is None:
            raise EvaluationError(f"cannot convert {value!r} to uint")
        return _unsigned(int(digits[1]))
    return _unsigned(int(value))


def _to_double(value: Any) -> float:
    if isinstance(value, str):
        if _HEX_FLOAT.fullmatch(value):
            return _from_hex(value)
        number = float(value) if _FLOAT.fullmatch(value) else None
        if number is None or (math.isinf(number) and "inf" not in value.lower()):
            raise EvaluationError(f"cannot convert {value!r} to double")
        return number
    return float(value)


def _from_hex(text: str) -> float:
    try:
        return float.fromhex(text.replace("_", ""))
    except OverflowError:
        raise EvaluationError(f"cannot convert {text!r} to double") from None


def _to_bool(text: str) -> bool:
    if text not in _TRUTHS:
        raise EvaluationError(f"cannot convert {text!r} to bool")
    return _TRUTHS[text]


def _double_text(value: float) -> str:
    """As Go's `%g`, with as few digits as tell the value from others."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    digits, _, exponent = f"{value:.17e}".partition("e")
    for precision in range(17):
        shown = f"{value:.{precision}e}"
        if float(shown) == value:
            digits, _, exponent = shown.partition("e")
            break
    if value == 0 or int(exponent) in _FIXED_EXPONENTS:
        places = max(len(digits.lstrip("-").replace(".", "")) - 1 - int(exponent), 0)
        return f"{value:.{places}f}"
    return f"{digits}e{int(exponent):+03d}"


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def _same(value: Any) -> Any:
    return value


_ORDERS: Final = {
    "less": _ordered(-1),
    "less_equals": _ordered(-1, 0),
    "greater": _ordered(1),
    "greater_equals": _ordered(0, 1),
}
_PAIRS: Final = (
    *("bool", "string", "bytes", "int64", "uint64", "double"),
    *("int64_double", "int64_uint64", "uint64_double", "uint64_int64", "double_int64", "double_uint64"),
)

ARITHMETIC: Final[Mapping[str, Callable[..., Any]]] = {
    **{f"{order}_{pair}": run for order, run in _ORDERS.items() for pair in _PAIRS},
    **{f"add_{kind}": add for kind in ("bytes", "double", "int64", "string", "uint64")},
    "subtract_int64": lambda one, other: bounded(one - other),
    "subtract_uint64": lambda one, other: _unsigned(int(one) - int(other)),
    "subtract_double": lambda one, other: one - other,
    "multiply_int64": lambda one, other: bounded(one * other),
    "multiply_uint64": lambda one, other: _unsigned(int(one) * int(other)),
    "multiply_double": lambda one, other: one * other,
    "divide_int64": lambda one, other: bounded(quotient(one, other)),
    "divide_uint64": lambda one, other: UInt(quotient(int(one), int(other))),
    "divide_double": _divided,
    "modulo_int64": _remainder,
    "modulo_uint64": lambda one, other: UInt(remainder(int(one), int(other))),
    "negate_int64": lambda one: bounded(-one),
    "negate_double": lambda one: -one,
    "logical_not": lambda one: not one,
    "size_string": len,
    "size_bytes": len,
    "size_list": len,
    "size_map": len,
    "string_size": len,
    "bytes_size": len,
    "list_size": len,
    "map_size": len,
    "type": lambda value: TypeName(type_name(value)),
    "to_dyn": _same,
    "bool_to_bool": _same,
    "string_to_bool": _to_bool,
    "bytes_to_bytes": _same,
    "string_to_bytes": lambda text: text.encode(errors="replace"),
    "double_to_double": _same,
    "int64_to_double": _to_double,
    "string_to_double": _to_double,
    "uint64_to_double": _to_double,
    "int64_to_int64": _same,
    "double_to_int64": _to_int,
    "string_to_int64": _to_int,
    "uint64_to_int64": _to_int,
    "uint64_to_uint64": _same,
    "double_to_uint64": _to_uint,
    "int64_to_uint64": _to_uint,
    "string_to_uint64": _to_uint,
    "string_to_string": _same,
    "bool_to_string": lambda value: "true" if value else "false",
    "bytes_to_string": _decoded,
    "double_to_string": _double_text,
    "int64_to_string": str,
    "uint64_to_string": lambda value: str(int(value)),
}
"""By overload."""
