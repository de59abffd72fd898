"""Why a selector is refused, and what ends an evaluation: errors, and steps that are used up."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec

from webhook.expressions.values import EvaluationError

Charge = Callable[[int], None]
"""Takes steps, before what they are for. Raises: AbortedError."""

BETWEEN_LOOKS: Final = 256
"""Steps from one look at the clock to the next: a tenth of a millisecond."""
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


class AbortedError(EvaluationError):
    """Ends an evaluation: unlike other errors, `&&`, `||` and loops do not settle the matter without it."""


class CostExceededError(AbortedError):
    """An evaluation, or all those that share a StepBudget, took more steps than they may."""


def unwatched() -> None:
    """For work that only its steps end."""


class StepBudget:
    """The steps that evaluations may take together; `left` is negative when they are used up.

    `look` is called every BETWEEN_LOOKS steps, and may raise to end the work.
    """

    __slots__ = ("_look", "left", "mark")

    def __init__(self, steps: int, look: Callable[[], None] = unwatched) -> None:
        self._look = look
        self.refill(steps)

    def refill(self, steps: int) -> None:
        """That is what is left from now on."""
        self.left = steps
        self.mark = 0 if self._look is unwatched else max(steps - BETWEEN_LOOKS, 0)
        """When `left` falls below it, `pass_mark` has to be called."""

    def pass_mark(self) -> None:
        """Looks, once for each BETWEEN_LOOKS steps. Raises: CostExceededError, and what `look` raises."""
        if self.left < 0:
            raise CostExceededError("operation cancelled: actual cost limit exceeded")
        while self.left < self.mark:
            self.mark = max(self.mark - BETWEEN_LOOKS, 0)
            self._look()

    def charge(self, steps: int) -> None:
        """Take some steps, before what they are for. Raises CostExceededError, and what `look` raises."""
        self.left -= steps
        if self.left < self.mark:
            self.pass_mark()


def free(_steps: int) -> None:
    """For values that are bounded, so that their steps were counted when the selector was compiled."""
