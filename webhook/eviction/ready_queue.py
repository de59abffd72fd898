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

_LOOKED_AT_MOST: Final = 1000
"""In one go: a deleted rule may have taken everybody out of the line, and one owner may hold up everybody in it."""


Order: TypeAlias = tuple[int, float, str]
"""Priority, when it is due in seconds, and `namespace/name`: the smaller one goes first."""


class Place(msgspec.Struct, frozen=True, gc=False):
    """Somebody in line. `group`: who shares its rates."""

    uid: str
    order: Order
    group: Hashable


class Pause(NamedTuple):
    """Nobody may go for so long; infinite if only a change can help."""

    seconds: float


class Gates(Protocol):
    """What decides who may go now."""

    def wait_seconds(self, group: Hashable, now: float) -> float:
        """How long the rates of a group keep everybody in it waiting; 0 for not at all."""

    def obstacle(self, place: Place) -> Hashable | None:
        """What else is in the way of this one; None if nothing is."""

    def enter(self, place: Place, now: float) -> None:
        """It goes now."""


class Line:
    """Everybody who is due."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._places: dict[str, Place] = {}
        self._groups: dict[Hashable, list[tuple[Order, str]]] = {}
        """Heaps, as those of `_aside`. Who leaves stays in them until it comes up, or until nobody is left."""
        self._front: list[tuple[Order, int, Hashable]] = []
        self._fronted: dict[Hashable, int] = {}
        self._asleep: list[tuple[float, int, Hashable]] = []
        self._sleeping: dict[Hashable, int] = {}
        self._aside: dict[Hashable, list[tuple[Order, str]]] = {}
        self._from: dict[str, Hashable] = {}
        self._count = 0

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, uid: object) -> bool:
        return uid in self._places

    def put(self, place: Place) -> None:
        """Somebody joins, or takes another place."""
        known = self._places.get(place.uid)
        if known == place:
            return
        self._places[place.uid] = place
        self._join(place)
        if known is not None:
            self._follow(place.uid)

    def discard(self, uid: str) -> None:
        """Somebody leaves; what stood aside behind it moves up."""
        if self._places.pop(uid, None) is None:
            return
        self._follow(uid)
        if not self._places:
            self._clear()

    def _clear(self) -> None:
        """Nobody stands here any more, so whatever is remembered is of those who have left."""
        for each in (self._groups, self._fronted, self._sleeping, self._aside, self._from, self._front, self._asleep):
            each.clear()

    def _stands(self, group: Hashable, order: Order, uid: str) -> bool:
        place = self._places.get(uid)
        return place is not None and place.order == order and place.group == group

    def release(self, obstacle: Hashable) -> None:
        """An obstacle may be gone: the first of those who stepped aside for it tries again."""
        waiting = self._aside.get(obstacle)
        while waiting:
            order, uid = heapq.heappop(waiting)
            if not waiting:
                del self._aside[obstacle]
            place = self._places.get(uid)
            if place is None or place.order != order:
                continue
            self._from[uid] = obstacle
            self._join(place)
            return

    def wake(self, group: Hashable) -> None:
        """The rates of a group may allow more than they did."""
        if self._sleeping.pop(group, None) is not None:
            self._to_front(group)

    def take(self, now: float) -> str | Pause:
        """The uid of whoever goes now, who leaves the line; or how long nobody does; 0 if it took too long to find out.

        The next call goes on from there.
        """
        self._wake(now)
        for _ in range(_LOOKED_AT_MOST):
            if not self._front:
                break
            first, ticket, group = heapq.heappop(self._front)
            if self._fronted.get(group) != ticket:
                continue
            del self._fronted[group]
            taken = self._take_from(group, first, now)
            if taken is not None:
                return taken
        else:
            return Pause(0.0)
        while self._asleep and self._sleeping.get(self._asleep[0][2]) != self._asleep[0][1]:
            heapq.heappop(self._asleep)
        return Pause(self._asleep[0][0] - now if self._asleep else math.inf)

    def _take_from(self, group: Hashable, first: Order, now: float) -> str | None:
        """The first of a group, if they may go; else somebody of another group may be before the next of this one."""
        waiting = self._groups[group]
        order, uid = waiting[0]
        if not self._stands(group, order, uid):
            heapq.heappop(waiting)
        elif order == first:
            seconds = self._gates.wait_seconds(group, now)
            if seconds > 0:
                self._sleep(group, now + seconds)
                return None
            heapq.heappop(waiting)
            place = self._places[uid]
            obstacle = self._gates.obstacle(place)
            if obstacle is None:
                del self._places[uid]
                self._gates.enter(place, now)
                self._to_front(group)
                self._follow(uid)
                return uid
            self._step_aside(place, obstacle)
        self._to_front(group)
        return None

    def _step_aside(self, place: Place, obstacle: Hashable) -> None:
        heapq.heappush(self._aside.setdefault(obstacle, []), (place.order, place.uid))
        came_from = self._from.pop(place.uid, None)
        if came_from is not None and came_from != obstacle:
            self.release(came_from)  # what it waited for is free: the next one may have nothing else in its way

    def _follow(self, uid: str) -> None:
        """Whoever stood aside for the same thing may be able to go as well."""
        came_from = self._from.pop(uid, None)
        if came_from is not None:
            self.release(came_from)

    def _join(self, place: Place) -> None:
        waiting = self._groups.get(place.group)
        if waiting is None:
            waiting = self._groups[place.group] = []
        heapq.heappush(waiting, (place.order, place.uid))
        if waiting[0][1] == place.uid and place.group not in self._sleeping:
            self._to_front(place.group)

    def _to_front(self, group: Hashable) -> None:
        waiting = self._groups.get(group)
        if not waiting:
            self._groups.pop(group, None)
            return
        self._count += 1
        self._fronted[group] = self._count
        heapq.heappush(self._front, (waiting[0][0], self._count, group))

    def _sleep(self, group: Hashable, until: float) -> None:
        self._count += 1
        self._sleeping[group] = self._count
        heapq.heappush(self._asleep, (until, self._count, group))

    def _wake(self, now: float) -> None:
        while self._asleep and self._asleep[0][0] <= now:
            _, ticket, group = heapq.heappop(self._asleep)
            if self._sleeping.get(group) == ticket:
                del self._sleeping[group]
                self._to_front(group)
