"""What unquoted text means, as kubectl and the API server read it.

They use sigs.k8s.io/yaml, which is go.yaml.in/yaml/v2 followed by a conversion to JSON: YAML 1.1 with the booleans
`y`, `no`, `on` ..., Go's number literals (0o17, 0x1F, 017 is octal, underscores), and no sexagesimal numbers.
Source: yaml/v2 resolve.go, sigs.k8s.io/yaml convertToJSONableObject. A test compares with kubectl itself.
"""

from __future__ import annotations

import re
from decimal import Decimal
from math import isfinite
from typing import Final, TypeAlias

Scalar: TypeAlias = "str | int | float | bool | None"

_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}
_WORD_STARTS: Final = frozenset("yYnNtTfFoO~")
_NUMBER_STARTS: Final = frozenset("+-0123456789")
_INTEGER: Final = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_DOT_FLOAT: Final = re.compile(r"\.[0-9]+([eE][-+]?[0-9]+)?")
_INT64: Final = range(-(2**63), 2**63)
_UINT64: Final = range(2**64)
# 64 binary digits, a sign and a prefix fit many times over; more leading zeros than that are no number.
_LONGEST_INTEGER: Final = 512
_PLAIN_FLOATS_BELOW: Final = 1e21
"""Go writes floats below this into JSON without an exponent (encoding/json, floatEncoder)."""


def plain_value(text: str) -> Scalar:
    """The value of an unquoted scalar. Times stay text. Infinities and NaN are returned; JSON has neither."""
    if not text:
        return None
    first = text[0]
    if first in _WORD_STARTS:
        return _WORDS.get(text, text)
    if first in _NUMBER_STARTS:
        return _number(text)
    if first == ".":
        if text in _WORDS:
            return _WORDS[text]
        return _finite(text, text) if _DOT_FLOAT.fullmatch(text) else text
    return text


def _number(text: str) -> Scalar:
    if text in _WORDS:
        return _WORDS[text]
    plain = text.replace("_", "")
    integer = _integer(plain)
    if integer is not None:
        return integer
    return _finite(plain, text) if _FLOAT.fullmatch(plain) else text


def _integer(plain: str) -> int | None:
    """Go's ParseInt and ParseUint with base 0; None where they fail."""
    match = _INTEGER.fullmatch(plain)
    if match is None or len(plain) > _LONGEST_INTEGER:
        return None
    sign, digits = match.groups()
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        digits = f"0o{digits[1:]}"
    number = int(digits, 0)
    if sign == "-":
        number = -number
    # ParseUint takes no sign
    return number if number in _INT64 or (not sign and number in _UINT64) else None


def _finite(plain: str, text: str) -> Scalar:
    number = float(plain)
    return as_json_number(number) if isfinite(number) else text  # Go: out of range, so it stays text


def as_json_number(number: float) -> int | float:
    """The number as Go writes it into JSON: 1.0 and 1e3 arrive as the integers 1 and 1000."""
    if number.is_integer() and abs(number) < _PLAIN_FLOATS_BELOW:
        return int(Decimal(repr(number)))  # by its shortest digits, as Go writes it
    return number


def key_text(value: Scalar) -> str | None:
    """A map key as JSON shows it, or None where the conversion fails or would mangle it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value in _INT64:
        return str(value)
    return None
