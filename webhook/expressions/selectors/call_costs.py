"""What a row of the table of functions has, and what calls cost at worst: ranges, which end at 64 bits.

Source: k8s.io/apiserver/pkg/cel/library/cost.go and cel-go ext/lists.go, ext/sets.go, checker/cost.go, common/cost.go.
The API server refuses selectors by these figures, so they are its own, odd ones included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from webhook.expressions.selectors.kinds import CelType
from webhook.expressions.selectors.syntax import Node
from webhook.expressions.selectors.values import MAX_UINT

# --- ranges -------------------------------------------------------------------------------------

TRAVERSAL: Final = 0.1
"""What looking at one character costs."""
PATTERN: Final = 0.25
"""What one character of a regular expression costs."""
LIST_COST: Final = 10


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
"""The target comes first."""
Estimator = Callable[[Operands], Estimate]


def unit(_given: Operands) -> Estimate:
    """Estimate a call that costs 1, as most do."""
    return Estimate(ONE)


class Function(NamedTuple):
    """A row of the table of functions: one way to call one, what evaluates it, and what that costs at worst.

    `declared` has the name, that of the overload, and the types: `size list_size list(A).() -> int`. The target stands
    before `.(`; a capital letter is any type. Without `run` a call is only checked and priced. Where it is `counted`,
    `run` is given what takes steps first, and takes them for each part of what it looks at and makes.
    """

    declared: str
    run: Callable[..., Any] | None = None
    cost: Estimator = unit
    counted: bool = False


def counted(declared: str, run: Callable[..., Any], cost: Estimator = unit) -> Function:
    """Return the row of a function that is counted."""
    return Function(declared, run, cost, counted=True)


def look(position: int = 0, times: int = 1) -> Estimator:
    """Estimate calls that look `times` at each character of an operand."""
    return lambda given: Estimate(given[position].size.scaled(times * TRAVERSAL))


def keep(given: Operands) -> Estimate:
    """Estimate a call whose result is as large as its first operand."""
    return Estimate(given[0].size.scaled(TRAVERSAL), given[0].size)


def compare(given: Operands) -> Estimate:
    """Estimate `<`, `!=` and their kin."""
    most = min(given[0].size.most, given[1].size.most)
    return Estimate(fixed(most).scaled(TRAVERSAL))


def aggregate(given: Operands) -> Estimate:
    """Estimate `sum`, `indexOf` and their kin."""
    target = given[0]
    return Estimate(each_entry(target) if target.type.of else target.size.scaled(TRAVERSAL))


def each_entry(target: Operand) -> Range:
    """Return what a look at all of each entry of a list costs."""
    each = ONE
    if target.type.of[0].kind in {"string", "bytes"}:
        each = each.plus((target.entries or UNKNOWN).scaled(TRAVERSAL))
    return target.size.times(each)
