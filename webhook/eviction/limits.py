"""How fast and how many: a token bucket for each taint, a sliding minute, the pods in flight, and what can block a pod.

Pure: seconds come in as arguments.

Source: `semantics.md` N-13 to N-18; the policy's eviction profiles.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from webhook.flowcontrol.token_bucket import TokenBucket

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.flowcontrol.token_bucket import Rate

MINUTE_SECONDS: Final = 60.0


class OverallLimit(msgspec.Struct, frozen=True):
    """The profile's `overall`: pods on their way out at the same time."""


class NamespaceLimit(msgspec.Struct, frozen=True):
    """The profile's `perNamespace`."""

    namespace: str


class OwnerLimit(msgspec.Struct, frozen=True):
    """The profile's `perOwnerUnavailable`."""

    owner: str
    """By uid."""


Limit: TypeAlias = OverallLimit | NamespaceLimit | OwnerLimit
"""What can block a pod that is due and whose rates would let it go."""
OVERALL: Final = OverallLimit()


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
