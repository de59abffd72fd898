"""How long to wait before the next attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_DOUBLINGS_MOST: Final = 30
"""2**30 of any first wait is past the longest one, and floats end at 2**1024."""


def exponential_seconds(failures: int, first_seconds: float, most_seconds: float, random: Callable[[], float]) -> float:
    """The wait in seconds after `failures` earlier ones in a row: doubled with each, cut by up to half at random.

    `random` returns numbers in [0, 1). Replicas that failed together do not come back together.
    """
    seconds = min(first_seconds * 2.0 ** min(failures, _DOUBLINGS_MOST), most_seconds)
    return seconds * (1 - random() / 2)


class Backoff:
    """The waits between attempts at one thing."""

    def __init__(self, first_seconds: float, most_seconds: float, random: Callable[[], float]) -> None:
        """`random` returns numbers in [0, 1)."""
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._random = random
        self.failures = 0
        """In a row."""

    def reset(self) -> None:
        """The attempt succeeded."""
        self.failures = 0

    def next_seconds(self, retry_after_seconds: float = 0.0) -> float:
        """The wait after one more failure; at least the server's Retry-After, at most the longest wait."""
        seconds = exponential_seconds(self.failures, self._first_seconds, self._most_seconds, self._random)
        self.failures += 1
        return max(seconds, min(retry_after_seconds, self._most_seconds))
