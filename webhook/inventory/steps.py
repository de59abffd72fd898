"""Loops over the inventory that can be stopped: a check is called now and then, and may raise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias, TypeVar

Check: TypeAlias = Callable[[], None]
"""Called now and then during long work; may raise to end it."""
BETWEEN_CHECKS: Final = 1000
"""Devices, claims, rules or groups of them that are looked at between two checks: about a millisecond."""
_T = TypeVar("_T")


def unchecked() -> None:
    """For callers that may take as long as they like."""


def in_steps(items: Iterable[_T], check: Check, size: int = BETWEEN_CHECKS) -> Iterator[_T]:
    """The items; `check` is called before the first and after every `size` of them."""
    left = 0
    for item in items:
        if left <= 0:
            check()
            left = size
        left -= 1
        yield item
