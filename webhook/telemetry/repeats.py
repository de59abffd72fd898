"""Rate limits for repeated log lines: often enough that the log of the last hour shows a lasting fault."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_AGAIN_SECONDS: Final = 300.0
"""A fault that lasts is logged again this often."""


class LastingFault:
    """A fault that lasts over many attempts: logged when it begins, when it changes, and every five minutes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns monotonic seconds."""
        self._clock = clock
        self._since = 0.0
        self._logged_at = 0.0
        self.text = ""
        """The error of the last attempt; empty after a success."""
        self.attempts = 0
        """Failed attempts in a row."""

    def failed(self, text: str) -> bool:
        """Counts a failed attempt; returns whether to log it."""
        now = self._clock()
        if not self.attempts:
            self._since = now
        due = text != self.text or not self.attempts or now - self._logged_at >= _AGAIN_SECONDS
        self.attempts += 1
        self.text = text
        if due:
            self._logged_at = now
        return due

    def ended(self) -> None:
        """Ends the fault: an attempt succeeded."""
        self.attempts, self.text = 0, ""

    @property
    def fields(self) -> dict[str, float]:
        """For the log line: the number of failed attempts, and the seconds since the first."""
        return {"attempt": self.attempts, "sinceSeconds": round(self._clock() - self._since, 1)}


class Sampled:
    """Logs at most one event in each interval, with the number of events since the last logged one."""

    def __init__(self, every_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._every_seconds = every_seconds
        self._clock = clock
        self._logged_at: float | None = None
        self._times = 0

    def take(self) -> int:
        """Counts an event. Returns 0 if it is not to be logged, else the number of events since the last logged one."""
        now = self._clock()
        self._times += 1
        if self._logged_at is not None and now - self._logged_at < self._every_seconds:
            return 0
        times, self._times, self._logged_at = self._times, 0, now
        return times
