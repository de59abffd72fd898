"""Which types fit each other, and what type parameters stand for meanwhile. Source: cel-go checker/types.go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webhook.expressions.selectors.kinds import DYN, CelType

if TYPE_CHECKING:
    from collections.abc import Sequence

_NULLABLE = frozenset({"opaque", "object", "any", "duration", "timestamp"})
_NESTED = frozenset({"opaque", "list", "map"})


class Substitutions:
    """What the type parameters of an expression turned out to be."""

    def __init__(self) -> None:
        self._found: dict[CelType, CelType] = {}
        self._counted = 0

    def fresh(self) -> CelType:
        """A parameter that nothing else uses."""
        self._counted += 1
        return CelType("parameter", f"_var{self._counted}")

    def fits(self, ones: Sequence[CelType], others: Sequence[CelType]) -> bool:
        """Whether the types of one list can stand for those of another; what they have to be is kept only if so."""
        before = dict(self._found)
        if self._all_fit(ones, others):
            return True
        self._found = before
        return False

    def resolved(self, kind: CelType, *, final: bool = False) -> CelType:
        """The type with its parameters replaced by what they are; those that may be anything become dyn in the end."""
        if kind in self._found:
            return self.resolved(self._found[kind], final=final)
        if kind.kind == "parameter":
            return DYN if final else kind
        if not kind.of:
            return kind
        return CelType(kind.kind, kind.name, tuple([self.resolved(inner, final=final) for inner in kind.of]))

    def _all_fit(self, ones: Sequence[CelType], others: Sequence[CelType]) -> bool:
        return len(ones) == len(others) and all(map(self._fit, ones, others))

    def _fit(self, one: CelType, other: CelType) -> bool:  # noqa: PLR0911 -- one case a sort of type
        if other.kind == "parameter":
            valid, known = self._stands_for(one, other)
            if valid or known:
                return valid
        if one.kind == "parameter":
            return self._stands_for(other, one)[0]
        if one.kind in _FITS_ALL or other.kind in _FITS_ALL:
            return True
        if "null" in (one.kind, other.kind):
            return _takes_null(other if one.kind == "null" else one)
        if one.kind in _NESTED:
            return one.kind == other.kind and one.name == other.name and self._all_fit(one.of, other.of)
        if one.kind == "type":
            return other.kind == "type"
        return one == other

    def _stands_for(self, kind: CelType, parameter: CelType) -> tuple[bool, bool]:
        """Whether the parameter can be that type, and whether it was known before."""
        if kind == parameter:
            return True, True
        known = self._found.get(parameter)
        if known is not None:
            if kind == known:
                return True, True
            if not self._fit(kind, known):
                return False, True
            general = most_general(kind, known)
            if self._absent(parameter, general):
                self._found[parameter] = general
            return True, True
        if self._absent(parameter, kind):
            self._found[parameter] = kind
            return True, False
        return False, False

    def _absent(self, parameter: CelType, within: CelType) -> bool:
        if parameter == within:
            return False
        if within.kind == "parameter":
            return within not in self._found or self._absent(parameter, self._found[within])
        return all(self._absent(parameter, inner) for inner in within.of)


_FITS_ALL = frozenset({"dyn", "any", "error"})


def _takes_null(kind: CelType) -> bool:
    return kind.kind in _NULLABLE or kind.kind == "null"


def most_general(one: CelType, other: CelType) -> CelType:
    """The one that says less; the other if neither does."""
    return one if _says_less(one, other) else other


def _says_less(one: CelType, other: CelType) -> bool:
    if one.is_dynamic or one.kind == "parameter":
        return True
    if other.is_dynamic or other.kind == "parameter" or one.kind != other.kind:
        return False
    if one.kind in _NESTED:
        return one.name == other.name and len(one.of) == len(other.of) and all(map(_says_less, one.of, other.of))
    return one.kind == "type" or one == other
