"""What calls cost at worst, and how large their results are: ranges, which end at 64 bits.

Source: k8s.io/apiserver/pkg/cel/library/cost.go and cel-go ext/lists.go, ext/sets.go, checker/cost.go, common/cost.go.
The API server refuses selectors by these figures, so they are its own, odd ones included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from webhook.expressions.selectors import kinds
from webhook.expressions.selectors.kinds import CelType
from webhook.expressions.selectors.syntax import Constant, Node
from webhook.expressions.selectors.values import MAX_UINT

# --- ranges -------------------------------------------------------------------------------------

TRAVERSAL: Final = 0.1
"""What looking at one character costs."""
PATTERN: Final = 0.25
"""What one character of a regular expression costs."""
LIST_COST: Final = 10
MAP_COST: Final = 30


class Range(NamedTuple):
    """From `least` to `most`, both included: a cost, a number of characters or a number of entries."""

    least: int
    most: int

    def plus(self, other: Range) -> Range:
        """The sums."""
        return Range(min(self.least + other.least, MAX_UINT), min(self.most + other.most, MAX_UINT))

    def times(self, other: Range) -> Range:
        """The products."""
        return Range(min(self.least * other.least, MAX_UINT), min(self.most * other.most, MAX_UINT))

    def scaled(self, factor: float) -> Range:
        """By a factor, rounded up."""
        return Range(scaled(self.least, factor), scaled(self.most, factor))

    def union(self, other: Range) -> Range:
        """The range that has both in it."""
        return Range(min(self.least, other.least), max(self.most, other.most))


def scaled(number: int, factor: float) -> int:
    """By a factor, rounded up, at most 64 bits."""
    product = float(number) * factor
    return MAX_UINT if product >= 2.0**64 else math.ceil(product)


def fixed(number: int) -> Range:
    """Exactly one number."""
    return Range(number, number)


NONE: Final = fixed(0)
ONE: Final = fixed(1)
UNKNOWN: Final = Range(0, MAX_UINT)
"""A size that nothing is known of."""
NOTHING: Final = Range(MAX_UINT, 0)
"""What a union starts with."""


# --- calls --------------------------------------------------------------------------------------


class Operand(NamedTuple):
    """An argument: its size, UNKNOWN if nothing is known, and that of its entries if it is a list."""

    node: Node
    type: CelType
    size: Range
    entries: Range | None = None


class Estimate(NamedTuple):
    """The cost of a call at most, without its arguments, and the size of its result if that is known."""

    cost: Range
    size: Range | None = None


Operands = Sequence[Operand]
Estimator = Callable[[Operands], Estimate | None]

_NAME_PATTERN_MAX: Final = 128
_FORMAT_MAX: Final = 64
_ADDRESS: Final = fixed(16)
_KEPT: Final = frozenset({"url", "lowerAscii", "upperAscii", "substring", "trim"})
_TRAVERSED: Final = frozenset({"cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"})
_AGGREGATES: Final = frozenset({"isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"})
_CHEAP: Final = frozenset({
    "masked", "prefixLength", "family", "isUnspecified", "isLoopback",
    "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast", "format.named", "sign", "asInteger",
    "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "add", "sub", "major",
    "minor", "patch", "getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery",
})  # fmt: skip


def library_estimate(function: str, overload: str, target: Operand | None, given: Operands) -> Estimate | None:  # noqa: PLR0911 -- a table
    """What Kubernetes says of a call; None if that is left to CEL."""
    if function in _CHEAP:
        return Estimate(ONE)
    if function in _AGGREGATES and target is not None:
        return Estimate(_aggregate(function, target))
    if function in _KEPT:
        whole = target or (given[0] if given else None)
        return None if whole is None else Estimate(whole.size.scaled(TRAVERSAL), whole.size)
    if function in _TRAVERSED and given:
        return Estimate(given[0].size.scaled(TRAVERSAL))
    match function:
        case "ip":
            return Estimate(ONE if overload == "cidr_ip" else given[0].size.scaled(TRAVERSAL))
        case "ip.isCanonical":
            return Estimate(given[0].size.scaled(2 * TRAVERSAL))
        case "containsIP" | "containsCIDR":
            return Estimate(_address(function, overload, given[0]))
        case "validate":
            return Estimate(given[0].size.scaled(TRAVERSAL).scaled(_NAME_PATTERN_MAX * PATTERN))
        case "_==_":
            return _equality(given)
        case _:
            return None if target is None else _text(function, target, given)


def _aggregate(function: str, target: Operand) -> Range:
    each = ONE
    if target.type.of:
        element = target.type.of[0]
        if element.kind in {"string", "bytes"}:
            each = each.plus((target.entries or UNKNOWN).scaled(TRAVERSAL))
        return target.size.times(each)
    return target.size if function == "includes" else target.size.scaled(TRAVERSAL)


def _address(function: str, overload: str, other: Operand) -> Range:
    cost = _ADDRESS.plus(_ADDRESS).scaled(TRAVERSAL)
    if function == "containsCIDR":
        cost = cost.plus(_ADDRESS.scaled(TRAVERSAL)).plus(ONE)
    return cost.plus(other.size.scaled(TRAVERSAL)) if overload.endswith("_string") else cost


def _equality(given: Operands) -> Estimate | None:
    one, other = given
    if one.type != other.type:
        return None
    if one.type in {kinds.IP, kinds.CIDR, kinds.QUANTITY, kinds.SEMVER}:
        return Estimate(ONE)
    if one.type == kinds.NAMED_FORMAT:
        return Estimate(fixed(_FORMAT_MAX).scaled(TRAVERSAL))
    if one.type == kinds.URL:
        most = other.size.most if other.size != UNKNOWN else 1
        return Estimate(fixed(most).scaled(TRAVERSAL))
    return None


def _text(function: str, target: Operand, given: Operands) -> Estimate | None:
    size = target.size
    match function:
        case "replace":
            return Estimate(size.scaled(2 * TRAVERSAL), _replaced(size, given[0].size, given[1].size))
        case "split":
            most = size.most
            if len(given) > 1 and isinstance(given[1].node, Constant):
                most = given[1].node.value % 2**64
            return Estimate(size.scaled(2 * TRAVERSAL), Range(0, most))
        case "join":
            return _joined(target, given)
        case "find" | "findAll":
            cost = size.plus(ONE).scaled(TRAVERSAL).times(given[0].size.scaled(PATTERN))
            return Estimate(cost, Range(0, size.most))
        case _:
            return None


def _replaced(size: Range, old: Range, new: Range) -> Range:
    """The size of a text in which one part is replaced by another."""
    if old.least == 0:
        most, kept_most = min(size.most + 1, MAX_UINT), size.most
    elif new.most <= old.least:
        most, kept_most = 0, size.most
    else:
        most, kept_most = math.ceil(float(size.most) / float(old.least)), 0
    if old.most == 0:
        least, kept_least = min(size.least + 1, MAX_UINT), size.least
    elif old.most <= new.least:
        least, kept_least = 0, size.least
    else:
        least, kept_least = math.ceil(float(size.least) / float(old.most)), 0
    return Range(least, min(most, MAX_UINT)).times(new).plus(Range(kept_least, kept_most))


def _joined(target: Operand, given: Operands) -> Estimate:
    size = target.size.times(target.entries or UNKNOWN) if target.type.of else NONE
    if given:
        between = Range(max(target.size.least - 1, 0), max(target.size.most - 1, 0))
        size = size.plus(given[0].size.times(between))
    return Estimate(size.scaled(TRAVERSAL), size)


# --- by overload --------------------------------------------------------------------------------


def _list_call(factor: float, size: Range) -> Estimate:
    return Estimate(size.scaled(factor).plus(ONE).plus(fixed(LIST_COST)), size)


def _whole(operand: Operand, otherwise: int) -> int:
    """The number that an argument spells."""
    if isinstance(operand.node, Constant) and type(operand.node.value) is int:
        return max(operand.node.value, 0)
    return otherwise


def _slice(given: Operands) -> Estimate:
    start, end = _whole(given[1], 0), _whole(given[2], given[0].size.most)
    return _list_call(1, fixed((end - start) % 2**64))


def _flatten(given: Operands) -> Estimate:
    depth = _whole(given[1], MAX_UINT) if len(given) == 2 else 1
    return _list_call(float(depth), given[0].size)


def _ordered(factor: float, position: int) -> Estimator:
    return lambda given: _list_call(factor, given[position].size.times(given[position].size))


def _sets(factor: float) -> Estimator:
    return lambda given: Estimate(given[0].size.times(given[1].size).scaled(factor).plus(ONE))


def _compared(given: Operands) -> Estimate:
    most = min(given[0].size.most, given[1].size.most)
    return Estimate(fixed(most).scaled(TRAVERSAL))


def _matched(given: Operands) -> Estimate:
    return Estimate(given[0].size.plus(ONE).scaled(TRAVERSAL).times(given[1].size.scaled(PATTERN)))


def _contained(given: Operands) -> Estimate:
    return Estimate(given[0].size.scaled(TRAVERSAL).times(given[1].size.scaled(TRAVERSAL)))


def _affix(given: Operands) -> Estimate:
    return Estimate(given[1].size.scaled(TRAVERSAL))


def _to_bytes(given: Operands) -> Estimate:
    size = given[0].size
    return Estimate(size.scaled(TRAVERSAL), Range(size.least, size.most * 4 % 2**64))


def _to_text(given: Operands) -> Estimate:
    size = given[0].size
    return Estimate(size.scaled(TRAVERSAL), Range(size.least // 4, size.most))


def _quoted(given: Operands) -> Estimate:
    size = given[0].size
    return Estimate(size.scaled(TRAVERSAL), Range((size.least + 2) % 2**64, (size.most * 2 + 2) % 2**64))


def _added(given: Operands) -> Estimate:
    size = given[0].size.plus(given[1].size)
    return Estimate(size.scaled(TRAVERSAL), size)


_SORTABLE: Final = ("int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp")
_SORTABLE_TEXTS: Final = ("string", "bytes")
_ORDERS: Final = ("less", "less_equals", "greater", "greater_equals")

BEFORE_LIBRARY: Final[Mapping[str, Estimator]] = {
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": lambda given: _list_call(1, fixed(_whole(given[0], MAX_UINT))),
    "list_reverse": lambda given: _list_call(1, given[0].size),
    "list_distinct": _ordered(2.0, 0),
    **{f"list_{kind}_sort": _ordered(2.0, 0) for kind in _SORTABLE},
    **{f"list_{kind}_sort": _ordered(2.0 + TRAVERSAL, 0) for kind in _SORTABLE_TEXTS},
    **{f"list_{kind}_sortByAssociatedKeys": _ordered(2.0, 1) for kind in _SORTABLE},
    **{f"list_{kind}_sortByAssociatedKeys": _ordered(2.0 + TRAVERSAL, 1) for kind in _SORTABLE_TEXTS},
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}
"""Estimates by overload, which come before those of Kubernetes; the target is the first operand."""

AFTER_LIBRARY: Final[Mapping[str, Estimator]] = {
    "string_format": lambda given: Estimate(given[0].size.scaled(TRAVERSAL)),
    "string_to_bytes": _to_bytes,
    "bytes_to_string": _to_text,
    "strings_quote": _quoted,
    "starts_with_string": _affix,
    "ends_with_string": _affix,
    "in_list": lambda given: Estimate(given[1].size.scaled(1)),
    "matches": _matched,
    "matches_string": _matched,
    "contains_string": _contained,
    "add_string": _added,
    "add_bytes": _added,
    "add_list": lambda given: Estimate(ONE, given[0].size.plus(given[1].size)),
    "equals": _compared,
    "not_equals": _compared,
    **{f"{order}_{kind}": _compared for order in _ORDERS for kind in _SORTABLE_TEXTS},
}
"""CEL's own estimates by overload. Every other call costs 1."""
