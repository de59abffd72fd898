"""Pods that are due, waiting for their turn: lowest priority first, then the oldest due, as far as limits allow.

Pods under the same rates stand in one group, so a rate that is used up is asked once and not once a pod. A pod that
something else holds up (its namespace, its owner) steps aside for those behind it, and the first of those who stepped
aside for the same thing comes back when that changes. Pure: what may go is asked from `Gates`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec

_EXAMINED_MOST: Final = 1000
"""In one go: a deleted rule may have taken everybody out of the line, and one owner may hold up everybody in it."""


Order: TypeAlias = tuple[int, float, str]
"""Priority, when it is due in seconds, and `namespace/name`: the smaller one goes first."""


class ReadyPod(msgspec.Struct, frozen=True, gc=False):
    """Somebody in line. `group`: who shares its rates."""

    uid: str
    order: Order
    group: Hashable


class Idle(NamedTuple):
    """Nobody may go for so long; infinite if only a change can help."""

    seconds: float


class ReadyLimits(Protocol):
    """What decides who may go now."""

    def wait_seconds(self, group: Hashable, now: float) -> float:
        """How long the rates of a group keep everybody in it waiting; 0 for not at all."""

    def blocked_by(self, item: ReadyPod) -> Hashable | None:
        """What else is in the way of this one; None if nothing is."""

    def reserve(self, item: ReadyPod, now: float) -> None:
        """It goes now."""


class ReadyQueue:
    """Everybody who is due."""

    def __init__(self, limiter: ReadyLimits) -> None:
        self._limits = limiter
        self._items: dict[str, ReadyPod] = {}
        self._groups: dict[Hashable, list[tuple[Order, str]]] = {}
        """Heaps, as those of `_aside`. Who leaves stays in them until it comes up, or until nobody is left."""
        self._active: list[tuple[Order, int, Hashable]] = []
        self._active_tickets: dict[Hashable, int] = {}
        self._throttled: list[tuple[float, int, Hashable]] = []
        self._throttled_tickets: dict[Hashable, int] = {}
        self._parked: dict[Hashable, list[tuple[Order, str]]] = {}
        self._unparked_from: dict[str, Hashable] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, uid: object) -> bool:
        return uid in self._items

    def push(self, item: ReadyPod) -> None:
        """Somebody joins, or takes another place."""
        known = self._items.get(item.uid)
        if known == item:
            return
        self._items[item.uid] = item
        self._enqueue(item)
        if known is not None:
            self._unpark_next(item.uid)

    def discard(self, uid: str) -> None:
        """Somebody leaves; what stood aside behind it moves up."""
        if self._items.pop(uid, None) is None:
            return
        self._unpark_next(uid)
        if not self._items:
            self._clear()

    def _clear(self) -> None:
        """Nobody stands here any more, so whatever is remembered is of those who have left."""
        for each in (
            self._groups,
            self._active_tickets,
            self._throttled_tickets,
            self._parked,
            self._unparked_from,
            self._active,
            self._throttled,
        ):
            each.clear()

    def _is_current(self, group: Hashable, order: Order, uid: str) -> bool:
        item = self._items.get(uid)
        return item is not None and item.order == order and item.group == group

    def unpark(self, limit: Hashable) -> None:
        """An obstacle may be gone: the first of those who stepped aside for it tries again."""
        waiting = self._parked.get(limit)
        while waiting:
            order, uid = heapq.heappop(waiting)
            if not waiting:
                del self._parked[limit]
            item = self._items.get(uid)
            if item is None or item.order != order:
                continue
            self._unparked_from[uid] = limit
            self._enqueue(item)
            return

    def wake(self, group: Hashable) -> None:
        """The rates of a group may allow more than they did."""
        if self._throttled_tickets.pop(group, None) is not None:
            self._activate(group)

    def pop(self, now: float) -> str | Idle:
        """The uid of whoever goes now, who leaves the line; or how long nobody does; 0 if it took too long to find out.

        The next call goes on from there.
        """
        self._activate_due(now)
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
        """The first of a group, if they may go; else somebody of another group may be before the next of this one."""
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
            blocked_by = self._limits.blocked_by(item)
            if blocked_by is None:
                del self._items[uid]
                self._limits.reserve(item, now)
                self._activate(group)
                self._unpark_next(uid)
                return uid
            self._park(item, blocked_by)
        self._activate(group)
        return None

    def _park(self, item: ReadyPod, blocked_by: Hashable) -> None:
        heapq.heappush(self._parked.setdefault(blocked_by, []), (item.order, item.uid))
        limit = self._unparked_from.pop(item.uid, None)
        if limit is not None and limit != blocked_by:
            self.unpark(limit)  # what it waited for is free: the next one may have nothing else in its way

    def _unpark_next(self, uid: str) -> None:
        """Whoever stood aside for the same thing may be able to go as well."""
        limit = self._unparked_from.pop(uid, None)
        if limit is not None:
            self.unpark(limit)

    def _enqueue(self, item: ReadyPod) -> None:
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
