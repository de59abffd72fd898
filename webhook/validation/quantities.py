"""Quantities such as `500m`, `16Gi` and `1e3`. Source: apimachinery/pkg/api/resource, quantity.go and suffix.go."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from webhook.api.field import JSON

# Go takes numbers without a digit for zero: `.`, `+` and `Gi` are quantities (seen on 1.37.0).
_QUANTITY: Final = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,18})?")
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT_MAX: Final = 64
"""Larger exponents are cut: what they spell is beyond every limit, and costs no more than this."""


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Fraction | None:
    match = _QUANTITY.fullmatch(text)
    if match is None or not text:
        return None
    sign, whole, part, suffix = match.groups("")
    number = Fraction(f"{sign}{whole or 0}.{part or 0}")
    if suffix in _BINARY:
        return Fraction(number * 2 ** _BINARY[suffix])
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    return Fraction(number * Fraction(10) ** max(min(exponent, _EXPONENT_MAX), -_EXPONENT_MAX))


def parse_quantity(value: JSON) -> Fraction | None:
    """The number that a text or a JSON number spells; None if it is no quantity. Null reads as zero, as in Go."""
    if value is None:
        return Fraction(0)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return _parsed(value if isinstance(value, str) else repr(value))
