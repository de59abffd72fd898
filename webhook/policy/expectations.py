"""What a case of a test suite expects: a decision, who decides, and what an impact comes to."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.field import FieldError, forbidden, invalid, not_supported, required
from webhook.api.taints import EQUAL, DeviceToleration, decode_toleration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.api.decode import Reader

FIGURES: Final = ("devices", "claims", "pods", "namespaces")
"""What an impact is measured in, and what limits are about."""
FIELDS: Final[Mapping[str, frozenset[str]]] = {
    "expect": frozenset({"decision", "rules", "message", "field", "defaulted", "impact", "reasons"}),
    "impact": frozenset(FIGURES),
    "toleration": frozenset({"key", "operator", "value", "effect", "tolerationSeconds"}),
}
"""The fields of each object of an expectation."""


class Word(StrEnum):
    """What becomes of a request. Advice (codes `DTnnn`) is no warning of the policy's."""

    ALLOWED = "allowed"
    DENIED = "denied"
    WARNED = "warned"


class Expectation(msgspec.Struct, frozen=True):
    """What should come of a case; None is not looked at. `rules` are all those that speak, in any order.

    `impact` has some of FIGURES; `reasons` are all those for which the impact is too much, one for each figure.
    """

    decision: Word
    rules: frozenset[str] | None = None
    message: str | None = None
    field: str | None = None
    defaulted: tuple[DeviceToleration, ...] | None = None
    impact: Mapping[str, int] | None = None
    reasons: frozenset[str] | None = None


def expectation_in(reader: Reader) -> Expectation:
    """The expectation of a case; mistakes are noted by the reader."""
    below = reader.child("expect")
    if below is None:
        reader.errors.append(required(reader.path.child("expect")))
        return Expectation(Word.ALLOWED)
    below.errors.extend(unknown_fields(below, FIELDS["expect"]))
    word = below.text("decision")
    if word not in set(Word):
        below.errors.append(not_supported(below.path.child("decision"), word, Word))
        word = Word.ALLOWED
    return Expectation(
        Word(word),
        frozenset(below.texts("rules")) if below.has("rules") else None,
        below.optional_text("message"),
        below.optional_text("field"),
        tuple(_tolerations(below)) if below.has("defaulted") else None,
        _figures(below),
        frozenset(below.texts("reasons")) if below.has("reasons") else None,
    )


def _figures(reader: Reader) -> Mapping[str, int] | None:
    below = reader.child("impact")
    if below is None:
        return None
    below.errors.extend(unknown_fields(below, FIELDS["impact"]))
    found = {name: number for name in FIGURES if (number := below.integer(name)) is not None}
    for name, number in found.items():
        if number < 0:
            below.errors.append(invalid(below.path.child(name), number, "must be 0 or more"))
    return found


def _tolerations(reader: Reader) -> Iterator[DeviceToleration]:
    for each in reader.each("defaulted"):
        each.errors.extend(unknown_fields(each, FIELDS["toleration"]))
        toleration = decode_toleration(each)
        yield msgspec.structs.replace(toleration, operator=toleration.operator or EQUAL)


def unknown_fields(reader: Reader, fields: frozenset[str]) -> Iterator[FieldError]:
    """Fields of an object of the format that it does not have."""
    for name in reader.raw:
        if name not in fields:
            known = ", ".join(sorted(fields))
            yield forbidden(reader.path.child(name), f"unknown field; known are {known}")
