"""Who finds room, by the product: units stand in line, and one after the other is taken until no other may go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from datetime import timedelta
from typing import NamedTuple

from tests.unit.eviction.plan.worlds import World
from webhook.eviction.ledger import Ledger, Moment, View
from webhook.eviction.line import Line
from webhook.eviction.plan import plan
from webhook.eviction.pod_plan import EvictionPlan, Going, Unit, Wait
from webhook.eviction.ports import PodBudgets
from webhook.eviction.profiles import Profile, owner_of
from webhook.eviction.room import Room


class Taking(NamedTuple):
    """Units that go, in order, and what the pods of the others wait for, by uid; None: nothing keeps it."""

    units: list[Unit]
    waits: dict[str, Wait | None]


def room_of(
    view: View,
    ledger: Ledger,
    moment: Moment,
    terminating: Iterable[Going],
    *,
    budgets: PodBudgets,
    profiles: Sequence[Profile],
) -> Room:
    """The room that is left by all pods that are there."""
    room = Room(view, ledger, moment, budgets=budgets, profiles=profiles)
    for uid, taken in ledger.taken.items():
        pod = view.inventory.pods.get(taken.key)
        if pod is None or not room.stuck(pod):
            room.place(uid, taken.namespace, taken.place)
    room.occupy(terminating)
    for key, pod in view.inventory.pods.items():
        if owner := owner_of(pod):
            room.own(owner, key, there=True)
    return room


class InLine:
    """Units that may go, none of which was looked at yet."""

    def __init__(self, units: Iterable[Unit], room: Room) -> None:
        self.room = room
        self.line, self._units = Line(room), tuple(units)
        for unit in self._units:
            self.line.push(unit)

    def take(self) -> Taking:
        """Who goes now."""
        units, found, more = list[Unit](), None, True
        while found is not None or more:
            self.room.begin(self.room.moment)
            found, more = self.line.take()
            units += [] if found is None else [found]
        left = [unit for unit in self._units if unit.members[0].uid in self.line]
        return Taking(units, {each.uid: self._kept_by(unit) for unit in left for each in unit.members})

    def _kept_by(self, unit: Unit) -> Wait | None:
        """The limit that it was found to wait for, else one that time opens."""
        wait = self.line.wait_of(unit.members[0].uid)
        turns = [self.room.closed_by(limit) for limit in self.room.timed(unit)]
        return wait or next((each for each in turns if each is not None), None)

    def pass_time(self, seconds: float) -> None:
        """So much later, pods that are stuck are counted no longer."""
        room, (now, before) = self.room, self.room.moment
        room.begin(Moment(now + timedelta(seconds=seconds), before + seconds))
        for key, pod in room.view.inventory.pods.items():
            if room.stuck(pod):
                room.given_up[pod.meta.uid] = key
                room.vacate(pod.meta.uid, pod.meta.namespace)
                room.touch(owner_of(pod))


def planned_in(world: World) -> EvictionPlan:
    """The plan of a world."""
    return plan(world.view, world.ledger, world.pause, world.moment)


def line_in(world: World, made: EvictionPlan) -> InLine:
    """Who is in line by the plan of a world, which stays as it is."""
    room = room_of(
        world.view,
        deepcopy(world.ledger),
        world.moment,
        made.terminating,
        budgets=world.budgets,
        profiles=world.profiles,
    )
    return InLine(made.eligible, room)
