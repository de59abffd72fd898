"""Values of CEL: JSON's, and those that JSON does not have.

bool, int, float, str, bytes, None, list and dict stand for themselves; map keys that are truth values are kept apart
from 0 and 1 by `map_key`. Source: cel-go common/types.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec

from webhook.expressions.selectors.faults import AbortedError, Charge
from webhook.expressions.values import EvaluationError

CHARACTERS: Final = 10
"""That cost as much as one step."""
MAX_UINT: Final = 2**64 - 1
UNHASHABLE: Final = "hash of unhashable type"
"""How Go panics. Where a selector is compiled, an API server closes the connection then, without a response."""


class UInt(int):
    """A number without a sign: `3u`."""

    __slots__ = ()


class TypeName(msgspec.Struct, frozen=True):
    """What `type(x)` gives; types are equal if their names are."""

    name: str


class Optional(msgspec.Struct, frozen=True):
    """A value that may be absent."""

    present: bool
    value: Any = None

    def get(self) -> Any:
        """The value. Raises EvaluationError."""
        if not self.present:
            raise EvaluationError("optional.none() dereference")
        return self.value


ABSENT: Final = Optional(present=False)


class Quantity(msgspec.Struct, frozen=True):
    """A quantity of Kubernetes, exact.

    `scale`: Go keeps it as a whole number times ten to that power; None where it does not. Only `asInteger` and
    `isInteger` show that. It does not count when quantities are compared.
    """

    amount: Fraction
    scale: int | None = 0


class Semver(msgspec.Struct, frozen=True):
    """A version by semver.org; `before` are the parts of the pre-release. Build data does not count."""

    major: int
    minor: int
    patch: int
    before: tuple[int | str, ...] = ()


class DomainMap(dict[str, Any]):
    """`device.attributes` and `device.capacity`: a domain that is not there reads as an empty map."""

    def __missing__(self, key: object) -> dict[str, Any]:
        return {}


def no_overload(*given: Any) -> EvaluationError:
    """The error for a function that does not take such values."""
    return EvaluationError(f"no such overload: {', '.join(map(type_name, given))}")


NAMES: Final[Mapping[type, str]] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    dict: "map",
    DomainMap: "map",
    TypeName: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
}


def type_name(value: Any) -> str:
    """The name of a value's type."""
    return NAMES.get(type(value)) or str(getattr(value, "TYPE", type(value).__name__))


def is_number(value: Any) -> bool:
    """Whether it is an int, a uint or a double."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def alike(one: Any, other: Any) -> tuple[Any, Any]:
    """Two numbers as they are compared: both as doubles if one is a double, which large integers are not exact in."""
    return (float(one), float(other)) if isinstance(one, float) or isinstance(other, float) else (one, other)


def size_of(value: Any) -> int:
    """The steps that a look at all of a value takes, beyond the first: characters, entries, parts of a version."""
    if isinstance(value, str | bytes | list | dict):
        return len(value) // CHARACTERS
    return len(value.before) if isinstance(value, Semver) else 0


def map_key(value: Any) -> Any:
    """What stands for a key in a dict. Numbers that are equal are the same key, whatever their types are."""
    if isinstance(value, bool):
        return TypeName("true" if value else "false")
    if isinstance(value, str | int | float):
        return value
    raise EvaluationError(f"unsupported key type: {type_name(value)}")


class OtherKey:
    """A key of a map that no value is equal to: a list, a map, null."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def check_hashable(value: Any) -> None:
    """What Go can put into a set and use as a key. Raises AbortedError, for a version and bytes."""
    if isinstance(value, Semver | bytes):
        raise AbortedError(f"{UNHASHABLE} {'cel.Semver' if isinstance(value, Semver) else 'types.Bytes'}")


def literal_key(value: Any) -> Any:
    """The same for a key of a literal, where nearly any value may be one. Raises AbortedError."""
    try:
        return map_key(value)
    except EvaluationError:
        check_hashable(value)
        return OtherKey(value)


def key_value(key: Any) -> Any:
    """The value that a key of a dict stands for."""
    if isinstance(key, OtherKey):
        return key.value
    return key.name == "true" if isinstance(key, TypeName) else key


def equal(one: Any, other: Any, charge: Charge) -> bool:  # noqa: C901, PLR0911 -- one case a sort of value
    """`==`. Different types differ; quantities and versions compare only with their own. Raises EvaluationError."""
    if one is None or other is None:
        return one is other
    if is_number(one):
        return is_number(other) and operator.eq(*alike(one, other))
    if isinstance(one, list):
        if not isinstance(other, list) or len(one) != len(other):
            return False
        charge(len(one))
        return all(_not_different(*pair, charge) for pair in zip(one, other, strict=True))
    if isinstance(one, dict):
        if not isinstance(other, dict) or len(one) != len(other):
            return False
        charge(len(one))
        return all(key in other and _not_different(value, other[key], charge) for key, value in one.items())
    if isinstance(one, Optional):
        if not isinstance(other, Optional) or one.present != other.present:
            return False
        charge(1)
        return not one.present or equal(one.value, other.value, charge)
    if type(one) is not type(other):
        if type(one) in _COMPARED_ALIKE:
            return False
        raise no_overload(one, other)
    charge(size_of(one))
    return bool(one.amount == other.amount if isinstance(one, Quantity) else one == other)


_COMPARED_ALIKE: Final = frozenset({bool, str, bytes, TypeName})


def _not_different(one: Any, other: Any, charge: Charge) -> bool:
    """In a list or a map, what cannot be compared counts as equal."""
    try:
        return equal(one, other, charge)
    except AbortedError:
        raise
    except EvaluationError:
        return True


def is_equal(one: Any, other: Any, charge: Charge) -> bool:
    """As `equal`, but what cannot be compared counts as different."""
    try:
        return equal(one, other, charge)
    except AbortedError:
        raise
    except EvaluationError:
        return False


def differ(one: Any, other: Any, charge: Charge) -> bool:
    """`!=`: what cannot be compared differs."""
    return not is_equal(one, other, charge)


def truth(value: Any) -> bool:
    """A truth value. Raises EvaluationError, if it is none."""
    if isinstance(value, bool):
        return value
    raise no_overload(value)


# --- fields and entries (cel-go interpreter/attributes.go, refQualify) ---------------------------


def entry_of(value: Any, key: Any) -> Any:
    """`value[key]` or `value.key`; of an optional value that is optional too. Raises EvaluationError."""
    if isinstance(value, dict):
        try:
            return value[key if isinstance(key, str) else map_key(key)]
        except KeyError:
            raise EvaluationError(f"no such key: {key}") from None
    if isinstance(value, Optional):
        return optional_entry_of(value, key)
    if isinstance(value, list):
        position = _position(key)
        if 0 <= position < len(value):
            return value[position]
        raise EvaluationError(f"index out of bounds: {key}")
    raise EvaluationError(f"no such key: {key}")


def optional_entry_of(value: Any, key: Any) -> Optional:
    """`value[?key]` or `value.?key`: absent without such an entry. Raises EvaluationError, for impossible keys."""
    if isinstance(value, Optional):
        if not value.present:
            return ABSENT
        value = value.value
    at = key if isinstance(key, str) else map_key(key)
    if isinstance(value, DomainMap):
        return Optional(present=True, value=value[at])
    if isinstance(value, dict):
        return Optional(present=True, value=value[at]) if at in value else ABSENT
    if isinstance(value, list):
        position = _position(key)
        return Optional(present=True, value=value[position]) if 0 <= position < len(value) else ABSENT
    return ABSENT


def present(value: Any, name: str) -> bool:
    """`has(value.name)`."""
    return optional_entry_of(value, name).present


def _position(key: Any) -> int:
    if is_number(key) and (not isinstance(key, float) or key.is_integer()):
        return int(key)
    raise EvaluationError(f"unsupported index value: {key}")
