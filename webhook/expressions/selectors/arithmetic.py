"""Operators and conversions in selectors. Source: cel-go common/types, common/stdlib."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from webhook.expressions.selectors import call_costs as costs
from webhook.expressions.selectors.call_costs import Estimate, Function, Operands, Range, counted
from webhook.expressions.selectors.faults import Charge
from webhook.expressions.selectors.values import MAX_UINT, TypeName, UInt, alike, is_number, no_overload, type_name
from webhook.expressions.values import MAX_INT, MIN_INT, EvaluationError, quotient, remainder

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


def _joined(charge: Charge, one: list[Any], other: list[Any]) -> list[Any]:
    charge(len(one) + len(other))
    return one + other


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


# --- costs --------------------------------------------------------------------------------------


def _encode_cost(given: Operands) -> Estimate:
    size = given[0].size
    return Estimate(size.scaled(costs.TRAVERSAL), Range(size.least, size.most * 4 % 2**64))


def _decode_cost(given: Operands) -> Estimate:
    size = given[0].size
    return Estimate(size.scaled(costs.TRAVERSAL), Range(size.least // 4, size.most))


def _add_cost(given: Operands) -> Estimate:
    size = given[0].size.plus(given[1].size)
    return Estimate(size.scaled(costs.TRAVERSAL), size)


def _extend_cost(given: Operands) -> Estimate:
    return Estimate(costs.ONE, given[0].size.plus(given[1].size))


_ORDERS: Final = {
    "_<_ less": _ordered(-1),
    "_<=_ less_equals": _ordered(-1, 0),
    "_>_ greater": _ordered(1),
    "_>=_ greater_equals": _ordered(0, 1),
}
_PAIRS: Final = (
    *("bool", "int64", "int64_double", "int64_uint64", "uint64", "uint64_double", "uint64_int64", "double"),
    *("double_int64", "double_uint64", "string", "bytes", "timestamp", "duration"),
)


def _comparison(order: str, pair: str) -> Function:
    one, _, other = pair.replace("64", "").partition("_")
    run = None if one in {"timestamp", "duration"} else _ORDERS[order]
    declared = f"{order}_{pair} ({one}, {other or one}) -> bool"
    return Function(declared, run, costs.compare if one in {"string", "bytes"} else costs.unit)


OPERATORS: Final = (
    *[_comparison(order, pair) for order in _ORDERS for pair in _PAIRS],
    Function("_+_ add_bytes (bytes, bytes) -> bytes", add, _add_cost),
    Function("_+_ add_double (double, double) -> double", add),
    Function("_+_ add_duration_duration (duration, duration) -> duration"),
    Function("_+_ add_duration_timestamp (duration, timestamp) -> timestamp"),
    Function("_+_ add_timestamp_duration (timestamp, duration) -> timestamp"),
    Function("_+_ add_int64 (int, int) -> int", add),
    counted("_+_ add_list (list(A), list(A)) -> list(A)", _joined, _extend_cost),
    Function("_+_ add_string (string, string) -> string", add, _add_cost),
    Function("_+_ add_uint64 (uint, uint) -> uint", add),
    Function("_-_ subtract_double (double, double) -> double", lambda one, other: one - other),
    Function("_-_ subtract_duration_duration (duration, duration) -> duration"),
    Function("_-_ subtract_int64 (int, int) -> int", lambda one, other: bounded(one - other)),
    Function("_-_ subtract_timestamp_duration (timestamp, duration) -> timestamp"),
    Function("_-_ subtract_timestamp_timestamp (timestamp, timestamp) -> duration"),
    Function("_-_ subtract_uint64 (uint, uint) -> uint", lambda one, other: _unsigned(int(one) - int(other))),
    Function("_*_ multiply_double (double, double) -> double", lambda one, other: one * other),
    Function("_*_ multiply_int64 (int, int) -> int", lambda one, other: bounded(one * other)),
    Function("_*_ multiply_uint64 (uint, uint) -> uint", lambda one, other: _unsigned(int(one) * int(other))),
    Function("_/_ divide_double (double, double) -> double", _divided),
    Function("_/_ divide_int64 (int, int) -> int", lambda one, other: bounded(quotient(one, other))),
    Function("_/_ divide_uint64 (uint, uint) -> uint", lambda one, other: UInt(quotient(int(one), int(other)))),
    Function("_%_ modulo_int64 (int, int) -> int", _remainder),
    Function("_%_ modulo_uint64 (uint, uint) -> uint", lambda one, other: UInt(remainder(int(one), int(other)))),
    Function("-_ negate_double (double) -> double", lambda one: -one),
    Function("-_ negate_int64 (int) -> int", lambda one: bounded(-one)),
    Function("!_ logical_not (bool) -> bool", lambda one: not one),
    Function("size size_bytes (bytes) -> int", len),
    Function("size bytes_size bytes.() -> int", len),
    Function("size size_list (list(A)) -> int", len),
    Function("size list_size list(A).() -> int", len),
    Function("size size_map (map(A, B)) -> int", len),
    Function("size map_size map(A, B).() -> int", len),
    Function("size size_string (string) -> int", len),
    Function("size string_size string.() -> int", len),
)
CONVERSIONS: Final = (
    Function("bool bool_to_bool (bool) -> bool", _same),
    Function("bool string_to_bool (string) -> bool", _to_bool),
    Function("bytes bytes_to_bytes (bytes) -> bytes", _same),
    Function("bytes string_to_bytes (string) -> bytes", lambda text: text.encode(errors="replace"), _encode_cost),
    Function("double double_to_double (double) -> double", _same),
    Function("double int64_to_double (int) -> double", _to_double),
    Function("double string_to_double (string) -> double", _to_double),
    Function("double uint64_to_double (uint) -> double", _to_double),
    Function("duration duration_to_duration (duration) -> duration"),
    Function("duration string_to_duration (string) -> duration"),
    Function("dyn to_dyn (A) -> dyn", _same),
    Function("int int64_to_int64 (int) -> int", _same),
    Function("int double_to_int64 (double) -> int", _to_int),
    Function("int duration_to_int64 (duration) -> int"),
    Function("int string_to_int64 (string) -> int", _to_int),
    Function("int timestamp_to_int64 (timestamp) -> int"),
    Function("int uint64_to_int64 (uint) -> int", _to_int),
    Function("string string_to_string (string) -> string", _same),
    Function("string bool_to_string (bool) -> string", lambda value: "true" if value else "false"),
    Function("string bytes_to_string (bytes) -> string", _decoded, _decode_cost),
    Function("string double_to_string (double) -> string", _double_text),
    Function("string duration_to_string (duration) -> string"),
    Function("string int64_to_string (int) -> string", str),
    Function("string timestamp_to_string (timestamp) -> string"),
    Function("string uint64_to_string (uint) -> string", lambda value: str(int(value))),
    Function("string ip_to_string (IP) -> string"),
    Function("string cidr_to_string (CIDR) -> string"),
    Function("timestamp timestamp_to_timestamp (timestamp) -> timestamp"),
    Function("timestamp int64_to_timestamp (int) -> timestamp"),
    Function("timestamp string_to_timestamp (string) -> timestamp"),
    Function("type type (A) -> type(A)", lambda value: TypeName(type_name(value))),
    Function("uint uint64_to_uint64 (uint) -> uint", _same),
    Function("uint double_to_uint64 (double) -> uint", _to_uint),
    Function("uint int64_to_uint64 (int) -> uint", _to_uint),
    Function("uint string_to_uint64 (string) -> uint", _to_uint),
)
