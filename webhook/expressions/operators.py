"""Checked parts of an expression; operators, methods and functions: their types, their cost, how they are evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from webhook.expressions import values
from webhook.expressions.parser import BadExpression, Literal, Node
from webhook.expressions.values import MAX_LIST, ListType, MapType, ObjectType, Run, Scalar, Scope, VariableType

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
    read = values.reader(wanted, shown(node))
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


# --- operators, methods and functions -------------------------------------------------------------

METHODS: Final = ("contains", "endsWith", "matches", "size", "startsWith")
# Steps that take longer than others: a text is searched, by RE2 or for another, and both may be made to take long.
_CONTAINS_STEPS: Final = 8
_MATCHES_STEPS: Final = 48


def unary(operator: str, operand: Checked, text: str) -> Checked:
    """`!` or `-`."""
    run = operand.run
    if operator == "!":
        operand.must_be(Scalar.BOOL)
        return Checked(Scalar.BOOL, operand.steps + 1, lambda scope: not run(scope), text)
    operand.must_be(Scalar.INT)
    return Checked(Scalar.INT, operand.steps + 1, values.negated(run, text), text)


def logical(operator: str, operands: Sequence[Checked], text: str) -> Checked:
    """A chain of `&&` or `||`."""
    runs = [operand.must_be(Scalar.BOOL).run for operand in operands]
    steps = len(operands) + sum(operand.steps for operand in operands)
    return Checked(Scalar.BOOL, steps, values.chain(runs, stop=operator == "||"), text)


def binary(operator: str, left: Checked, right: Checked, text: str) -> Checked:
    """A comparison, `in`, or arithmetic."""
    if operator == "in":
        return _membership(left, right, text)
    if operator in {"==", "!="}:
        return _equality(operator, left, right, text)
    steps = left.steps + right.steps + 1
    if operator in values.COMPARISONS:
        compare, one, other = values.COMPARISONS[operator], left.run, right.run
        if left.type == right.type and left.type in {Scalar.INT, Scalar.STRING}:
            return Checked(Scalar.BOOL, steps, lambda scope: compare(one(scope), other(scope)), text)
    elif left.type == right.type == Scalar.INT:
        return Checked(Scalar.INT, steps, values.arithmetic(operator, left.run, right.run, text), text)
    elif operator == "+":
        kind = values.joined(left.type, right.type)
        if kind == Scalar.STRING:
            return Checked(kind, steps, values.joined_texts(left.run, right.run, text), text)
        if isinstance(kind, ListType):
            return Checked(kind, steps + MAX_LIST, values.joined_lists(left.run, right.run, text), text)
    raise refused(f"{text}: there is no {operator} of {with_article(left.type)} and {with_article(right.type)}")


def _membership(left: Checked, right: Checked, text: str) -> Checked:
    item, container = left.run, right.run
    steps = left.steps + right.steps + 1
    match right.type:
        case ListType(element=element) if element in {None, left.type} and isinstance(left.type, Scalar):
            return Checked(Scalar.BOOL, steps + MAX_LIST, lambda scope: item(scope) in container(scope), text)
        case MapType() if left.type == Scalar.STRING:
            return Checked(Scalar.BOOL, steps, lambda scope: item(scope) in container(scope), text)
        case _:
            raise refused(f"{text}: {with_article(left.type)} cannot be in {with_article(right.type)}")


def _equality(operator: str, left: Checked, right: Checked, text: str) -> Checked:
    kind = values.joined(left.type, right.type)
    if not isinstance(kind, Scalar | ListType):
        raise refused(f"{text}: {with_article(left.type)} cannot be compared with {with_article(right.type)}")
    one, other, equal = left.run, right.run, operator == "=="
    steps = left.steps + right.steps + (1 + MAX_LIST if isinstance(kind, ListType) else 1)
    return Checked(Scalar.BOOL, steps, lambda scope: (one(scope) == other(scope)) is equal, text)


def size(operand: Checked, text: str) -> Checked:
    """How many characters or entries there are."""
    if operand.type != Scalar.STRING and not isinstance(operand.type, ListType | MapType):
        raise refused(f"{text}: {with_article(operand.type)} has no size")
    run = operand.run
    return Checked(Scalar.INT, operand.steps + 1, lambda scope: len(run(scope)), text)


def method(name: str, target: Checked, arguments: Sequence[tuple[Node, Checked]], text: str) -> Checked:
    """`target.name(arguments)`, where the name is one of METHODS."""
    if name == "size" and not arguments:
        return size(target, text)
    if name == "size" or len(arguments) != 1:
        raise refused(f"{text}: {name}() takes {'no arguments' if name == 'size' else 'one argument'}")
    [(node, argument)] = arguments
    whole, part = target.must_be(Scalar.STRING).run, argument.must_be(Scalar.STRING).run
    steps = target.steps + argument.steps + 1
    match name:
        case "startsWith":
            return Checked(Scalar.BOOL, steps, lambda scope: whole(scope).startswith(part(scope)), text)
        case "endsWith":
            return Checked(Scalar.BOOL, steps, lambda scope: whole(scope).endswith(part(scope)), text)
        case "contains":
            return Checked(Scalar.BOOL, steps + _CONTAINS_STEPS, lambda scope: part(scope) in whole(scope), text)
        case _:
            return _matches(target, node, text)


def _matches(target: Checked, pattern: Node, text: str) -> Checked:
    if not isinstance(pattern, Literal):
        raise refused(f"{text}: the pattern of matches() must be a literal, not {shown(pattern)}")
    try:
        found = values.matcher(str(pattern.value))
    except values.PatternError as error:
        raise refused(f"{text}: {error}") from None
    whole = target.run
    return Checked(Scalar.BOOL, target.steps + 1 + _MATCHES_STEPS, lambda scope: found(whole(scope)), text)
