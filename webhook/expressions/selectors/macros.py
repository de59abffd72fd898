"""Macros: calls that stand for loops and other trees. Source: cel-go parser/macro.go, ext/, cel/library.go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from webhook.expressions.selectors.faults import SelectorError
from webhook.expressions.selectors.syntax import (
    ACCUMULATOR,
    UNUSED,
    Constant,
    Field,
    Fold,
    Ident,
    Invocation,
    ListOf,
    MapOf,
    Node,
    copied,
    walk,
)

Expand = Callable[[Node, list[Node]], Node | None]

COPIED_MAX: Final = 100
"""Parts of what `optMap` is called on."""
COPIES_MAX: Final = 50
"""Calls of `optMap` in a selector: each copies what is before it."""
_SORTED: Final = "@__sortBy_input__"


def expanded(function: str, target: Node | None, arguments: list[Node]) -> Node:
    """A call, or what a macro of that name makes of it. Raises SelectorError."""
    if target is None:
        if function == "has" and len(arguments) == 1:
            return _presence(arguments[0])
        return Invocation(function=function, arguments=arguments)
    expand = _METHODS.get((function, len(arguments)))
    node = expand(target, arguments) if expand is not None else None
    return node or Invocation(function=function, arguments=arguments, target=target)


def _presence(argument: Node) -> Node:
    if not isinstance(argument, Field) or argument.test:
        raise SelectorError.invalid("invalid argument to has() macro")
    return Field(operand=argument.operand, name=argument.name, test=True)


def _variable(node: Node) -> str:
    """The name that a macro binds."""
    if not isinstance(node, Ident):
        raise SelectorError.invalid("argument must be a simple name")
    if node.name == "__result__":
        raise SelectorError.invalid("iteration variable overwrites accumulator variable")
    return node.name


def _so_far() -> Ident:
    return Ident(name=ACCUMULATOR)


def _call(function: str, *arguments: Node) -> Invocation:
    return Invocation(function=function, arguments=list(arguments))


class _Loop:
    """Makes loops over a target with one variable, or with two."""

    def __init__(self, variables: int) -> None:
        self.variables = variables

    def over(self, target: Node, names: list[Node], start: Node, step: Node, *, condition: Node | None = None) -> Fold:
        bound = [_variable(name) for name in names[: self.variables]]
        if len(bound) == 2 and bound[0] == bound[1]:
            raise SelectorError.invalid(f"duplicate variable name: {bound[0]}")
        return Fold(
            items=target,
            variable=bound[0],
            second=bound[1] if len(bound) == 2 else None,
            accumulator=ACCUMULATOR,
            start=start,
            condition=condition or Constant(value=True),
            step=step,
            result=_so_far(),
        )

    def all(self, target: Node, arguments: list[Node]) -> Node:
        condition = _call("@not_strictly_false", _so_far())
        step = _call("_&&_", _so_far(), arguments[-1])
        return self.over(target, arguments, Constant(value=True), step, condition=condition)

    def exists(self, target: Node, arguments: list[Node]) -> Node:
        condition = _call("@not_strictly_false", _call("!_", _so_far()))
        step = _call("_||_", _so_far(), arguments[-1])
        return self.over(target, arguments, Constant(value=False), step, condition=condition)

    def exists_one(self, target: Node, arguments: list[Node]) -> Node:
        more = _call("_+_", _so_far(), Constant(value=1))
        fold = self.over(target, arguments, Constant(value=0), _call("_?_:_", arguments[-1], more, _so_far()))
        fold.result = _call("_==_", _so_far(), Constant(value=1))
        return fold

    def gathered(self, target: Node, arguments: list[Node], start: Node, step: Node) -> Node:
        """A list or a map, of all entries or, with one argument more, of those that a filter leaves."""
        if len(arguments) == self.variables + 2:
            step = _call("_?_:_", arguments[-2], step, _so_far())
        return self.over(target, arguments, start, step)

    def list_of(self, target: Node, arguments: list[Node]) -> Node:
        step = _call("_+_", _so_far(), ListOf(entries=[arguments[-1]]))
        return self.gathered(target, arguments, ListOf(entries=[]), step)

    def filtered(self, target: Node, arguments: list[Node]) -> Node:
        return self.list_of(target, [*arguments, arguments[0]])

    def map_of(self, target: Node, arguments: list[Node]) -> Node:
        step = _call("cel.@mapInsert", _so_far(), Ident(name=_variable(arguments[0])), arguments[-1])
        return self.gathered(target, arguments, MapOf(entries=[]), step)

    def map_of_entries(self, target: Node, arguments: list[Node]) -> Node:
        step = _call("cel.@mapInsert", _so_far(), arguments[-1])
        return self.gathered(target, arguments, MapOf(entries=[]), step)


def _bound(name: str, value: Node, result: Node) -> Fold:
    """A loop over nothing, that only gives a name to a value."""
    return Fold(
        items=ListOf(entries=[]),
        variable=UNUSED,
        accumulator=name,
        start=value,
        condition=Constant(value=False),
        step=Ident(name=name),
        result=result,
    )


def _bind(target: Node, arguments: list[Node]) -> Node | None:
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    if not isinstance(arguments[0], Ident):
        raise SelectorError.invalid("cel.bind() variable names must be simple identifiers")
    return _bound(arguments[0].name, arguments[1], arguments[2])


def _unwrapped(target: Node, arguments: list[Node], *, flat: bool) -> Node:
    macro = "optFlatMap" if flat else "optMap"
    if not isinstance(arguments[0], Ident):
        raise SelectorError.invalid(f"{macro}() variable name must be a simple identifier")
    if sum(1 for _ in walk(target)) > COPIED_MAX:
        # Each macro doubles what is before it, so that a few of them in a row would fill the memory.
        raise SelectorError.unsupported(f"{macro}() after more than {COPIED_MAX} parts")
    value = Invocation(function="value", arguments=[], target=copied(target))
    bound = _bound(arguments[0].name, value, arguments[1])
    there = Invocation(function="hasValue", arguments=[], target=target)
    return _call("_?_:_", there, bound if flat else _call("optional.of", bound), _call("optional.none"))


def _sorted_by(target: Node, arguments: list[Node]) -> Node:
    if isinstance(target, Constant | MapOf):
        raise SelectorError.invalid(
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        )
    keys = _ONE.list_of(Ident(name=_SORTED), arguments)
    by_keys = Invocation(function="@sortByAssociatedKeys", arguments=[keys], target=Ident(name=_SORTED))
    return _bound(_SORTED, target, by_keys)


_ONE: Final = _Loop(1)
_TWO: Final = _Loop(2)
_METHODS: Final[Mapping[tuple[str, int], Expand]] = {
    ("all", 2): _ONE.all,
    ("all", 3): _TWO.all,
    ("exists", 2): _ONE.exists,
    ("exists", 3): _TWO.exists,
    ("exists_one", 2): _ONE.exists_one,
    ("exists_one", 3): _TWO.exists_one,
    ("existsOne", 3): _TWO.exists_one,
    ("filter", 2): _ONE.filtered,
    ("map", 2): _ONE.list_of,
    ("map", 3): _ONE.list_of,
    ("transformList", 3): _TWO.list_of,
    ("transformList", 4): _TWO.list_of,
    ("transformMap", 3): _TWO.map_of,
    ("transformMap", 4): _TWO.map_of,
    ("transformMapEntry", 3): _TWO.map_of_entries,
    ("transformMapEntry", 4): _TWO.map_of_entries,
    ("bind", 3): _bind,
    ("optMap", 2): partial(_unwrapped, flat=False),
    ("optFlatMap", 2): partial(_unwrapped, flat=True),
    ("sortBy", 2): _sorted_by,
}
