"""Quantities such as `500m`, `16Gi` and `1e3`. Source: apimachinery/pkg/api/resource, quantity.go and suffix.go."""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_UP, Context, Decimal
from fractions import Fraction
from typing import Final

from webhook.api.field import JSON
from webhook.api.remembered import remembered

A_QUANTITY: Final = 'a quantity like "500m", "16Gi" or 4'
"""What was expected where `parse_quantity` finds none."""
# Go takes numbers without a digit for zero: `.`, `+` and `Gi` are quantities (seen on 1.37.0).
_QUANTITY: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,18})?")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_MAX: Final = Decimal(2**63 - 1)
"""Larger numbers with a binary suffix are taken for this one; those with a decimal suffix are not."""
_NANO: Final = Decimal("1e-9")
_MAX_DIGITS: Final = 1000
_MAX: Final = 10**_MAX_DIGITS
"""Larger numbers are taken for this one: what they spell is beyond every limit, and costs no more than this."""
# Digits are read without being converted to binary, which takes time by the square of their number.
_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX, rounding=ROUND_UP)


def quantity_parts(text: str) -> tuple[str, str, str, str] | None:
    """The sign, the digits before and after the point, and the suffix of a quantity; None if it is none."""
    match = _QUANTITY.fullmatch(text)
    return None if match is None or not text else (match[1], match[2], match[3] or "", match[4] or "")


@remembered(1024)
def _parsed(text: str) -> Fraction | None:
    parts = quantity_parts(text)
    if parts is None:
        return None
    sign, whole, part, suffix = parts
    number = Decimal(f"{whole or 0}.{part or 0}")
    if suffix in _BINARY:
        number = min(_EXACT.multiply(number, Decimal(2 ** _BINARY[suffix])), _BINARY_MAX)
    else:
        exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
        enough = len(text) + _MAX_DIGITS
        number = min(_EXACT.scaleb(number, Decimal(max(-enough, min(exponent, enough)))), Decimal(_MAX))
    size = Fraction(_EXACT.quantize(number, _NANO))
    return -size if sign == "-" else size


def parse_quantity(value: JSON) -> Fraction | None:
    """The number that a text or a JSON number spells; None if it is no quantity. Null reads as zero, as in Go.

    As in Go, what is finer than a nano is rounded away from zero. However many digits there are, they take time in
    proportion to their number.
    """
    if value is None:
        return Fraction(0)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, int):
        return Fraction(max(-_MAX, min(value, _MAX)))
    return _parsed(value if isinstance(value, str) else repr(value))
