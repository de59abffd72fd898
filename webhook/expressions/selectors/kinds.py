"""Types of CEL as the checker sees them, which fit each other, and the variables that have them.

Source: cel-go common/types/types.go and checker/types.go; k8s.io/apiserver/pkg/cel/environment/base.go;
k8s.io/dynamic-resource-allocation/cel/compile.go.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Final
from weakref import WeakValueDictionary

from webhook.expressions.selectors.faults import Charge, SelectorError, free

PARTS_MAX: Final = 128
"""Of a type, those of its parameters included, each as often as it stands there. Sane ones have ten."""


class CelType:
    """A type. `kind` is its sort, `name` tells those of one sort apart, `of` are its parameters.

    There is one object of each, so that equal types are compared at once. `parts` counts it and all types within,
    `is_open` says whether a parameter that is not known yet is among them.

    Raises, when it is made: SelectorError, for more than PARTS_MAX parts.
    """

    __slots__ = ("__weakref__", "_hash", "is_open", "kind", "name", "of", "parts")

    _hash: int
    kind: str
    name: str
    of: tuple[CelType, ...]
    parts: int
    is_open: bool

    def __new__(cls, kind: str, name: str, of: tuple[CelType, ...] = ()) -> CelType:  # noqa: D102, PYI034 -- see above
        key = kind, name, of
        known = _KNOWN.get(key)
        if known is not None:
            return known
        parts = 1 + sum([each.parts for each in of])
        if parts > PARTS_MAX:
            raise SelectorError.unsupported(f"a type of more than {PARTS_MAX} parts; nest fewer lists and maps")
        made = super().__new__(cls)
        made.kind, made.name, made.of, made.parts = kind, name, of, parts
        made.is_open = kind == "parameter" or any(each.is_open for each in of)
        made._hash = hash(key)
        return _KNOWN.setdefault(key, made)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        # Two threads may have made one each.
        if not isinstance(other, CelType) or self._hash != other._hash:
            return False
        return (self.kind, self.name, self.of) == (other.kind, other.name, other.of)

    def __repr__(self) -> str:
        return f"CelType({self})"

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.of))})" if self.of else self.name

    @property
    def is_dynamic(self) -> bool:
        """Whether nothing is known of it."""
        return self.kind in {"dyn", "any"}

    @property
    def is_optional(self) -> bool:
        """Whether it is optional_type(T)."""
        return self.name == OPTIONAL_NAME


_KNOWN: Final[MutableMapping[tuple[Any, ...], CelType]] = WeakValueDictionary()
OPTIONAL_NAME: Final = "optional_type"
BOOL: Final = CelType("bool", "bool")
INT: Final = CelType("int", "int")
UINT: Final = CelType("uint", "uint")
DOUBLE: Final = CelType("double", "double")
STRING: Final = CelType("string", "string")
BYTES: Final = CelType("bytes", "bytes")
NULL: Final = CelType("null", "null_type")
DYN: Final = CelType("dyn", "dyn")
ERROR: Final = CelType("error", "error")
DURATION: Final = CelType("duration", "google.protobuf.Duration")
TIMESTAMP: Final = CelType("timestamp", "google.protobuf.Timestamp")
QUANTITY: Final = CelType("object", "kubernetes.Quantity")
SEMVER: Final = CelType("object", "kubernetes.Semver")
NAMED_FORMAT: Final = CelType("object", "kubernetes.NamedFormat")
URL: Final = CelType("object", "kubernetes.URL")
IP: Final = CelType("opaque", "net.IP")
CIDR: Final = CelType("opaque", "net.CIDR")
DEVICE: Final = CelType("object", "kubernetes.DRADevice")

SCALARS: Final = frozenset({"bool", "double", "duration", "int", "timestamp", "uint"})
"""Sorts of values that all have the same size."""


def list_of(element: CelType) -> CelType:
    """list(element)."""
    return CelType("list", "list", (element,))


def map_of(key: CelType, value: CelType) -> CelType:
    """map(key, value)."""
    return CelType("map", "map", (key, value))


def optional_of(value: CelType) -> CelType:
    """optional_type(value)."""
    return CelType("opaque", OPTIONAL_NAME, (value,))


def type_of(kind: CelType) -> CelType:
    """type(kind): what the name of a type is."""
    return CelType("type", "type", (kind,))


def parameter(name: str) -> CelType:
    """A type that is not known yet."""
    return CelType("parameter", name)


_NAMED: Final = {
    **{each.name: each for each in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, DYN, DURATION, TIMESTAMP)},
    **{each.kind: each for each in (DURATION, TIMESTAMP)},
    "Quantity": QUANTITY,
    "Semver": SEMVER,
    "NamedFormat": NAMED_FORMAT,
    "URL": URL,
    "IP": IP,
    "CIDR": CIDR,
}
_BUILT: Final[Mapping[str, Any]] = {"list": list_of, "map": map_of, "type": type_of, OPTIONAL_NAME: optional_of}


@lru_cache(maxsize=256)
def named(text: str) -> CelType:
    """The type that a declaration spells: `list(int)`, `map(K, V)`; a capital letter is a parameter."""
    name, _, inner = text.partition("(")
    if inner:
        built: CelType = _BUILT[name](*map(named, split_types(inner.removesuffix(")"))))
        return built
    return _NAMED[text] if text in _NAMED else parameter(text)


def split_types(text: str) -> list[str]:
    """At the commas that are not in parentheses."""
    found, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append(text[start:position].strip())
            start = position + 1
    rest = text[start:].strip()
    return [*found, rest] if rest else found


_NULLABLE = frozenset({"null", "opaque", "object", "any", "duration", "timestamp"})
_NESTED = frozenset({"opaque", "list", "map"})


class Substitutions:
    """What the type parameters of an expression turned out to be. Each look at a type takes a step of `charge`."""

    def __init__(self, charge: Charge = free) -> None:
        self._charge = charge
        self._found: dict[CelType, CelType] = {}
        self._changed: list[tuple[CelType, CelType | None]] = []
        """Parameters that `fits` has changed, and what they were before."""
        self._counted = 0

    def fresh(self) -> CelType:
        """A parameter that nothing else uses."""
        self._counted += 1
        return CelType("parameter", f"_var{self._counted}")

    def fits(self, ones: Sequence[CelType], others: Sequence[CelType]) -> bool:
        """Whether the types of one list can stand for those of another; what they have to be is kept only if so."""
        self._changed.clear()
        if self._all_fit(ones, others):
            return True
        for parameter, before in reversed(self._changed):
            if before is None:
                del self._found[parameter]
            else:
                self._found[parameter] = before
        return False

    def resolved(self, kind: CelType, *, final: bool = False) -> CelType:
        """The type with its parameters replaced by what they are; those that may be anything become dyn in the end."""
        if not kind.is_open:
            return kind
        self._charge(1)
        if kind in self._found:
            return self.resolved(self._found[kind], final=final)
        if kind.kind == "parameter":
            return DYN if final else kind
        return CelType(kind.kind, kind.name, tuple([self.resolved(inner, final=final) for inner in kind.of]))

    def _all_fit(self, ones: Sequence[CelType], others: Sequence[CelType]) -> bool:
        return len(ones) == len(others) and all(map(self._fit, ones, others))

    def _fit(self, one: CelType, other: CelType) -> bool:  # noqa: PLR0911 -- one case a sort of type
        self._charge(1)
        if one == other:
            return True
        if other.kind == "parameter":
            valid, known = self._stands_for(one, other)
            if valid or known:
                return valid
        if one.kind == "parameter":
            return self._stands_for(other, one)[0]
        if one.kind in _FITS_ALL or other.kind in _FITS_ALL:
            return True
        if "null" in (one.kind, other.kind):
            return (other if one.kind == "null" else one).kind in _NULLABLE
        if one.kind in _NESTED:
            return one.kind == other.kind and one.name == other.name and self._all_fit(one.of, other.of)
        if one.kind == "type":
            return other.kind == "type"
        return False

    def _stands_for(self, kind: CelType, parameter: CelType) -> tuple[bool, bool]:
        """Whether the parameter can be that type, and whether it was known before."""
        known = self._found.get(parameter)
        if known is not None:
            if not self._fit(kind, known):
                return False, True
            general = most_general(kind, known)
            if self._absent(parameter, general):
                self._changed.append((parameter, known))
                self._found[parameter] = general
            return True, True
        if self._absent(parameter, kind):
            self._changed.append((parameter, None))
            self._found[parameter] = kind
            return True, False
        return False, False

    def _absent(self, parameter: CelType, within: CelType) -> bool:
        self._charge(1)
        if not within.is_open:
            return True
        if parameter == within:
            return False
        if within.kind == "parameter":
            return within not in self._found or self._absent(parameter, self._found[within])
        return all(self._absent(parameter, inner) for inner in within.of)


_FITS_ALL = frozenset({"dyn", "any", "error"})


def most_general(one: CelType, other: CelType) -> CelType:
    """The one that says less; the other if neither does."""
    return one if _says_less(one, other) else other


def _says_less(one: CelType, other: CelType) -> bool:
    if one == other or one.is_dynamic or one.kind == "parameter":
        return True
    if other.is_dynamic or other.kind == "parameter" or one.kind != other.kind:
        return False
    if one.kind in _NESTED:
        return one.name == other.name and len(one.of) == len(other.of) and all(map(_says_less, one.of, other.of))
    return one.kind == "type"


DEVICE_FIELDS: Final[Mapping[str, CelType]] = {
    "driver": STRING,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    "allowMultipleAllocations": BOOL,
}
"""Attributes are dyn, since some may be lists (KEP-5491)."""
VARIABLES: Final[Mapping[str, CelType]] = {"device": DEVICE}
TYPE_NAMES: Final[Mapping[str, CelType]] = {
    **{each.name: type_of(each) for each in (BOOL, INT, UINT, DOUBLE, STRING)},
    **{each.name: type_of(each) for each in (BYTES, NULL, DURATION, TIMESTAMP)},
    "list": type_of(list_of(DYN)),
    "map": type_of(map_of(DYN, DYN)),
    "type": type_of(CelType("type", "type")),
    "net.IP": type_of(IP),
    "net.CIDR": type_of(CIDR),
    OPTIONAL_NAME: type_of(optional_of(DYN)),
}
