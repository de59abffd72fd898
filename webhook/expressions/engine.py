"""CEL for policies: an expression is checked and bounded when it is loaded, and cheap to ask after that.

Nothing can interrupt an evaluation, so whatever could take long is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final, assert_never

from webhook.expressions import operators, values
from webhook.expressions.operators import Checked, fact, hint, refused, shown, with_article
from webhook.expressions.parser import (
    BadExpression,
    Binary,
    Call,
    Choice,
    Entries,
    Index,
    Literal,
    Logical,
    Name,
    Node,
    Select,
    Unary,
    Unsupported,
    read,
)
from webhook.expressions.values import MAX_LIST, EvaluationError, ListType, MapType, ObjectType, Scalar, VariableType

__all__ = ["BadExpression", "EvaluationError", "Expression", "VariableType", "compile_expression"]

MAX_BYTES: Final = 1024
"""Of source, in UTF-8."""
MAX_BRACKETS: Final = 128
"""Opening ones in a source, those in texts included. Each takes the parser as long as ten other characters."""
MAX_STEPS: Final = 2000
"""Of one evaluation: each node of the tree is one, what looks at a whole list takes 32 more, `contains` 8 and `matches`
48 more, and what is inside a macro counts 32 times. A step takes about 0.2 µs; 7 µs for a pattern and texts made to be
slow, so that the worst is 14 ms."""
MACROS: Final = ("all", "exists", "exists_one", "filter", "map")
_FUNCTIONS: Final = ("has", "size")


class Expression:
    """An expression whose names and types were checked; may be shared between threads. Equal if the source is."""

    __slots__ = ("_run", "source", "steps")

    source: str
    steps: int

    def __init__(self, source: str, steps: int, run: values.Run) -> None:
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


# --- types and cost -----------------------------------------------------------------------------
# Nothing is evaluated here.


class Checker:
    """Checks parts of an expression against the variables; `bound` is the variable of the macro around them."""

    def __init__(self, variables: Mapping[str, VariableType], bound: tuple[str, Scalar] | None = None) -> None:
        self.variables = variables
        self.bound = bound

    def check(self, node: Node) -> Checked:  # noqa: C901, PLR0911 -- one case a kind of node
        """The node's type, cost and function. Raises BadExpression."""
        text = shown(node)
        match node:
            case Literal():
                return _literal(node)
            case Name():
                return self._name(node)
            case Select():
                return self._select(node)
            case Index():
                return self._index(node)
            case Call():
                return self._call(node)
            case Entries():
                return self._entries(node)
            case Unary():
                return operators.unary(node.operator, self.check(node.operand), text)
            case Binary():
                return operators.binary(node.operator, self.check(node.left), self.check(node.right), text)
            case Logical():
                return operators.logical(node.operator, [self.check(operand) for operand in node.operands], text)
            case Choice():
                return self._choice(node)
            case Unsupported():
                raise refused(f"{node.what} are not supported: {text}")
            case _:
                assert_never(node)

    def _name(self, node: Name) -> Checked:
        if self.bound is not None and node.name == self.bound[0]:
            return Checked(self.bound[1], 1, itemgetter(node.name), node.name)
        if node.name not in self.variables:
            raise refused(f"unknown variable {shown(node)}{hint(node.name, self.variables)}")
        name = node.name
        return fact(self.variables[name], 0, lambda scope: scope.get(name), node)

    def _select(self, node: Select) -> Checked:
        operand, kind = self._field(node)
        run, field = operand.run, node.field
        return fact(kind, operand.steps, lambda scope: run(scope).get(field), node)

    def _field(self, node: Select) -> tuple[Checked, VariableType]:
        """What the field is of, and its type."""
        operand = self.check(node.operand)
        match operand.type:
            case ObjectType(fields=fields):
                if node.field not in fields:
                    raise refused(f"unknown field {shown(node)}{hint(node.field, fields)}")
                return operand, fields[node.field]
            case MapType(value=value):
                return operand, value
            case _:
                raise refused(f"{operand.text} is {with_article(operand.type)} and has no fields")

    def _index(self, node: Index) -> Checked:
        operand, key = self.check(node.operand), self.check(node.key)
        run, find, steps = operand.run, key.run, operand.steps + key.steps
        match operand.type, key.type:
            case ListType(element=Scalar() as element), Scalar.INT:
                return Checked(element, steps + 1, values.entry(run, find, shown(node)), shown(node))
            case MapType(value=value), Scalar.STRING:
                return fact(value, steps, lambda scope: run(scope).get(find(scope)), node)
            case _:
                raise refused(f"{shown(node)}: {with_article(operand.type)} has no entry for {with_article(key.type)}")

    def _call(self, node: Call) -> Checked:
        if node.target is not None and node.function in MACROS:
            return self._macro(node, self.check(node.target))
        if node.target is not None:
            if node.function not in operators.METHODS:
                raise refused(f"unknown method {node.function}(){hint(node.function, (*operators.METHODS, *MACROS))}")
            arguments = [(argument, self.check(argument)) for argument in node.arguments]
            return operators.method(node.function, self.check(node.target), arguments, shown(node))
        match node.function, node.arguments:
            case "size", (argument,):
                return operators.size(self.check(argument), shown(node))
            case "has", (Select() as select,):
                operand, kind = self._field(select)
                entry = isinstance(operand.type, MapType)
                found = values.present(operand.run, select.field, kind, shown(select), entry=entry)
                return Checked(Scalar.BOOL, operand.steps + 1, found, shown(node))
            case ("size" | "has") as function, _:
                raise refused(f"{shown(node)}: {function}() takes one {'field' if function == 'has' else 'argument'}")
            case function, _:
                raise refused(f"unknown function {function}(){hint(function, _FUNCTIONS)}")

    def _macro(self, node: Call, over: Checked) -> Checked:
        text = shown(node)
        if self.bound is not None:
            raise refused(f"{text}: a macro ({', '.join(MACROS)}) must not be inside another")
        match node.arguments:
            case (Name(name=name), expression):
                pass
            case _:
                raise refused(f"{text}: {node.function}() takes a name and an expression")
        if name in self.variables:
            raise refused(f"{text}: {name} is a variable already; choose another name")
        items, element = _items(over)
        body = Checker(self.variables, (name, element)).check(expression)
        steps = over.steps + 1 + MAX_LIST * (body.steps + 1)
        if node.function == "map":
            kind = ListType(_element(body))
            return Checked(kind, steps, values.mapped(items, name, body.run), text)
        body.must_be(Scalar.BOOL)
        match node.function:
            case "filter":
                return Checked(ListType(element), steps, values.filtered(items, name, body.run), text)
            case "exists_one":
                return Checked(Scalar.BOOL, steps, values.exists_one(items, name, body.run), text)
            case _:
                run = values.quantifier(items, name, body.run, stop=node.function == "exists")
                return Checked(Scalar.BOOL, steps, run, text)

    def _entries(self, node: Entries) -> Checked:
        if len(node.entries) > MAX_LIST:
            raise refused(f"a list of {len(node.entries)} entries; must be at most {MAX_LIST}")
        entries = [self.check(entry) for entry in node.entries]
        for entry in entries[1:]:
            entry.must_be(entries[0].type)
        kind = ListType(_element(entries[0]) if entries else None)
        runs = [entry.run for entry in entries]
        steps = 1 + sum(entry.steps for entry in entries)
        return Checked(kind, steps, lambda scope: [run(scope) for run in runs], shown(node))

    def _choice(self, node: Choice) -> Checked:
        condition = self.check(node.condition).must_be(Scalar.BOOL)
        then, otherwise = self.check(node.then), self.check(node.otherwise)
        kind = values.joined(then.type, otherwise.type)
        if kind is None:
            raise refused(
                f"{then.text} is {with_article(then.type)} and {otherwise.text} {with_article(otherwise.type)}; "
                "must be of one type"
            )
        steps = 1 + condition.steps + max(then.steps, otherwise.steps)
        asked, yes, no = condition.run, then.run, otherwise.run
        return Checked(kind, steps, lambda scope: yes(scope) if asked(scope) else no(scope), shown(node))


def _literal(node: Literal) -> Checked:
    value = node.value
    if isinstance(value, bool):
        kind = Scalar.BOOL
    elif isinstance(value, str):
        kind = Scalar.STRING
    else:
        kind = Scalar.INT
        if not values.MIN_INT <= value <= values.MAX_INT:
            raise refused(f"{shown(node)} has more than 64 bits")
    return Checked(kind, 1, lambda _: value, shown(node))


def _items(over: Checked) -> tuple[values.Run, Scalar]:
    """What a macro walks over, and the type of each: entries of a list, keys of a map."""
    match over.type:
        case ListType(element=element):
            return over.run, element or Scalar.STRING
        case MapType():
            return values.keys(over.run, over.text), Scalar.STRING
        case _:
            raise refused(f"{over.text} is {with_article(over.type)}, must be a list or a map")


def _element(entry: Checked) -> Scalar:
    """The type of a list's entries."""
    if not isinstance(entry.type, Scalar):
        raise refused(f"{entry.text} is {with_article(entry.type)}; lists hold only texts, numbers and truth values")
    return entry.type
