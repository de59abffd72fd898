"""Words of messages: numbers with their nouns, and what an unknown name may have meant. Imports next to nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_MOST: Final = 3
_NEARLY: Final = 1.5
"""How many times as far as the nearest name another may be, and still be what was meant."""


def counted(number: int, noun: str) -> str:
    """A number and what it counts: `1 pod`, `2 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def nearest(word: str, known: Iterable[str], least: float = 0.6, quote: str = "") -> str:
    """Return `X`, `X or Y`, or `X, Y or Z`: names that begin so or are as alike; nothing where there are more."""
    # Late: only for mistakes; its import takes longer than a small command line.
    from difflib import SequenceMatcher, get_close_matches  # noqa: PLC0415

    names = sorted(set(known))
    close = [each for each in names if word and each.startswith(word)]
    if not close:
        close = get_close_matches(word, names, _MOST + 1, least)
        far = [1 - SequenceMatcher(None, each, word).ratio() for each in close]
        close = [each for each, distance in zip(close, far, strict=True) if distance <= far[0] * _NEARLY]
    *others, last = [f"{quote}{each}{quote}" for each in close] or [""]
    return "" if len(close) > _MOST else " or ".join(filter(None, (", ".join(others), last)))
