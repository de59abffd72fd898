"""CEL for policies: an expression is checked and bounded when it is loaded, and cheap to ask after that.

Nothing can interrupt an evaluation, so whatever could take long is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from webhook.expressions.checker import Checker
from webhook.expressions.parser import BadExpression, read
from webhook.expressions.types import Scalar, VariableType
from webhook.expressions.values import EvaluationError, Run

__all__ = ["BadExpression", "EvaluationError", "Expression", "VariableType", "compile_expression"]

MAX_BYTES: Final = 1024
"""Of source, in UTF-8."""
MAX_BRACKETS: Final = 128
"""Opening ones in a source, those in texts included. Each takes the parser as long as ten other characters."""
MAX_STEPS: Final = 2000
"""Of one evaluation: each node of the tree is one, what looks at a whole list takes 32 more, `contains` 8 and `matches`
48 more, and what is inside a macro counts 32 times. A step takes about 0.2 µs; 7 µs for a pattern and texts made to be
slow, so that the worst is 14 ms."""


class Expression:
    """An expression whose names and types were checked; may be shared between threads. Equal if the source is."""

    __slots__ = ("_run", "source", "steps")

    source: str
    steps: int

    def __init__(self, source: str, steps: int, run: Run) -> None:
        self.source = source
        self.steps = steps
        self._run = run

    def evaluate(self, variables: Mapping[str, Any]) -> bool:
        """Whether it holds. Values are plain JSON; facts that are not known are left out.

        Raises: EvaluationError, if that depends on a fact that is left out, has more than 32 entries, 1,024 characters
        or 64 bits, or is of another type than was declared; and for what CEL calls an error.
        """
        try:
            return bool(self._run(variables))
        except RecursionError:
            raise EvaluationError("nested too deep for the stack") from None

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.source == other.source

    def __hash__(self) -> int:
        return hash(self.source)


def compile_expression(source: str, variables: Mapping[str, VariableType]) -> Expression:
    """The expression, ready to be asked.

    Raises: BadExpression, if it does not parse, uses names that there are not, mixes types, is no truth value, or might
    take long.
    """
    size = len(source.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        raise BadExpression(f"too long: {size} bytes, must be at most {MAX_BYTES}")
    brackets = sum(map(source.count, "([{"))
    if brackets > MAX_BRACKETS:
        raise BadExpression(f"has {brackets} opening brackets, must have at most {MAX_BRACKETS}")
    checked = Checker(variables).check(read(source))
    if checked.type != Scalar.BOOL:
        raise BadExpression(f"must be true or false, is {checked.type}")
    if checked.steps > MAX_STEPS:
        raise BadExpression(f"too expensive: up to {checked.steps} steps, must be at most {MAX_STEPS}")
    return Expression(source, checked.steps, checked.run)
