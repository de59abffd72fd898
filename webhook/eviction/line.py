"""Who goes next: units that may go, in the lanes of the limits that kept them when they were looked at last.

They are taken in the order of the plan. A lane whose limit is still closed costs one look, whatever waits in it: a rate
keeps all of its units, and a budget all that it has blocked.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, TypeAlias

from webhook.eviction.pod_plan import Unit, Wait
from webhook.eviction.ports import Limit, NamespaceLimit, OverallLimit, OwnerLimit
from webhook.eviction.room import Room

_LOOKS_MOST: Final = 128
"""Units that one call looks at: a few milliseconds."""
_STEP: Final = 256
_Order: TypeAlias = tuple[object, ...]
_Timed: TypeAlias = tuple[Limit, ...]
"""The limits of a unit that time alone opens."""


class Taking(NamedTuple):
    """The unit that goes, if one does, and whether others are still to be looked at, by another call."""

    unit: Unit | None = None
    more: bool = False


@dataclass(slots=True, eq=False)
class _Lane:
    """Units that wait for the same: for their turn, and for `wait`, unless that is None."""

    timed: _Timed
    wait: Wait | None
    heap: list[tuple[_Order, int, Unit]] = field(default_factory=list)
    """With units that have left it since."""

    @property
    def limit(self) -> Limit | None:
        return None if self.wait is None else self.wait.limit


def dropped(known: dict[Any, Any]) -> Iterator[None]:
    """Empty a dict in steps."""
    while known:
        for _ in range(min(_STEP, len(known))):
            known.popitem()
        yield


class Line:
    """All units that may go."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._lanes: dict[_Timed, dict[Limit | None, _Lane]] = {}
        self._awake: dict[_Timed, dict[Limit | None, _Lane]] = {}
        """Those that are looked at; the others wait until a limit has room that others free."""
        self._asleep: dict[tuple[str, str], list[_Lane]] = {}
        """The others, by what frees their limit, as in `Room.freed`."""
        self._at: dict[str, tuple[_Lane, Unit]] = {}
        """Where each unit is, by the uid of each of its pods."""
        self.retried: set[str] | None = None
        """Pods, by uid, that were to be looked at again since another line was begun."""
        self._gangs: dict[str, set[str]] = {}
        """The first pod of each wave, by the place of the gang: once one was taken, the others share its place."""

    def __len__(self) -> int:
        """Return the number of pods."""
        return len(self._at)

    def __contains__(self, uid: object) -> bool:
        """Return whether a pod is in line."""
        return uid in self._at

    def pods(self) -> Iterator[tuple[str, Wait | None]]:
        """Yield each pod, by uid, and what it waits for besides its turn."""
        for uid, (lane, _) in self._at.items():
            yield uid, lane.wait

    def wait_of(self, uid: str) -> Wait | None:
        """Return what a pod waits for besides its turn."""
        found = self._at.get(uid)
        return None if found is None else found[0].wait

    def filled(self, units: Iterable[Unit]) -> Generator[None, None, Line]:
        """Make another line, in steps. Units that this one knows wait for what they wait for here."""
        line = Line(self._room)
        self.retried = set()
        for number, unit in enumerate(units):
            if not number % _STEP:
                yield
            found = self._at.get(unit.members[0].uid)
            line.push(unit, found[0].wait if found is not None and _alike(found[1], unit) else None)
        return line

    def cleared(self) -> Iterator[None]:
        """Drop all of it in steps, as that takes a while if it is long."""
        lanes = [lane for lanes in self._lanes.values() for lane in lanes.values()]
        while lanes:
            del lanes[-1].heap[-_STEP:]
            if not lanes[-1].heap:
                lanes.pop()
            yield
        yield from dropped(self._at)

    def push(self, unit: Unit, wait: Wait | None = None) -> None:
        """Add a unit, or move it to where pods wait for this."""
        timed = self._room.timed(unit)
        lanes = self._lanes.setdefault(timed, {})
        limit = None if wait is None else wait.limit
        lane = lanes.get(limit)
        if lane is None:
            lane = lanes[limit] = _Lane(timed, wait)
            self._awake.setdefault(timed, {})[limit] = lane
        lane.wait = wait
        if len(lane.heap) > 2 * len(self._at) + _STEP:
            lane.heap = sorted([each for each in lane.heap if self._is_current(lane, each[2])])
        heappush(lane.heap, (unit.order, id(unit), unit))
        for each in unit.members:
            self._at[each.uid] = lane, unit
        if unit.members[0].gang:
            self._gangs.setdefault(unit.key, set()).add(unit.members[0].uid)

    def discard(self, uid: str) -> None:
        """Remove the unit of a pod, if it is there."""
        found = self._at.get(uid)
        if found is None:
            return
        unit = found[1]
        for each in unit.members:
            self._at.pop(each.uid, None)
        waves = self._gangs.get(unit.key, set())
        waves.discard(unit.members[0].uid)
        if not waves:
            self._gangs.pop(unit.key, None)

    def reopen(self, limit: Limit) -> None:
        """Look at all units again that wait for a limit."""
        for lane in [lanes[limit] for lanes in self._lanes.values() if limit in lanes]:
            for unit in [unit for _, _, unit in lane.heap if self._is_current(lane, unit)]:
                self.retry(unit.members[0].uid)

    def waiting_for_owners(self, namespace: str) -> list[OwnerLimit]:
        """Return the limits of owners in a namespace that units wait for."""
        found = dict[OwnerLimit, None]()
        for limit, lane in [each for lanes in self._lanes.values() for each in lanes.items()]:
            firsts = [unit.members[0].pod.meta.namespace for *_, unit in lane.heap[:1]]
            if isinstance(limit, OwnerLimit) and namespace in firsts:
                found[limit] = None
        return list(found)

    def retry(self, uid: str) -> None:
        """Look at the unit of a pod again, whatever it waits for."""
        if self.retried is not None:
            self.retried.add(uid)
        found = self._at.get(uid)
        if found is not None and found[0].wait is not None:
            self.push(found[1])

    def take(self) -> Taking:
        """Take places and tokens for the first unit that finds room. Never awaits.

        The room is as of now. A limit that is found closed stays so until this returns.
        """
        room, looks, open_lanes = self._room, 0, list[tuple[_Order, int, _Lane]]()
        self._wake()
        open_by_time = [lanes for timed, lanes in self._awake.items() if not any(map(room.closed_by, timed))]
        for lane in [lane for lanes in open_by_time for lane in lanes.values()]:
            self._offer(lane, open_lanes)
        while open_lanes:
            if looks >= _LOOKS_MOST:
                return Taking(more=True)
            looks += 1
            lane = heappop(open_lanes)[2]
            if any(map(room.closed_by, lane.timed)):
                continue
            if not self._is_current(lane, lane.heap[0][2]):
                self._offer(lane, open_lanes)
                continue
            wait = room.closed(lane.heap[0][2])
            if wait is not None and (wait.limit in lane.timed or wait.limit == lane.limit):
                continue
            unit = heappop(lane.heap)[2]
            for each in unit.members:
                del self._at[each.uid]
            if wait is None:
                room.admit(unit)
                self.open_gang(unit.key)
            else:
                self.push(unit, wait)
            self._offer(lane, open_lanes)
            if wait is None:
                return Taking(unit)
        return Taking()

    def open_gang(self, place: str) -> None:
        """Note that the other waves of a gang share the place that it has now."""
        for uid in self._gangs.pop(place, ()):
            self.retry(uid)

    def _wake(self) -> None:
        """Look again at what waits for limits that may have room."""
        for freed in self._room.freed:
            for lane in self._asleep.pop(freed, ()):
                self._awake.setdefault(lane.timed, {})[lane.limit] = lane
        self._room.freed.clear()

    def _offer(self, lane: _Lane, open_lanes: list[tuple[_Order, int, _Lane]]) -> None:
        """Put the first unit of a lane up, unless the limit of the lane is closed."""
        while lane.heap and not self._is_current(lane, lane.heap[0][2]):
            heappop(lane.heap)
        if not lane.heap:
            self._drop(self._lanes, lane)
            self._drop(self._awake, lane)
        elif lane.limit is None or self._room.closed_by(lane.limit) is None:
            heappush(open_lanes, (lane.heap[0][0], id(lane), lane))
        elif (freed_by := _freed_by(lane.limit)) is not None:
            self._asleep.setdefault(freed_by, []).append(lane)
            self._drop(self._awake, lane)

    def _drop(self, known: dict[_Timed, dict[Limit | None, _Lane]], lane: _Lane) -> None:
        lanes = known.get(lane.timed, {})
        if lanes.get(lane.limit) is lane:
            del lanes[lane.limit]
            if not lanes:
                del known[lane.timed]

    def _is_current(self, lane: _Lane, unit: Unit) -> bool:
        found = self._at.get(unit.members[0].uid)
        return found is not None and found[0] is lane and found[1] is unit


def _freed_by(limit: Limit) -> tuple[str, str] | None:
    """Return what frees a limit, as in `Room.freed`; None if time does, or a budget."""
    if isinstance(limit, OwnerLimit):
        return "owner", limit.owner
    if isinstance(limit, NamespaceLimit):
        return "namespace", limit.namespace
    return ("", "") if isinstance(limit, OverallLimit) else None


def _alike(old: Unit, new: Unit) -> bool:
    """Return whether the same limits concern both."""
    said = [[(id(each.pod), each.profile) for each in unit.members] for unit in (old, new)]
    return said[0] == said[1]
