"""When writes that were refused are tried again: soon at first, as a webhook may not know yet what they are for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, NamedTuple

from webhook.flowcontrol.rates import exponential_seconds

MOST_SECONDS: Final = 60.0
"""Policies change, and nothing reports it."""


def again_seconds(times: int) -> float:
    """Return the wait after that many refusals in a row, one at least: 1, 2, 4 ... seconds, then a minute."""
    return exponential_seconds(times - 1, 1.0, MOST_SECONDS, lambda: 0.0)  # only the leader writes


class _Attempt(NamedTuple):
    wanted: Hashable
    times: int
    at: float
    refused: str


class WriteAttempts:
    """What was written when, and what was refused.

    The same again has to wait, also where it was accepted: a webhook may change what is written each time. Times are
    seconds that only go forward.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Attempt] = {}

    def tried(self, name: str, wanted: Hashable, seconds: float, refused: str = "") -> float:
        """Note the answer to an attempt to give an object what is wanted; return how long the same has to wait.

        `refused` is why not, if it was refused.
        """
        known = self._current(name, wanted, seconds)
        times = 1 if known is None else known.times + 1
        self._known[name] = _Attempt(wanted, times, seconds, refused)
        return again_seconds(times)

    def left_seconds(self, name: str, wanted: Hashable, seconds: float) -> float:
        """Return how long it has to wait still; zero or less if it may be written."""
        known = self._current(name, wanted, seconds)
        return 0.0 if known is None else known.at + again_seconds(known.times) - seconds

    def refused(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return which of these were refused the last time, and why."""
        return {name: known.refused for name in names if (known := self._known.get(name)) and known.refused}

    def forget(self, name: str) -> None:
        """Forget an object that is as it should be, or gone."""
        self._known.pop(name, None)

    def expire(self, seconds: float) -> None:
        """Drop what is no longer tried."""
        self._known = {name: each for name, each in self._known.items() if _is_recent(each, seconds)}

    def clear(self) -> None:
        """Let everything be tried at once, as what decides about it has changed."""
        self._known.clear()

    def _current(self, name: str, wanted: Hashable, seconds: float) -> _Attempt | None:
        known = self._known.get(name)
        return known if known is not None and known.wanted == wanted and _is_recent(known, seconds) else None


def _is_recent(attempt: _Attempt, seconds: float) -> bool:
    return seconds - attempt.at < 2 * MOST_SECONDS
