"""Why a selector is refused."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

DETAIL_MAX_CHARACTERS: Final = 1024


class FaultKind(StrEnum):
    """What kind of error the API server reports, if any."""

    INVALID = "invalid"
    """It does not compile, or is neither true nor false: `Invalid`."""
    INTERNAL = "internal"
    """It compiles, but a constant in it can never be evaluated (`int("x")`): `InternalError`."""
    TOO_EXPENSIVE = "too expensive"
    """Its worst case costs more than MAX_COST: `Forbidden`."""
    UNSUPPORTED = "unsupported"
    """The API server may accept it, but it has parts that this evaluator does not know; `detail` names them."""


class SelectorFault(msgspec.Struct, frozen=True):
    """A selector cannot be used; `detail` says why, for people. Names the first thing that is wrong."""

    kind: FaultKind
    detail: str


class SelectorError(Exception):
    """Ends the compilation of a selector."""

    def __init__(self, kind: FaultKind, detail: str) -> None:
        detail = detail if len(detail) <= DETAIL_MAX_CHARACTERS else f"{detail[:DETAIL_MAX_CHARACTERS]}..."
        super().__init__(detail)
        self.fault = SelectorFault(kind, detail)

    @classmethod
    def invalid(cls, detail: str) -> SelectorError:
        """For what the API server's compiler refuses."""
        return cls(FaultKind.INVALID, f"compilation failed: {detail}")

    @classmethod
    def internal(cls, detail: str) -> SelectorError:
        """For what compiles and cannot be evaluated, whatever the device is."""
        return cls(FaultKind.INTERNAL, f"program instantiation failed: {detail}")

    @classmethod
    def unsupported(cls, detail: str) -> SelectorError:
        """For what only this evaluator refuses."""
        return cls(FaultKind.UNSUPPORTED, f"not supported here: {detail}")
