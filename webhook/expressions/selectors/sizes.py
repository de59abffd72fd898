"""Ranges of costs and sizes, which end at 64 bits. Source: cel-go checker/cost.go, common/cost.go."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from webhook.expressions.selectors.values import MAX_UINT

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
