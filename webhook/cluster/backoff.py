"""How long to wait before the next attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Backoff:
    """Waits that double, each cut by up to half at random, so that many replicas do not come back as one."""

    def __init__(self, first_seconds: float, most_seconds: float, random: Callable[[], float]) -> None:
        """`random` gives numbers in [0, 1)."""
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._random = random
        self.failures = 0
        """In a row."""

    def reset(self) -> None:
        """It went well."""
        self.failures = 0

    def next_seconds(self, retry_after_seconds: float = 0.0) -> float:
        """The wait after one more failure; not shorter than the server asked for, within the most we ever wait."""
        # 2**16 of anything is past the most, and floats end at 2**1024.
        seconds = min(self._first_seconds * 2.0 ** min(self.failures, 16), self._most_seconds)
        self.failures += 1
        asked = min(retry_after_seconds, self._most_seconds)
        return max(seconds * (1 - self._random() / 2), asked)
