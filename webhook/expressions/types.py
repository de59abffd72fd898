"""The types of an expression's variables. Values are plain JSON; null means absent."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

MAX_LIST: Final = 32
"""Entries of a list; a longer one counts as not known."""
MAX_TEXT: Final = 1024
"""Characters of a text; a longer one counts as not known."""
MAX_INT: Final = 2**63 - 1
MIN_INT: Final = -(2**63)


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
    """An object with named fields; `has()` tells whether one is present."""

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
