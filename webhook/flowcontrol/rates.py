"""Rates, waits and clocks: what needs no event loop.

Token buckets are as in client-go's util/flowcontrol; `seeds.md` N-13 and N-18.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

_HAIR: Final = 1e-9
"""Rounding error that adding up fractions of a token may leave."""


class Rate(NamedTuple):
    """How many per second, and how many at once after a quiet time."""

    per_second: float
    burst: int


class TokenBucket:
    """A bucket that starts full; each operation takes a token."""

    __slots__ = ("_at", "_tokens", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._tokens = float(rate.burst)
        self._at = now

    def _refill(self, now: float) -> None:
        gained = max(now - self._at, 0.0) * self.rate.per_second
        self._tokens = min(self._tokens + gained, float(self.rate.burst))
        self._at = now

    def change(self, rate: Rate, now: float) -> None:
        """Use another rate from now on; tokens are kept, so a change starts no fresh burst (N-18)."""
        if rate != self.rate:
            self._refill(now)
            self.rate = rate

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until there is a token; 0 if there is one."""
        self._refill(now)
        missing = 1.0 - self._tokens
        return 0.0 if missing <= _HAIR else missing / self.rate.per_second

    def take(self, now: float, *, owing: bool = False) -> float:
        """Take a token, and return what was taken: less than one if another bucket, of a higher rate, let it through.

        An empty bucket goes into debt only for an operation that may owe its token; the next ones wait for that.
        """
        self._refill(now)
        taken = 1.0 if owing else max(min(self._tokens, 1.0), 0.0)
        self._tokens -= taken
        return taken

    def give_back(self, tokens: float) -> None:
        """Put tokens back: the operation that took them did not happen after all."""
        self._tokens = min(self._tokens + tokens, float(self.rate.burst))

    def full(self, now: float) -> bool:
        """Return whether it is as good as new, so that it can be forgotten (N-16)."""
        self._refill(now)
        return self._tokens >= self.rate.burst - _HAIR


_DOUBLINGS_MOST: Final = 30
"""2**30 of any first wait is past the longest one, and floats end at 2**1024."""


def exponential_seconds(failures: int, first_seconds: float, most_seconds: float, random: Callable[[], float]) -> float:
    """Return the wait after `failures` earlier ones in a row: doubled with each, cut by up to half at random.

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
        """Begin with the first wait again: the attempt succeeded."""
        self.failures = 0

    def next_seconds(self, retry_after_seconds: float = 0.0) -> float:
        """Return the wait after one more failure: at least the server's Retry-After, at most the longest wait."""
        seconds = exponential_seconds(self.failures, self._first_seconds, self._most_seconds, self._random)
        self.failures += 1
        return max(seconds, min(retry_after_seconds, self._most_seconds))


_BOOTTIME: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", None)


def boottime_seconds() -> float:
    """Return seconds that only go forward, from any origin; where CLOCK_BOOTTIME is missing, those of time.monotonic.

    On Linux time.monotonic stands still while a machine is suspended, and the timers of the event loop with it: a lease
    would seem to last, and caches to be current. Waits on the loop end late after that, never early.
    """
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class Clock:
    """Wall-clock and monotonic time."""

    def now(self) -> datetime:
        """Return wall-clock time in UTC, for what the API says."""
        return datetime.now(UTC)  # noqa: TID251 -- the shell's clock

    def seconds(self) -> float:
        """Return `boottime_seconds`, for waits and rates."""
        return boottime_seconds()
