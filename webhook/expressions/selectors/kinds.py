"""Types of CEL as the checker sees them. Source: cel-go common/types/types.go."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import lru_cache
from typing import Any, Final
from weakref import WeakValueDictionary

from webhook.expressions.selectors.faults import SelectorError

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
    **{each.name: each for each in (BOOL, INT, UINT, DOUBLE, STRING, BYTES, DYN)},
    "Duration": DURATION,
    "Timestamp": TIMESTAMP,
    "Quantity": QUANTITY,
    "Semver": SEMVER,
    "NamedFormat": NAMED_FORMAT,
    "URL": URL,
    "IP": IP,
    "CIDR": CIDR,
}
_BUILT: Final = {
    "list": ("list", "list"),
    "map": ("map", "map"),
    "type": ("type", "type"),
    OPTIONAL_NAME: ("opaque", OPTIONAL_NAME),
}


@lru_cache(maxsize=256)
def named(text: str) -> CelType:
    """The type that a declaration spells: `list(int)`, `map(K, V)`; a capital letter is a parameter."""
    name, _, inner = text.partition("(")
    if inner:
        kind, full_name = _BUILT[name]
        return CelType(kind, full_name, tuple(map(named, split_types(inner.removesuffix(")")))))
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
