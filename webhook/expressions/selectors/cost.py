"""The worst case of a selector, in CEL's units of cost. Source: cel-go checker/cost.go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from webhook.expressions.selectors.call_costs import (
    LIST_COST,
    NONE,
    NOTHING,
    ONE,
    UNKNOWN,
    Estimate,
    Operand,
    Range,
    fixed,
)
from webhook.expressions.selectors.functions import functions
from webhook.expressions.selectors.kinds import SCALARS, CelType
from webhook.expressions.selectors.syntax import (
    ACCUMULATOR,
    Constant,
    Field,
    Fold,
    Ident,
    Invocation,
    ListOf,
    MapOf,
    Node,
)

MAX_COST: Final = 1_000_000
"""Of one evaluation, and of the estimate of its worst case."""

_MAP_COST: Final = 30


class _Declared(msgspec.Struct, frozen=True):
    """How large what the device has can be. `fields` None: all are like `values`."""

    most: int
    keys: _Declared | None = None
    values: _Declared | None = None
    fields: Mapping[str, _Declared] | None = None


_DOMAIN: Final = _Declared(63)
_IDENTIFIER: Final = _Declared(32)
_ATTRIBUTE: Final = _Declared(64)
_DEVICE: Final = _Declared(
    0,
    fields={
        "driver": _Declared(63),
        "attributes": _Declared(32, _DOMAIN, _Declared(32, _IDENTIFIER, _ATTRIBUTE)),
        "capacity": _Declared(32, _DOMAIN, _Declared(32, _IDENTIFIER, _Declared(0))),
        "allowMultipleAllocations": _Declared(1),
    },
)


def declared_size(path: tuple[str, ...]) -> Range | None:
    """The size of what a path leads to, if it begins at the device. Source: sizeEstimator of dracel."""
    if not path or path[0] != "device":
        return None
    node: _Declared | None = _DEVICE
    for name in path[1:]:
        if node is None:
            return None
        if name in {"@items", "@values"}:
            node = node.values
        elif name == "@keys":
            node = node.keys
        elif node.fields is not None:
            node = node.fields.get(name)
        else:
            node = _ATTRIBUTE if node.values is _ATTRIBUTE else None
    return None if node is None else Range(0, node.most)


class NodePath:
    """Where a part of a selector leads to: the names on the way, the variable first; none if it leads nowhere.

    The API server keeps it as a slice of Go, which may share its memory: a name that is added to a slice with room goes
    into its memory, over the name that was added to it before. Of the paths into a device only those of three names
    have room, such as that of `device.attributes["a"]`: in a loop over it with two variables the path of the key
    becomes that of the value, which may be twice as long, and so counts the key.
    """

    __slots__ = ("_length", "_memory", "_room")

    def __init__(self, name: str | None = None) -> None:
        self._memory = [] if name is None else [name]
        self._length = self._room = len(self._memory)

    @property
    def names(self) -> tuple[str, ...]:
        """As they are now."""
        return tuple(self._memory[: self._length])

    def then(self, name: str) -> NodePath:
        """The path one further."""
        found = NodePath()
        full = self._length == self._room
        found._memory = list(self._memory) if full else self._memory
        found._room = max(2 * self._room, 1) if full else self._room
        found._memory[self._length :] = [name]
        found._length = self._length + 1
        return found


class _Entries(NamedTuple):
    """The sizes of what is in a list or a map."""

    is_list: bool
    key: Range
    value: Range

    def union(self, other: _Entries | None) -> _Entries | None:
        return other and _Entries(self.is_list, self.key.union(other.key), self.value.union(other.value))


class _Variable(NamedTuple):
    path: NodePath
    size: Range | None
    entries: _Entries | None = None


def worst_cost(root: Node) -> int:
    """The most that an evaluation of a checked tree costs; what no bound is known of costs 2**64 - 1."""
    return _Coster().cost(root).most


class _Coster:
    def __init__(self) -> None:
        self.paths: dict[int, NodePath] = {}
        self.sizes: dict[int, Range] = {}
        self.entry_sizes: dict[int, _Entries] = {}
        self.variables: dict[str, list[_Variable]] = {}

    def cost(self, node: Node) -> Range:  # noqa: PLR0911 -- one case a kind of node
        match node:
            case Ident():
                variable = self.variable(node)
                self.paths[id(node)] = variable.path if variable is not None else NodePath(self.outermost(node.name))
                return ONE
            case Field():
                return self.field(node)
            case Invocation():
                return self.call(node)
            case ListOf():
                return self.list_literal(node)
            case MapOf():
                return self.map_literal(node)
            case Fold():
                return self.bound(node) if node.binds else self.fold(node)
            case _:
                return NONE

    def field(self, node: Field) -> Range:
        if node.names_type:
            return ONE
        cost = self.cost(node.operand)
        if node.test:
            return cost
        self.paths[id(node)] = self.path(node.operand).then(node.name)
        return cost.plus(ONE) if node.operand.type.kind in {"map", "object", "parameter"} else cost

    # --- calls --------------------------------------------------------------------------------------

    def call(self, node: Invocation) -> Range:
        if node.function == "dyn":
            [argument] = node.arguments
            cost = self.cost(argument).plus(ONE)
            self.copy_sizes(node, argument)
            return cost
        costs, operands, whole = [], [], NONE
        for argument in node.arguments:
            costs.append(self.cost(argument))
            operands.append(self.operand(argument))
        if node.target is not None:
            whole = self.cost(node.target)
            operands.insert(0, self.operand(node.target))
        union, size = NOTHING, None
        for overload in node.overloads:
            estimate = self.estimate(node, overload, operands, costs)
            union = union.union(estimate.cost)
            if estimate.size is not None:
                size = estimate.size if size is None else size.union(estimate.size)
            if overload in _INDEXED:
                entries = self.entries(node.arguments[0])
                size = entries and entries.value
                self.paths[id(node)] = self.path(node.arguments[0]).then(_INDEXED[overload])
            if size is None:
                size = self.size(node)
        self.keep_size(node, size)
        return whole.plus(union)

    def estimate(
        self, node: Invocation, overload: str, operands: Sequence[Operand], costs: Sequence[Range]
    ) -> Estimate:
        if overload in {"conditional", "add_string", "add_bytes", "add_list"}:
            *_, one, other = node.arguments
            entries = self.entries(one)
            self.keep_entries(node, entries and entries.union(self.entries(other)))
        if overload == "conditional":
            return Estimate(costs[0].plus(costs[1].union(costs[2])), operands[1].size.union(operands[2].size))
        cost, size = functions().by_id[overload].cost(operands)
        for argument in costs:
            cost = cost.plus(argument)
        return Estimate(cost, size)

    def operand(self, node: Node) -> Operand:
        path = self.path(node).names
        size = self.size(node)
        if path and path[0] == ACCUMULATOR:
            path = ()
        inner = declared_size((*path, "@items")) if node.type.of else None
        return Operand(node, node.type, size or declared_size(path) or UNKNOWN, inner)

    # --- literals and loops -------------------------------------------------------------------------

    def list_literal(self, node: ListOf) -> Range:
        cost = fixed(LIST_COST)
        size = NOTHING if node.entries else NONE
        for entry in node.entries:
            cost = cost.plus(self.cost(entry))
            size = size.union(self.size(entry) or UNKNOWN)
        self.keep_entries(node, _Entries(is_list=True, key=ONE, value=size))
        return cost

    def map_literal(self, node: MapOf) -> Range:
        cost = fixed(_MAP_COST)
        keys = values = NOTHING if node.entries else NONE
        for key, value in node.entries:
            cost = cost.plus(self.cost(key)).plus(self.cost(value))
            keys = keys.union(self.size(key) or UNKNOWN)
            values = values.union(self.size(value) or UNKNOWN)
        self.keep_entries(node, _Entries(is_list=False, key=keys, value=values))
        return cost

    def bound(self, node: Fold) -> Range:
        cost = self.cost(node.items).plus(self.cost(node.start))
        self.push(node.accumulator, _Variable(self.path(node.start), self.size(node.start), self.entries(node.start)))
        cost = cost.plus(self.cost(node.result))
        self.pop(node.accumulator)
        self.copy_sizes(node, node.result)
        return cost

    def fold(self, node: Fold) -> Range:
        cost = self.cost(node.items).plus(self.cost(node.start))
        self.push(node.accumulator, _Variable(self.path(node.start), self.size(node.start), self.entries(node.start)))
        bound = self.loop_variables(node)
        for name, variable in bound.items():
            self.push(name, variable)
        each = self.cost(node.condition).plus(self.cost(node.step))
        for name in bound:
            self.pop(name)
        cost = cost.plus(self.cost(node.result))
        self.pop(node.accumulator)
        count = self.size(node.items) or UNKNOWN
        if isinstance(node.start, Constant):
            self.keep_size(node, self.size(node.start))
        elif isinstance(node.start, ListOf | MapOf):
            self.keep_size(node, count)
            self.keep_entries(node, self.entries(node.step))
        return cost.plus(count.times(each))

    def loop_variables(self, node: Fold) -> dict[str, _Variable]:
        entries, path = self.entries(node.items), self.path(node.items)
        is_list = entries.is_list if entries is not None else node.items.type.kind == "list"
        key, value = entries and entries.key, entries and entries.value
        found = {}
        if node.second is not None or not is_list:
            found[node.variable] = _Variable(path.then("@indices" if is_list else "@keys"), key)
        if node.second is not None or is_list:
            found[node.second or node.variable] = _Variable(path.then("@items" if is_list else "@values"), value)
        return found

    # --- sizes --------------------------------------------------------------------------------------

    def variable(self, node: Node) -> _Variable | None:
        found = self.variables.get(node.name) if isinstance(node, Ident) else None
        return found[-1] if found else None

    def outermost(self, name: str) -> str:
        """The name of a variable without the dot before it, unless a macro binds that name."""
        plain = name.removeprefix(".")
        return name if self.variables.get(plain) else plain

    def push(self, name: str, variable: _Variable) -> None:
        self.variables.setdefault(name, []).append(variable)

    def pop(self, name: str) -> None:
        self.variables[name].pop()

    def path(self, node: Node) -> NodePath:
        variable = self.variable(node)
        return variable.path if variable is not None else self.paths.get(id(node)) or NodePath()

    def size(self, node: Node) -> Range | None:
        known = self.sizes.get(id(node)) or _written_size(node)
        if known is not None:
            return known
        known = declared_size(self.path(node).names)
        if known is not None:
            self.sizes[id(node)] = known
            return known
        if _is_scalar(node.type):
            return ONE
        variable = self.variable(node)
        return variable and variable.size

    def entries(self, node: Node) -> _Entries | None:
        known = self.entry_sizes.get(id(node))
        variable = self.variable(node)
        return known or (variable and variable.entries)

    def keep_size(self, node: Node, size: Range | None) -> None:
        if size is not None:
            self.sizes[id(node)] = size

    def keep_entries(self, node: Node, entries: _Entries | None) -> None:
        if entries is not None:
            self.entry_sizes[id(node)] = entries

    def copy_sizes(self, node: Node, source: Node) -> None:
        self.keep_size(node, self.size(source))
        self.keep_entries(node, self.entries(source))


_INDEXED: Final = {"index_list": "@items", "index_map": "@values"}


def _written_size(node: Node) -> Range | None:
    match node:
        case Constant(value=str() | bytes() as text):
            return fixed(len(text))
        case Constant():
            return ONE
        case ListOf() | MapOf():
            return fixed(len(node.entries))
        case _:
            return None


def _is_scalar(kind: CelType) -> bool:
    return kind.kind in SCALARS or (kind.is_optional and _is_scalar(kind.of[0]))
