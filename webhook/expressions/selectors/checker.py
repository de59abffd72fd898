"""The type of each part of a selector, and which overloads each call can mean. Source: cel-go checker/checker.go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from webhook.expressions.selectors import kinds
from webhook.expressions.selectors.faults import Charge, FaultKind, SelectorError, free
from webhook.expressions.selectors.functions import Overload, functions
from webhook.expressions.selectors.kinds import BOOL, DYN, INT, TYPE_NAMES, CelType, Substitutions
from webhook.expressions.selectors.syntax import (
    Constant,
    Field,
    Fold,
    Ident,
    Invocation,
    ListOf,
    MapOf,
    Message,
    Node,
    children,
    walk,
)
from webhook.expressions.selectors.texts import PATTERNS, PatternFault, charge_pattern, compiled_pattern
from webhook.expressions.selectors.values import UInt

_CONSTANTS: Final[dict[type, CelType]] = {
    bool: BOOL,
    int: INT,
    UInt: kinds.UINT,
    float: kinds.DOUBLE,
    str: kinds.STRING,
    bytes: kinds.BYTES,
    type(None): kinds.NULL,
}
OPTIONAL_OF_UNKNOWN: Final = "an optional entry of unknown type"
"""In a list or a map. The compiler of Kubernetes 1.37 panics at it, and the API server closes the connection."""
_ANY_LENGTH: Final = frozenset({"dyn", "error", "parameter"})
_NODE_STEPS: Final = 10
"""To check, price and build a part of a selector, beside looks at its types."""
_MIXED_ALLOWED: Final = "format"
"""The function whose arguments may be lists of mixed types."""


def check(root: Node, charge: Charge = free) -> CelType:
    """The type of the whole expression; nodes know theirs then. `charge` takes the steps. Raises SelectorError."""
    checker = _Checker(charge)
    checker.check(root)
    for node, _ in walk(root):
        node.type = checker.found.resolved(node.type, final=True)
    _refuse_mixed(root)
    _refuse_patterns(root, charge)
    return root.type


class _Checker:
    """`scopes` are the variables of loops, the innermost last."""

    def __init__(self, charge: Charge) -> None:
        self.charge = charge
        self.found = Substitutions(charge)
        self.scopes: list[dict[str, CelType]] = []

    def check(self, node: Node) -> CelType:
        self.charge(_NODE_STEPS + len(self.scopes))
        match node:
            case Constant():
                node.type = _CONSTANTS[type(node.value)]
            case Ident():
                node.type = self.ident(node)
            case Field():
                node.type = self.field(node)
            case Invocation():
                node.type = self.call(node)
            case ListOf():
                node.type = self.list_literal(node)
            case MapOf():
                node.type = self.map_literal(node)
            case Fold():
                node.type = self.fold(node)
            case Message():
                raise self.message(node)
        return node.type

    # --- names --------------------------------------------------------------------------------------

    def ident(self, node: Ident) -> CelType:
        if not node.name.startswith("."):
            for scope in reversed(self.scopes):
                if node.name in scope:
                    return scope[node.name]
        name = node.name.removeprefix(".")
        kind = kinds.VARIABLES.get(name) or TYPE_NAMES.get(name)
        if kind is None:
            raise undeclared(node.name)
        return kind

    def message(self, node: Message) -> SelectorError:
        name = node.name.removeprefix(".")
        if name in TYPE_NAMES or name.startswith(("google.protobuf.", "kubernetes.")):
            return SelectorError.unsupported(f"messages ({name})")
        return undeclared(name)

    def field(self, node: Field) -> CelType:
        name = dotted_name(node) or ""
        if name in TYPE_NAMES and not any(name.partition(".")[0] in scope for scope in self.scopes):
            node.names_type = True
            return TYPE_NAMES[name]
        kind = self.selected(node.operand, node.name, optional=False)
        return BOOL if node.test else self.found.resolved(kind)

    def selected(self, operand: Node, name: str, *, optional: bool) -> CelType:
        """The type of a field, which is optional if what it is of is."""
        self.check(operand)
        kind = self.found.resolved(operand.type)
        optional = optional or kind.is_optional
        if kind.is_optional:
            kind = kind.of[0]
        match kind.kind:
            case "map":
                result = kind.of[1]
            case "object":
                if kind != kinds.DEVICE or name not in kinds.DEVICE_FIELDS:
                    raise SelectorError.invalid(f"undefined field '{name}'")
                result = kinds.DEVICE_FIELDS[name]
            case "parameter":
                self.found.fits([DYN], [kind])
                result = DYN
            case "dyn" | "any" | "error":
                result = DYN
            case _:
                raise SelectorError.invalid(f"type '{kind}' does not support field selection")
        return kinds.optional_of(result) if optional else result

    # --- calls --------------------------------------------------------------------------------------

    def call(self, node: Invocation) -> CelType:
        if node.function == "_?._":
            return self.optional_field(node)
        for argument in node.arguments:
            self.check(argument)
        known = functions().by_name
        target = node.target
        if target is not None:
            prefix = dotted_name(target)
            name = f"{prefix.removeprefix('.')}.{node.function}" if prefix is not None else ""
            if name in known:
                node.function, node.target, target = name, None, None
            else:
                self.check(target)
        overloads = known.get(node.function.removeprefix("."))
        if overloads is None:
            raise undeclared(node.function)
        node.function = node.function.removeprefix(".")
        if node.function in {"_&&_", "_||_"}:
            return self.logical(node, overloads[0])
        given = [operand.type for operand in ([target] if target is not None else []) + node.arguments]
        return self.resolved(node, overloads, given)

    def optional_field(self, node: Invocation) -> CelType:
        operand, field = node.arguments
        assert isinstance(field, Constant)
        field.type = kinds.STRING
        node.overloads = ("select_optional_field",)
        return self.found.resolved(self.selected(operand, field.value, optional=True))

    def logical(self, node: Invocation, overload: Overload) -> CelType:
        for argument in node.arguments:
            self.must_fit(argument.type, BOOL)
        node.overloads = (overload.id,)
        return BOOL

    def resolved(self, node: Invocation, overloads: Sequence[Overload], given: list[CelType]) -> CelType:
        """The result of the overloads that fit: its type if they agree, else dyn."""
        fitting: list[str] = []
        result: CelType | None = None
        for overload in overloads:
            if overload.method != (node.target is not None):
                continue
            stand_ins: dict[str, CelType] = defaultdict(self.found.fresh)
            if not self.found.fits(given, [_instance(kind, stand_ins) for kind in overload.arguments]):
                continue
            fitting.append(overload.id)
            found = self.found.resolved(_instance(overload.result, stand_ins))
            if result is None:
                result = found
            elif not result.is_dynamic and found != result:
                result = DYN
        if result is None:
            shown = ", ".join(str(self.found.resolved(kind, final=True)) for kind in given)
            raise SelectorError.invalid(f"found no matching overload for '{node.function}' applied to '({shown})'")
        node.overloads = tuple(fitting)
        return result

    # --- literals and loops -------------------------------------------------------------------------

    def list_literal(self, node: ListOf) -> CelType:
        element: CelType | None = None
        for position, entry in enumerate(node.entries):
            element = self.joined(element, self.entry(entry, optional=position in node.optional))
        return kinds.list_of(element or self.found.fresh())

    def map_literal(self, node: MapOf) -> CelType:
        key: CelType | None = None
        value: CelType | None = None
        for position, (each, entry) in enumerate(node.entries):
            key = self.joined(key, self.check(each))
            value = self.joined(value, self.entry(entry, optional=position in node.optional))
        return kinds.map_of(key or self.found.fresh(), value or self.found.fresh())

    def entry(self, node: Node, *, optional: bool) -> CelType:
        kind = self.check(node)
        if optional and kind.is_optional:
            return kind.of[0]
        if optional and not kind.is_dynamic:
            raise SelectorError.invalid(f"expected type 'optional_type({kind})' but found '{kind}'")
        return kind

    def joined(self, before: CelType | None, kind: CelType) -> CelType:
        if before is None:
            return kind
        return kinds.most_general(before, kind) if self.found.fits([before], [kind]) else DYN

    def must_fit(self, one: CelType, other: CelType) -> None:
        if not self.found.fits([one], [other]):
            shown = [self.found.resolved(kind, final=True) for kind in (one, other)]
            raise SelectorError.invalid(f"expected type '{shown[1]}' but found '{shown[0]}'")

    def fold(self, node: Fold) -> CelType:
        items = self.found.resolved(self.check(node.items))
        start = self.check(node.start)
        first, second = self.entries_of(items, two=node.second is not None)
        self.scopes.append({node.accumulator: start})
        self.scopes.append({node.variable: first, **({node.second: second} if node.second else {})})
        self.must_fit(BOOL, self.check(node.condition))
        self.must_fit(start, self.check(node.step))
        self.scopes.pop()
        result = self.check(node.result)
        self.scopes.pop()
        return self.found.resolved(result)

    def entries_of(self, items: CelType, *, two: bool) -> tuple[CelType, CelType]:
        match items.kind:
            case "list":
                return (INT, items.of[0]) if two else (items.of[0], DYN)
            case "map":
                return items.of[0], items.of[1]
            case kind if kind in _ANY_LENGTH:
                self.found.fits([DYN], [items])
                return DYN, DYN
            case _:
                raise SelectorError.invalid(
                    f"expression of type '{items}' cannot be range of a comprehension (must be list, map, or dynamic)"
                )


def undeclared(name: str) -> SelectorError:
    """The error for a name that means nothing."""
    return SelectorError.invalid(f"undeclared reference to '{name}'")


def dotted_name(node: Node) -> str | None:
    """`a.b.c`, if that is what the node spells."""
    parts: list[str] = []
    while isinstance(node, Field) and not node.test:
        parts.append(node.name)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    return ".".join([node.name, *reversed(parts)])


def _instance(kind: CelType, stand_ins: dict[str, CelType]) -> CelType:
    if not kind.is_open:
        return kind
    if kind.kind == "parameter":
        return stand_ins[kind.name]
    return CelType(kind.kind, kind.name, tuple([_instance(inner, stand_ins) for inner in kind.of]))


def _refuse_mixed(root: Node) -> None:
    """Literals whose entries are of different types, dyn included. An optional entry of unknown type comes first."""
    different = [pair for literal in _literals(root) for pair in _different(literal)]
    if different:
        wanted, kind = different[0]
        raise SelectorError.invalid(f"expected type '{wanted}' but found '{kind}'")


def _literals(root: Node) -> Iterator[ListOf | MapOf]:
    """All but those for the one function that takes entries of any types."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ListOf | MapOf):
            yield node
        if not (isinstance(node, Invocation) and node.function == _MIXED_ALLOWED):
            waiting += reversed(children(node))


def _different(literal: ListOf | MapOf) -> Iterator[tuple[CelType, CelType]]:
    """The types of entries that are not that of the first one; of a list, whose rest is not looked at, one."""
    if isinstance(literal, ListOf):
        types = (_entry_type(entry, at in literal.optional) for at, entry in enumerate(literal.entries))
        yield from islice(_unlike_first(types), 1)
    else:
        yield from _unlike_first(key.type for key, _ in literal.entries)
        values = enumerate(literal.entries)
        yield from _unlike_first(_entry_type(value, at in literal.optional) for at, (_, value) in values)


def _refuse_patterns(root: Node, charge: Charge) -> None:
    """What the API server takes for the pattern of `matches`: the first argument, even of `matches(text, pattern)`."""
    for node, _ in walk(root):
        if isinstance(node, Invocation) and node.function in PATTERNS:
            for argument in node.arguments:
                if isinstance(argument, Constant) and isinstance(argument.value, str):
                    charge_pattern(charge, argument.value)
        match node:
            case Invocation(function="matches", arguments=[Constant(value=str(pattern)), *_]):
                if compiled_pattern(pattern) is PatternFault.ILLEGAL:
                    raise SelectorError.invalid("invalid matches argument")
            case _:
                pass


def _entry_type(entry: Node, optional: bool) -> CelType:  # noqa: FBT001 -- of a position
    if optional and not entry.type.of:
        raise SelectorError(FaultKind.INTERNAL, OPTIONAL_OF_UNKNOWN)
    return entry.type.of[0] if optional else entry.type


def _unlike_first(found: Iterable[CelType]) -> Iterator[tuple[CelType, CelType]]:
    first: CelType | None = None
    for kind in found:
        first = first or kind
        if kind != first:
            yield first, kind
