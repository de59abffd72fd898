"""How fast and how many: token buckets, a sliding minute, and what is under way. Pure: seconds come in as arguments.

Source: `semantics.md` N-13 to N-18; the policy's eviction profiles.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

MINUTE_SECONDS: Final = 60.0
_HAIR: Final = 1e-9
"""What adding up fractions of a token may leave short of a whole one."""


class Rate(NamedTuple):
    """Evictions per second, and how many may come at once (N-13)."""

    per_second: float
    burst: int


class TokenBucket:
    """Starts full; a token for each eviction."""

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
        """Another rate from now on; what it has is kept (N-18: a rule that changes starts no fresh burst)."""
        if rate != self.rate:
            self._refill(now)
            self.rate = rate

    def wait_seconds(self, now: float) -> float:
        """Until there is a token; 0 if there is one."""
        self._refill(now)
        missing = 1.0 - self._tokens
        return 0.0 if missing <= _HAIR else missing / self.rate.per_second

    def take(self, now: float) -> None:
        """One eviction; an empty bucket goes into no debt for what another one, of a higher rate, let through."""
        self._refill(now)
        self._tokens = max(self._tokens - 1.0, 0.0)

    def give_back(self) -> None:
        """Nothing was evicted after all."""
        self._tokens = min(self._tokens + 1.0, float(self.rate.burst))

    def full(self, now: float) -> bool:
        """Whether it is as good as new, so that it can be forgotten (N-16)."""
        self._refill(now)
        return self._tokens >= self.rate.burst - _HAIR


class Buckets:
    """A bucket for each taint that evicts; of several the highest rate wins (N-14). Keys are the caller's."""

    def __init__(self) -> None:
        self._buckets: dict[object, TokenBucket] = {}

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_seconds(self, rates: Iterable[tuple[object, Rate]], now: float) -> float:
        """The smallest wait that any of the buckets gives; 0 without any."""
        waits = [self._bucket(key, rate, now).wait_seconds(now) for key, rate in rates]
        return min(waits, default=0.0)

    def take(self, rates: Iterable[tuple[object, Rate]], now: float) -> None:
        """One eviction under all of these taints."""
        for key, rate in rates:
            self._bucket(key, rate, now).take(now)

    def give_back(self, rates: Iterable[tuple[object, Rate]]) -> None:
        """It did not happen."""
        for key, _ in rates:
            bucket = self._buckets.get(key)
            if bucket is not None:
                bucket.give_back()

    def forget_idle(self, now: float) -> None:
        """Drops those that are as good as new."""
        for key in [key for key, bucket in self._buckets.items() if bucket.full(now)]:
            del self._buckets[key]

    def _bucket(self, key: object, rate: Rate, now: float) -> TokenBucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(rate, now)
        else:
            bucket.change(rate, now)
        return bucket


class SlidingMinute:
    """At most so many evictions in any minute.

    One that is under way counts, and one that is done counts for a minute from when its answer was there: whenever
    the API server carried it out in between, no minute of its clock has more.
    """

    def __init__(self) -> None:
        self._done: deque[float] = deque()
        self._under_way = 0

    def wait_seconds(self, limit: int, now: float) -> float:
        """Until one more may begin; infinite while only those under way are in its way."""
        while self._done and now - self._done[0] >= MINUTE_SECONDS:
            self._done.popleft()
        over = len(self._done) + self._under_way - limit + 1
        if over <= 0:
            return 0.0
        if over > len(self._done):
            return math.inf
        return self._done[over - 1] + MINUTE_SECONDS - now

    def begin(self) -> None:
        """One is under way."""
        self._under_way += 1

    def end(self, now: float, *, evicted: bool) -> None:
        """It is done, or came to nothing."""
        self._under_way -= 1
        if evicted:
            self._done.append(now)


class UnderWay:
    """Evictions from when they are asked for until their pods are gone, in all and by namespace. Pods go by uid."""

    def __init__(self) -> None:
        self._namespaces: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._namespaces)

    def __contains__(self, uid: object) -> bool:
        return uid in self._namespaces

    def count(self, namespace: str) -> int:
        """Of one namespace."""
        return self._counts.get(namespace, 0)

    def add(self, uid: str, namespace: str) -> None:
        """One begins, or was found to be under way; a second time changes nothing."""
        if uid not in self._namespaces:
            self._namespaces[uid] = namespace
            self._counts[namespace] = self._counts.get(namespace, 0) + 1

    def discard(self, uid: str) -> bool:
        """The pod is gone, or is not evicted after all; gives whether it was under way."""
        namespace = self._namespaces.pop(uid, None)
        if namespace is None:
            return False
        self._counts[namespace] -= 1
        if not self._counts[namespace]:
            del self._counts[namespace]
        return True
