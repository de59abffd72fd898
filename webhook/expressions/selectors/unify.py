"""Which types fit each other, and what type parameters stand for meanwhile. Source: cel-go checker/types.go."""

from __future__ import annotations

from collections.abc import Sequence

from webhook.expressions.selectors.kinds import DYN, CelType
from webhook.expressions.selectors.values import Charge, free

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
