"""The queue of pods that are due: lowest priority first, then those not refused before, then the earliest due.

Pods with the same rates form a group, so an exhausted rate is checked once per group and not once per pod. A pod that
a limit blocks (overall, its namespace, its owner) is parked, so that pods behind it can go. When the limit has room,
the first pod parked for it is unparked. Pure: `ReadyLimits` decides which pod may go.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Hashable
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

from webhook.eviction.ports import Limit

_EXAMINED_MOST: Final = 1000
"""Items that one `pop` examines: a deleted rule may leave many stale items, and one limit may block many pods."""


Order: TypeAlias = tuple[int, int, float, str]
"""Priority, earlier refusals, due time as a timestamp, and `namespace/name`; the smallest goes first."""


class ReadyPod(msgspec.Struct, frozen=True, gc=False):
    """A pod that is due. Pods with an equal `group` share all rates."""

    uid: str
    order: Order
    group: Hashable


class Idle(NamedTuple):
    """No pod may go for this many seconds; infinite if it takes a change."""

    seconds: float


class ReadyLimits(Protocol):
    """Rates and limits, which decide whether a pod may go now."""

    def begin_pass(self) -> None:
        """Pods are examined from here on; nothing changes before the first of them goes."""

    def wait_seconds(self, group: Hashable, now: float) -> float:
        """How long rates make the whole group wait, in seconds; 0 if they do not."""

    def blocked_by(self, item: ReadyPod, now: float) -> Limit | None:
        """The limit that blocks this pod, or None."""

    def reserve(self, item: ReadyPod, now: float) -> None:
        """Reserves tokens and places for a pod that goes now."""


class ReadyQueue:
    """All pods that are due."""

    def __init__(self, limiter: ReadyLimits) -> None:
        self._limits = limiter
        self._items: dict[str, ReadyPod] = {}
        self._groups: dict[Hashable, list[tuple[Order, str]]] = {}
        """Heaps, like those in `_parked`. They keep a discarded pod until it is popped or the queue is empty."""
        self._active: list[tuple[Order, int, Hashable]] = []
        self._active_tickets: dict[Hashable, int] = {}
        self._throttled: list[tuple[float, int, Hashable]] = []
        self._throttled_tickets: dict[Hashable, int] = {}
        self._parked: dict[Limit, list[tuple[Order, str]]] = {}
        self._parked_for: dict[str, Limit] = {}
        self._unparked_from: dict[str, Limit] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, uid: object) -> bool:
        return uid in self._items

    def push(self, item: ReadyPod) -> None:
        """Adds a pod, or moves it if its order or group has changed."""
        known = self._items.get(item.uid)
        if known == item:
            return
        self._items[item.uid] = item
        self._enqueue(item)
        if known is not None:
            self._unpark_next(item.uid)

    def limit_of(self, uid: str) -> Limit | None:
        """The limit that a pod is parked for; None if it is not parked."""
        return self._parked_for.get(uid)

    def parked_for(self, limit: Limit) -> list[str]:
        """The pods that are parked for a limit, and some that were."""
        return [uid for _, uid in self._parked.get(limit, ())]

    def parked(self) -> Collection[Limit]:
        """The limits that pods are parked for, each as often as there are pods."""
        return self._parked_for.values()

    def oldest_due_seconds(self, not_before: Callable[[Hashable], float]) -> float:
        """The earliest due time of all pods, as a timestamp; infinite without pods. It looks at all of them.

        `not_before`: the earliest that counts as due time of the pods of a group.
        """
        earliest: dict[Hashable, float] = {}
        for item in self._items.values():
            earliest[item.group] = min(item.order[2], earliest.get(item.group, math.inf))
        return min((max(due, not_before(group)) for group, due in earliest.items()), default=math.inf)

    def discard(self, uid: str) -> None:
        """Removes a pod. If it was unparked before, the next pod parked for the same limit is unparked instead."""
        if self._items.pop(uid, None) is None:
            return
        self._parked_for.pop(uid, None)
        self._unpark_next(uid)
        if not self._items:
            self._clear()

    def _clear(self) -> None:
        """The queue is empty, so every remaining heap entry is stale."""
        for each in (
            self._groups,
            self._active_tickets,
            self._throttled_tickets,
            self._parked,
            self._parked_for,
            self._unparked_from,
            self._active,
            self._throttled,
        ):
            each.clear()

    def _is_current(self, group: Hashable, order: Order, uid: str) -> bool:
        item = self._items.get(uid)
        return item is not None and item.order == order and item.group == group

    def unpark(self, limit: Limit) -> None:
        """A limit may have room: the first pod parked for it is queued again."""
        waiting = self._parked.get(limit)
        while waiting:
            order, uid = heapq.heappop(waiting)
            if not waiting:
                del self._parked[limit]
            item = self._items.get(uid)
            if item is None or item.order != order or self._parked_for.get(uid) != limit:
                continue
            self._unparked_from[uid] = limit
            self._enqueue(item)
            return

    def retry(self, uid: str) -> None:
        """The limit that this pod is parked for may not block it any longer."""
        if uid in self._parked_for:
            self._enqueue(self._items[uid])

    def retry_all(self) -> None:
        """All limits and rates may have changed."""
        for uid in list(self._parked_for):
            self.retry(uid)
        for group in list(self._throttled_tickets):
            self.wake(group)

    def sweep(self) -> None:
        """Unparks the first pod of each limit, in case that room for it went unnoticed."""
        for limit in list(self._parked):
            self.unpark(limit)

    def wake(self, group: Hashable) -> None:
        """The rates of a group may have room: it is tried again before its wait is over."""
        if self._throttled_tickets.pop(group, None) is not None:
            self._activate(group)

    def pop(self, now: float) -> str | Idle:
        """Removes the pod that goes now and returns its uid, or returns how long no pod may go.

        Idle(0) means that it examined as many items as one call may; the next call continues from there.
        """
        self._activate_due(now)
        self._limits.begin_pass()
        for _ in range(_EXAMINED_MOST):
            if not self._active:
                break
            first, ticket, group = heapq.heappop(self._active)
            if self._active_tickets.get(group) != ticket:
                continue
            del self._active_tickets[group]
            taken = self._pop_from(group, first, now)
            if taken is not None:
                return taken
        else:
            return Idle(0.0)
        while self._throttled and self._throttled_tickets.get(self._throttled[0][2]) != self._throttled[0][1]:
            heapq.heappop(self._throttled)
        return Idle(self._throttled[0][0] - now if self._throttled else math.inf)

    def _pop_from(self, group: Hashable, first: Order, now: float) -> str | None:
        """The first pod of a group, if it may go. Else None: another group may come before the next pod of this one."""
        waiting = self._groups[group]
        order, uid = waiting[0]
        if not self._is_current(group, order, uid):
            heapq.heappop(waiting)
        elif order == first:
            seconds = self._limits.wait_seconds(group, now)
            if seconds > 0:
                self._throttle(group, now + seconds)
                return None
            heapq.heappop(waiting)
            item = self._items[uid]
            blocked_by = self._limits.blocked_by(item, now)
            if blocked_by is None:
                del self._items[uid]
                self._limits.reserve(item, now)
                self._activate(group)
                self._unpark_next(uid)
                return uid
            self._park(item, blocked_by)
        self._activate(group)
        return None

    def _park(self, item: ReadyPod, blocked_by: Limit) -> None:
        self._parked_for[item.uid] = blocked_by
        heapq.heappush(self._parked.setdefault(blocked_by, []), (item.order, item.uid))
        limit = self._unparked_from.pop(item.uid, None)
        if limit is not None and limit != blocked_by:
            self.unpark(limit)  # that limit has room: another limit may not block the next pod

    def _unpark_next(self, uid: str) -> None:
        """The limit that a pod was parked for may have room for the next one, too."""
        limit = self._unparked_from.pop(uid, None)
        if limit is not None:
            self.unpark(limit)

    def _enqueue(self, item: ReadyPod) -> None:
        self._parked_for.pop(item.uid, None)
        waiting = self._groups.get(item.group)
        if waiting is None:
            waiting = self._groups[item.group] = []
        heapq.heappush(waiting, (item.order, item.uid))
        if waiting[0][1] == item.uid and item.group not in self._throttled_tickets:
            self._activate(item.group)

    def _activate(self, group: Hashable) -> None:
        waiting = self._groups.get(group)
        if not waiting:
            self._groups.pop(group, None)
            return
        self._count += 1
        self._active_tickets[group] = self._count
        heapq.heappush(self._active, (waiting[0][0], self._count, group))

    def _throttle(self, group: Hashable, until: float) -> None:
        self._count += 1
        self._throttled_tickets[group] = self._count
        heapq.heappush(self._throttled, (until, self._count, group))

    def _activate_due(self, now: float) -> None:
        while self._throttled and self._throttled[0][0] <= now:
            _, ticket, group = heapq.heappop(self._throttled)
            if self._throttled_tickets.get(group) == ticket:
                del self._throttled_tickets[group]
                self._activate(group)
