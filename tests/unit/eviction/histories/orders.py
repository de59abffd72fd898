"""All orders in which things can go on in a small world: no sampling, and none is left out for being like another.

At each moment one of these goes on: a request, from the await at which it stands to its next one; the line, from which
a unit is taken; the pass, by a slice; the watch, by one thing that it shows; or the next event of the scene happens.
Every choice is made in turn, depth first, by playing the scene from its beginning for each. The number of orders is
bounded by the scene: the awaits of its pods, its slices and its events are counted.

What must hold is what `Checks` says, as for random histories: at every request, and once all is quiet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.unit.eviction.histories.checks import BrokenError
from tests.unit.eviction.histories.events import Event, PassGoesOn, RequestGoesOn, UnitIsTaken, WatchShows
from tests.unit.eviction.histories.played import Played, Setting

_END_ROUNDS = 1


class Scene(NamedTuple):
    """What is there at first, and what happens at any moment after the first plan: `events` in their order."""

    setting: Setting
    first: tuple[Event, ...]
    events: tuple[Event, ...] = ()
    slices: tuple[int, ...] = ()
    """The steps of each slice of a pass that may be made before all is quiet."""


class Order(NamedTuple):
    """One of the orders of a scene: what went on, and what that breaks, empty if nothing."""

    row: tuple[Event, ...]
    broken: str

    def __str__(self) -> str:
        return "\n".join([self.broken, *[f"    {each}" for each in self.row]])


def orders_of(scene: Scene) -> Iterator[Order]:
    """Plays all orders of a scene."""
    path = list[int]()
    with scene.setting.applied(), asyncio.Runner() as runner:
        while True:
            one = _Playing(scene, path)
            yield runner.run(one.play())
            path = one.chosen
            while path and path[-1] + 1 >= one.widths[len(path) - 1]:
                path.pop()
            if not path:
                return
            path[-1] += 1


class _Playing:
    """One order: the choices of `path`, and then always the first."""

    def __init__(self, scene: Scene, path: Sequence[int]) -> None:
        self._scene = scene
        self._path = path
        self._events, self._slices = list(scene.events), list(scene.slices)
        self.chosen: list[int] = []
        self.widths: list[int] = []
        """Among how many things each choice was made."""

    async def play(self) -> Order:
        row = list[Event]()
        run = Played(self._scene.setting)
        try:
            for event in self._scene.first:
                await event.play(run)
            run.plan()
            while choices := self._choices(run):
                event = self._choose(choices)
                row.append(event)
                await event.play(run)
                await run.breathe()
            await run.settle()
            broken = run.checks.at_rest() or await run.checks.at_end(_END_ROUNDS)
        except BrokenError as error:
            broken = str(error)
        finally:
            await run.close()
        return Order(tuple(row), broken)

    def _choices(self, run: Played) -> list[Event]:
        found: list[Event] = [RequestGoesOn(place) for place in range(len(run.blocked))]
        if run.wants_take and len(run.core.line) and run.world.worker.may_take:
            found.append(UnitIsTaken())
        if run.wants_plan and self._slices:
            found.append(PassGoesOn(self._slices[0]))
        if run.watch:
            found.append(WatchShows())
        return [*found, *self._events[:1]]

    def _choose(self, choices: Sequence[Event]) -> Event:
        at = len(self.chosen)
        chosen = self._path[at] if at < len(self._path) else 0
        self.chosen.append(chosen)
        self.widths.append(len(choices))
        event = choices[chosen]
        if isinstance(event, PassGoesOn):
            self._slices.pop(0)
        elif event in self._events[:1] and chosen == len(choices) - 1:
            self._events.pop(0)
        return event
