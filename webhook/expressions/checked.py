"""The type and cost of a checked part of an expression, and the errors for parts that fail the check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from webhook.expressions.parser import BadExpression, Node
from webhook.expressions.types import MAX_LIST, ListType, MapType, ObjectType, Scalar, VariableType
from webhook.expressions.values import Run, Scope, reader

_SHOWN_CHARACTERS: Final = 60
_SIMILARITY: Final = 0.6


class Checked(NamedTuple):
    """A part whose type is known; `steps` is the most that one evaluation takes (see `engine.MAX_STEPS`)."""

    type: VariableType
    steps: int
    run: Run
    text: str

    def must_be(self, wanted: VariableType) -> Checked:
        """Itself. Raises BadExpression, if it is of another type."""
        if self.type != wanted:
            raise refused(f"{self.text} is {with_article(self.type)}, must be {with_article(wanted)}")
        return self


def fact(wanted: VariableType, steps: int, find: Callable[[Scope], Any], node: Node) -> Checked:
    """A value read from JSON, whose type is checked at each evaluation; for a list, the type of each entry."""
    read = reader(wanted, shown(node))
    own = 1 + MAX_LIST if isinstance(wanted, ListType) else 1
    return Checked(wanted, steps + own, lambda scope: read(find(scope)), shown(node))


def refused(detail: str) -> BadExpression:
    """The error for a part of an expression that does not type-check. The caller raises it."""
    return BadExpression(f"compilation failed: {detail}")


def shown(node: Node) -> str:
    """The node as it is written, cut if it is long."""
    return node.text if len(node.text) <= _SHOWN_CHARACTERS else f"{node.text[:_SHOWN_CHARACTERS]}..."


def with_article(kind: VariableType) -> str:
    """The type with its article."""
    match kind:
        case Scalar.INT | ObjectType():
            return f"an {kind}"
        case Scalar() | ListType() | MapType():
            return f"a {kind}"


def hint(name: str, known: Iterable[str]) -> str:
    """What may have been meant instead of a name."""
    from difflib import get_close_matches  # noqa: PLC0415 -- only for mistakes

    known = sorted(known)
    close = get_close_matches(name, known, 1, _SIMILARITY)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"
