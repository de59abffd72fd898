"""A clock that a test sets."""

from __future__ import annotations


class Clock:
    """Shows the seconds that a test has set."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds
