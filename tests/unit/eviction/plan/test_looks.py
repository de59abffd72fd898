"""Who is looked at next, and how often: units behind limits that are closed, and those that another one lets go."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from tests.builders import NOW
from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.plan.taking import InLine, room_of
from tests.unit.eviction.plan.test_gates import Here, crowd
from tests.unit.eviction.world import evicting
from webhook.api.meta import ObjectMeta
from webhook.api.pods import DisruptionBudget
from webhook.api.rules import DeviceSelector
from webhook.eviction.ledger import Ledger, Moment
from webhook.eviction.line import Line
from webhook.eviction.plan import plan
from webhook.eviction.pod_plan import Unit, Wait
from webhook.eviction.room import GATES, Room

BLOCKED = DisruptionBudget(ObjectMeta(name="web", namespace="ml"), None, 0, 1, 2)


class Looks:
    """The budgets' gate; counts the units that are looked at."""

    def __init__(self) -> None:
        self.units = 0

    def limits(self, unit: Unit, room: Room) -> Iterable[Any]:
        self.units += 1
        return GATES[0].limits(unit, room)

    def closed(self, limit: Any, room: Room) -> Wait | None:
        return GATES[0].closed(limit, room)

    def take(self, unit: Unit, room: Room) -> None:
        GATES[0].take(unit, room)


def standing(here: Here) -> tuple[tuple[Unit, ...], Room]:
    """Who may go, and the room that there is."""
    view, moment = here.view(), Moment(NOW, 1000.0)
    made = plan(view, Ledger(), None, moment)
    room = room_of(view, Ledger(), moment, made.terminating, budgets=here, profiles=(here.profile,))
    return tuple(made.eligible), room


def test_units_behind_a_limit_that_is_still_closed_are_not_looked_at_again() -> None:
    here, looks = Here(*crowd(300)), Looks()
    here.budget = BLOCKED
    line = InLine(*standing(here), (looks,))
    assert len(line.take().units) == 1  # it asks the budget
    looks.units = 0
    assert not line.take().units
    assert not looks.units


def test_one_call_looks_at_some_of_many_units() -> None:
    """Nothing else runs meanwhile."""
    here, looks, line = Here(*crowd(300)), Looks(), Line()
    here.budget = BLOCKED
    units, room = standing(here)
    for unit in units:
        line.push(unit, room)
    assert line.take(room, (looks,)).unit
    looks.units = 0
    assert line.take(room, (looks,)) == (None, True)
    assert looks.units < 200


def test_new_plan_looks_at_nobody_whose_limit_is_still_closed() -> None:
    here, looks = Here(*crowd(300)), Looks()
    here.budget = BLOCKED
    units, room = standing(here)
    before = InLine(units, room, (looks,))
    before.take()
    line = filled(before.line, [unit for unit in units if unit.members[0].uid in before.line], room)
    assert len(line) == 299
    looks.units = 0
    assert line.take(room, (looks,)) == (None, False)
    assert not looks.units


def filled(line: Line, units: Iterable[Unit], room: Room) -> Line:
    """Who is in line after another plan."""
    steps = line.filled(units, room)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: Line = done.value
            return made


# --- limits that concern a unit no longer -------------------------------------------------------


def test_later_wave_of_a_gang_shares_the_place_of_the_first() -> None:
    """It found no room before the first one did."""
    world = evicting(overall=1, gang_window_seconds=0.0, lingering=True)
    devices = {"other": "gpu-0", "first": "gpu-1", "second": "gpu-2"}
    for number, (name, device) in enumerate(devices.items()):
        world.add(claim(name, devices=(device,)), pod(name, gang="" if name == "other" else "ring"))
        added = NOW - timedelta(seconds=300 - number)
        world.add(rule(name, selector=DeviceSelector(device=device), added=added))
    assert world.after(5) == ["other"]
    world.remove(world.pod("other"))
    assert world.after(5) == ["other", "first", "second"]
