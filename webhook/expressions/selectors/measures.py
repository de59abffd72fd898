"""Quantities and versions in selectors.

Source: k8s.io/apiserver/pkg/cel/library/quantity.go and semverlib.go, apimachinery/pkg/api/resource, blang/semver/v4.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

from webhook.api.quantities import parse_quantity, quantity_parts
from webhook.api.remembered import remembered
from webhook.expressions.selectors import call_costs as costs
from webhook.expressions.selectors.call_costs import Function
from webhook.expressions.selectors.values import MAX_UINT, Quantity, Semver
from webhook.expressions.values import MAX_INT, MIN_INT, EvaluationError

_DIGITS: Final = 18
"""As many digits fit 64 bits whatever they are."""
_FINEST: Final = -9
_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LETTERS: Final = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")
_NUMBERS: Final = frozenset("0123456789")

# --- quantities ---------------------------------------------------------------------------------


@remembered(4096)
def quantity_of(text: str) -> Quantity | None:
    """What a text spells; None if it is no quantity."""
    amount = parse_quantity(text)
    return None if amount is None else Quantity(amount, _scale(text))


def _scale(text: str) -> int | None:
    parts = quantity_parts(text)
    assert parts is not None
    _, whole, part, suffix = parts
    digits = len(whole.lstrip("0")) or 1
    if suffix.endswith("i"):
        # The power of two takes up about three digits for each letter.
        left = _DIGITS - 4 - digits - 3 * ("KMGTPE".index(suffix[0]) + 1)
        return 0 if not part and left >= 0 else None
    exponent = _EXPONENTS[suffix] if suffix in _EXPONENTS else int(suffix[1:])
    scale = exponent - len(part)
    return scale if digits + len(part) <= _DIGITS and scale >= _FINEST else None


def _whole(quantity: Quantity) -> int | None:
    if quantity.scale is None or quantity.scale < 0:
        return None
    number = quantity.amount.numerator
    return number if MIN_INT <= number <= MAX_INT else None


def _as_integer(quantity: Quantity) -> int:
    number = _whole(quantity)
    if number is None:
        raise EvaluationError("cannot convert value to integer")
    return number


def _sum(one: Quantity, other: Quantity, sign: int = 1) -> Quantity:
    amount = one.amount + sign * other.amount
    if one.scale is None or other.scale is None:
        return Quantity(amount, None)
    if not other.amount:
        return one
    scale = min(one.scale, other.scale) if one.amount else other.scale
    fits = MIN_INT <= amount / Fraction(10) ** scale <= MAX_INT
    return Quantity(amount, scale if fits else None)


def _parsed_quantity(text: str) -> Quantity:
    found = quantity_of(text)
    if found is None:
        raise EvaluationError("quantities must match the regular expression of Kubernetes' quantities")
    return found


def _is_quantity(text: str) -> bool:
    return quantity_of(text) is not None


def _approximately(quantity: Quantity) -> float:
    try:
        return float(quantity.amount)
    except OverflowError:
        return float("inf") if quantity.amount > 0 else float("-inf")


def _order(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)


# --- versions -----------------------------------------------------------------------------------


@remembered(4096)
def version_of(text: str) -> Semver | None:
    """What a text spells; None if it is no version by semver.org."""
    parts = text.split(".", 2)
    if len(parts) != 3:
        return None
    patch, plus, build = parts[2].partition("+")
    patch, minus, before = patch.partition("-")
    numbers = [_number(part) for part in (parts[0], parts[1], patch)]
    releases = [_release(part) for part in before.split(".")] if minus else []
    builds = build.split(".") if plus else []
    if None in numbers or None in releases or not all(part and _LETTERS.issuperset(part) for part in builds):
        return None
    major, minor, last = [number for number in numbers if number is not None]
    return Semver(major, minor, last, tuple([part for part in releases if part is not None]))


def _number(text: str) -> int | None:
    if not text or not _NUMBERS.issuperset(text) or len(text) > len(str(MAX_UINT)):
        return None
    if len(text) > 1 and text.startswith("0"):
        return None
    number = int(text)
    return number if number <= MAX_UINT else None


def _release(text: str) -> int | str | None:
    if text and _NUMBERS.issuperset(text):
        return _number(text)
    return text if text and _LETTERS.issuperset(text) else None


def _tolerated(text: str) -> Semver | None:
    """As `version_of`, after a leading v, leading zeros and missing parts are made good."""
    parts = [_without_zeros(part) for part in text.removeprefix("v").split(".", 2)]
    if len(parts) < 3:
        if any(sign in parts[-1] for sign in "+-"):
            return None
        parts += ["0"] * (3 - len(parts))
    return version_of(".".join(parts))


def _without_zeros(part: str) -> str:
    if len(part) <= 1:
        return part
    rest = part.lstrip("0")
    return rest if rest and rest[0] in _NUMBERS else f"0{rest}"


def _parsed_version(text: str, tolerant: bool = False) -> Semver:  # noqa: FBT001, FBT002 -- as it is called in CEL
    found = _tolerated(text) if tolerant else version_of(text)
    if found is None:
        raise EvaluationError(f"{text!r} is not a version by semver.org")
    return found


def _is_version(text: str, tolerant: bool = False) -> bool:  # noqa: FBT001, FBT002 -- as it is called in CEL
    return (_tolerated(text) if tolerant else version_of(text)) is not None


def _rank(version: Semver) -> tuple[Any, ...]:
    # A version comes after its pre-releases, numbers before texts, and more parts after fewer.
    before = tuple([(isinstance(part, str), part) for part in version.before])
    return version.major, version.minor, version.patch, not before, before


def _signed(number: int) -> int:
    """A number without a sign as Go converts it to one with a sign."""
    return number if number <= MAX_INT else number - MAX_UINT - 1


MEASURES: Final = (
    Function("add quantity_add Quantity.(Quantity) -> Quantity", _sum),
    Function("add quantity_add_int Quantity.(int) -> Quantity", lambda a, b: _sum(a, Quantity(Fraction(b)))),
    Function("asApproximateFloat quantity_get_float Quantity.() -> double", _approximately),
    Function("asInteger quantity_get_int Quantity.() -> int", _as_integer),
    Function("compareTo quantity_compare_to Quantity.(Quantity) -> int", lambda a, b: _order(a.amount, b.amount)),
    Function("compareTo semver_compare_to Semver.(Semver) -> int", lambda a, b: _order(_rank(a), _rank(b))),
    Function("isGreaterThan quantity_is_greater_than Quantity.(Quantity) -> bool", lambda a, b: a.amount > b.amount),
    Function("isGreaterThan semver_is_greater_than Semver.(Semver) -> bool", lambda a, b: _rank(a) > _rank(b)),
    Function("isInteger quantity_is_integer Quantity.() -> bool", lambda one: _whole(one) is not None),
    Function("isLessThan quantity_is_less_than Quantity.(Quantity) -> bool", lambda a, b: a.amount < b.amount),
    Function("isLessThan semver_is_less_than Semver.(Semver) -> bool", lambda a, b: _rank(a) < _rank(b)),
    Function("isQuantity is_quantity_string (string) -> bool", _is_quantity, costs.look()),
    Function("isSemver is_semver_string (string) -> bool", _is_version, costs.look()),
    Function("isSemver is_semver_string_bool (string, bool) -> bool", _is_version, costs.look()),
    Function("major semver_major Semver.() -> int", lambda one: _signed(one.major)),
    Function("minor semver_minor Semver.() -> int", lambda one: _signed(one.minor)),
    Function("patch semver_patch Semver.() -> int", lambda one: _signed(one.patch)),
    Function("quantity string_to_quantity (string) -> Quantity", _parsed_quantity, costs.look()),
    Function("semver string_to_semver (string) -> Semver", _parsed_version, costs.look()),
    Function("semver string_bool_to_semver (string, bool) -> Semver", _parsed_version, costs.look()),
    Function("sign quantity_sign (Quantity) -> int", lambda one: _order(one.amount, 0)),
    Function("sub quantity_sub Quantity.(Quantity) -> Quantity", lambda a, b: _sum(a, b, -1)),
    Function("sub quantity_sub_int Quantity.(int) -> Quantity", lambda a, b: _sum(a, Quantity(Fraction(-b)))),
)
