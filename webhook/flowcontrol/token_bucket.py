"""A token bucket: a rate per second on average, and a burst. Pure: seconds come in as arguments.

Source: client-go util/flowcontrol; `semantics.md` N-13 and N-18.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_HAIR: Final = 1e-9
"""Rounding error that adding up fractions of a token may leave."""


class Rate(NamedTuple):
    """How many per second, and how many at once after a quiet time."""

    per_second: float
    burst: int


class TokenBucket:
    """Starts full; each operation takes a token."""

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
        """Another rate from now on; tokens are kept, so a change starts no fresh burst (N-18)."""
        if rate != self.rate:
            self._refill(now)
            self.rate = rate

    def wait_seconds(self, now: float) -> float:
        """Until there is a token; 0 if there is one."""
        self._refill(now)
        missing = 1.0 - self._tokens
        return 0.0 if missing <= _HAIR else missing / self.rate.per_second

    def take(self, now: float, *, owing: bool = False) -> float:
        """One operation; returns the tokens it took: less than one if another bucket, of a higher rate, let it through.

        An empty bucket goes into debt only for an operation that may owe its token; the next ones wait for that.
        """
        self._refill(now)
        taken = 1.0 if owing else max(min(self._tokens, 1.0), 0.0)
        self._tokens -= taken
        return taken

    def give_back(self, tokens: float) -> None:
        """The operation that took them did not happen after all."""
        self._tokens = min(self._tokens + tokens, float(self.rate.burst))

    def full(self, now: float) -> bool:
        """Whether it is as good as new, so that it can be forgotten (N-16)."""
        self._refill(now)
        return self._tokens >= self.rate.burst - _HAIR
