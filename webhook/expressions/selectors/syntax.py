"""The syntax tree of a selector. Macros are expanded already; nodes are the same only if they are one object."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, TypeAlias

import msgspec

from webhook.expressions.selectors.kinds import DYN, CelType


class Part(msgspec.Struct, eq=False):
    """What all nodes have. The checker fills in the type, once; `constants.folded` fills in what it found."""

    type: CelType = DYN
    folded: Constant | msgspec.UnsetType | None = msgspec.UNSET


class Constant(Part, eq=False, kw_only=True):
    """A literal; `value` as in `values`."""

    value: Any


class Ident(Part, eq=False, kw_only=True):
    """A variable, the name of a type, or what a macro binds. A leading dot asks for the outermost one."""

    name: str


class Field(Part, eq=False, kw_only=True):
    """`operand.name`; with `test` it is `has(operand.name)`. The checker finds those that name a type as a whole."""

    operand: Node
    name: str
    test: bool = False
    names_type: bool = False


class Invocation(Part, eq=False, kw_only=True):
    """A function or an operator (`_==_`), for methods with a target. The checker fills in the overloads that fit."""

    function: str
    arguments: list[Node]
    target: Node | None = None
    overloads: tuple[str, ...] = ()


class ListOf(Part, eq=False, kw_only=True):
    """`[a, ?b]`; `optional` are the positions with a question mark."""

    entries: list[Node]
    optional: frozenset[int] = frozenset()


class MapOf(Part, eq=False, kw_only=True):
    """`{k: v, ?k: v}`; `optional` are the positions with a question mark."""

    entries: list[tuple[Node, Node]]
    optional: frozenset[int] = frozenset()


class Message(Part, eq=False, kw_only=True):
    """`name{field: value}`."""

    name: str


class Fold(Part, eq=False, kw_only=True):
    """A loop: `accumulator` starts as `start`, and becomes `step` for each entry of `items` while `condition` holds.

    `variable` is the entry, or with a `second` variable its position or key, and the second its value. A loop over
    nothing whose condition is false only gives a name to `start`: see `binds`.
    """

    items: Node
    variable: str
    accumulator: str
    start: Node
    condition: Node
    step: Node
    result: Node
    second: str | None = None

    @property
    def binds(self) -> bool:
        """Whether this is `cel.bind` or one of its kin."""
        never = isinstance(self.condition, Constant) and self.condition.value is False
        return never and isinstance(self.items, ListOf) and not self.items.entries and self.accumulator != ACCUMULATOR


ACCUMULATOR = "@result"
"""The variable of loops that macros make; no expression can spell it."""
UNUSED = "#unused"

Node: TypeAlias = Constant | Ident | Field | Invocation | ListOf | MapOf | Message | Fold


def children(node: Node) -> list[Node]:
    """The nodes directly below one, in the order in which they are written or made."""
    match node:
        case Field():
            return [] if node.names_type else [node.operand]
        case Invocation():
            return node.arguments if node.target is None else [node.target, *node.arguments]
        case ListOf():
            return node.entries
        case MapOf():
            return [part for entry in node.entries for part in entry]
        case Fold():
            return [node.items, node.start, node.condition, node.step, node.result]
        case _:
            return []


def walk(node: Node) -> Iterator[tuple[Node, int]]:
    """Every node below and including one, with its depth. Not recursive."""
    waiting = [(node, 1)]
    while waiting:
        found, depth = waiting.pop()
        yield found, depth
        waiting.extend((child, depth + 1) for child in children(found))


def copied(node: Node) -> Node:
    """The same tree of new nodes."""
    found = copy(node)
    match found:
        case Field():
            found.operand = copied(found.operand)
        case Invocation():
            found.arguments = list(map(copied, found.arguments))
            found.target = None if found.target is None else copied(found.target)
        case ListOf():
            found.entries = list(map(copied, found.entries))
        case MapOf():
            found.entries = [(copied(key), copied(value)) for key, value in found.entries]
        case Fold():
            for name in ("items", "start", "condition", "step", "result"):
                setattr(found, name, copied(getattr(found, name)))
        case _:
            pass
    return found
