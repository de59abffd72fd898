"""What an evaluation knows meanwhile: variables, and how much of its cost is left. Compiling has a StepBudget, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from webhook.expressions.selectors.values import AbortedError, DomainMap, Semver, size_of
from webhook.expressions.values import EvaluationError

_SIZED: Final[frozenset[type]] = frozenset({str, bytes, list, dict, DomainMap, Semver})
BETWEEN_LOOKS: Final = 256
"""Steps from one look at the clock to the next: a tenth of a millisecond."""


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


class Frame:
    """The variables of one place in an expression; those around it are in the frames around it."""

    __slots__ = ("around", "budget", "variables")

    def __init__(self, variables: Mapping[str, Any], budget: StepBudget, around: Frame | None = None) -> None:
        self.variables = variables
        self.budget = budget
        self.around = around

    def inner(self, variables: Mapping[str, Any]) -> Frame:
        """A frame with some variables more."""
        return Frame(variables, self.budget, self)

    def charge(self, steps: int) -> None:
        """Take some steps. Raises CostExceededError."""
        budget = self.budget
        budget.left -= steps
        if budget.left < budget.mark:
            budget.pass_mark()

    def charge_for(self, value: Any) -> None:
        """Take the steps for a call that looks at a value. Raises CostExceededError."""
        budget = self.budget
        budget.left -= 1 + size_of(value) if type(value) in _SIZED else 1
        if budget.left < budget.mark:
            budget.pass_mark()

    def variable(self, name: str, *, outermost: bool = False) -> Any:
        """The innermost variable of that name, or the outermost. Raises the EvaluationError that it holds."""
        self.charge(1)
        found: Any = None
        frame: Frame | None = self
        while frame is not None:
            if name in frame.variables:
                found = frame.variables[name]
                if not outermost:
                    break
            frame = frame.around
        if isinstance(found, Later):
            return found.value()
        if isinstance(found, EvaluationError):
            raise found
        return found


class Later:
    """A value that is found when it is asked for, once."""

    __slots__ = ("_error", "_found", "_frame", "_step")

    def __init__(self, step: Callable[[Frame], Any], frame: Frame) -> None:
        self._step: Callable[[Frame], Any] | None = step
        self._frame = frame
        self._found: Any = None
        self._error: EvaluationError | None = None

    def value(self) -> Any:
        """The value. Raises EvaluationError, the same one each time."""
        if self._step is not None:
            step, self._step = self._step, None
            try:
                self._found = step(self._frame)
            except EvaluationError as error:
                self._error = error
        if self._error is not None:
            raise self._error
        return self._found
