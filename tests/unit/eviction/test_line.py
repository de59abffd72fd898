"""Who goes next of the pods that may go: in which order, and when nothing can go for how long."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, pod, rule, tolerates
from tests.unit.eviction.plan.taking import InLine, room_of
from tests.unit.eviction.plan.test_gates import Here, crowd
from tests.unit.eviction.world import FREE, World, evicting
from webhook.api.meta import ObjectMeta
from webhook.api.pods import DisruptionBudget
from webhook.api.rules import EVICTIONS_PER_SECOND, DeviceSelector
from webhook.eviction.ledger import Failure, Ledger, Moment
from webhook.eviction.line import Line
from webhook.eviction.modes import Mode
from webhook.eviction.plan import plan
from webhook.eviction.pod_plan import Unit, Wait
from webhook.eviction.ports import BudgetLimit
from webhook.eviction.room import GATE_OF, Room
from webhook.policy.model import Pause

HAIR = timedelta(microseconds=1)


# --- the order ----------------------------------------------------------------------------------

ORDERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "priority": ({"name": "z", "priority": 0, "refusals": 9, "due": 9}, {"name": "a", "priority": 1}),
    "a negative priority": ({"name": "z", "priority": -1, "refusals": 9, "due": 9}, {"name": "a"}),
    "refusals": ({"name": "z", "due": 9}, {"name": "a", "refusals": 1}),
    "due": ({"name": "z"}, {"name": "a", "due": 9}),
    "due by a hair": ({"name": "z"}, {"name": "a", "added": NOW + HAIR}),
    "name": ({"name": "a"}, {"name": "z"}),
}


def stand(world: World, name: str, *, due: int = 0, refusals: int = 0, added: Any = NOW, **fields: Any) -> None:
    """A pod with a device and a rule of its own."""
    world.add(claim(name, tolerates(due), devices=(f"gpu-{name}",)), pod(name, **fields))
    world.add(rule(name, selector=DeviceSelector(device=f"gpu-{name}"), added=added))
    if refusals:
        world.worker._core.ledger.failures[f"uid-{name}"] = Failure(refusals)


@pytest.mark.parametrize(("first", "second"), ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("last_first", [False, True])
@pytest.mark.parametrize("waited", [False, True], ids=["at once", "after they have waited for a limit"])
def test_each_part_of_the_order_outweighs_those_behind_it(
    first: dict[str, Any], second: dict[str, Any], *, last_first: bool, waited: bool
) -> None:
    """Each pod has its own rate, and they come in any order."""
    profile = structs.replace(FREE, overall=0 if waited else 1, rate=1000)
    world = World(Mode.REPLACEMENT, profile)
    world.pause = None if waited else Pause(NOW + timedelta(hours=1))
    for each in (second, first) if last_first else (first, second):
        stand(world, **each)
        world.settle()
    assert world.after(30) == []
    world.pause = None
    world.change_policy(structs.replace(profile, overall=1))
    assert world.evicted == [first["name"], second["name"]]


# --- how long nothing can go --------------------------------------------------------------------


@pytest.mark.parametrize("rates", list(permutations((0.2, 0.5, 0.1))))
def test_each_rate_lets_its_pods_go_at_its_time_and_the_worker_sleeps_until_the_first(rates: tuple[float, ...]) -> None:
    """By the profiles of pods with priority 0, 1 and 2."""
    profiles = [structs.replace(FREE, rate=rate, burst=1, priority_at_most=number) for number, rate in enumerate(rates)]
    world = World(Mode.REPLACEMENT, *profiles)
    for number in range(3):
        for name in (f"{number}-first", f"{number}-second"):
            world.add(claim(name), pod(name, priority=number))
    world.add(rule())
    assert world.settled() == ["0-first", "1-first", "2-first"]
    assert world.worker.take_seconds == pytest.approx(2.0, abs=0.001)
    world.advance(20)
    seconds = {name: at for _, name, at in world.cluster.calls[3:]}
    expected = {f"ml/{number}-second": 1 / rate for number, rate in enumerate(rates)}
    assert seconds == pytest.approx(expected, abs=0.001)
    assert world.worker.take_seconds == math.inf


def test_pod_behind_a_limit_that_time_does_not_open_wakes_nobody() -> None:
    world = evicting(claim(), pod(), rule(annotations={EVICTIONS_PER_SECOND: "1"}), overall=0)
    world.settle()
    assert (len(world.worker._core.line), world.worker.take_seconds) == (1, math.inf)


# --- who is looked at next, and how often ---------------------------------------------------------


BLOCKED = DisruptionBudget(ObjectMeta(name="web", namespace="ml"), None, 0, 1, 2)


class Looks:
    """The budgets' gate; counts the units that are looked at."""

    def __init__(self) -> None:
        self.units = 0

    def limits(self, unit: Unit, room: Room) -> Iterable[Any]:
        self.units += 1
        return GATE_OF[BudgetLimit].limits(unit, room)

    def closed(self, limit: Any, room: Room) -> Wait | None:
        return GATE_OF[BudgetLimit].closed(limit, room)

    def take(self, unit: Unit, room: Room) -> None:
        GATE_OF[BudgetLimit].take(unit, room)


def standing(here: Here, looks: Looks) -> tuple[tuple[Unit, ...], Room]:
    """Who may go, and the room that there is, with a look at each unit counted."""
    view, moment = here.view(), Moment(NOW, 1000.0)
    made = plan(view, Ledger(), None, moment)
    room = room_of(view, Ledger(), moment, made.terminating, budgets=here, profiles=(here.profile,))
    room.gate_of[BudgetLimit] = looks
    return tuple(made.eligible), room


def test_units_behind_a_limit_that_is_still_closed_are_not_looked_at_again() -> None:
    here, looks = Here(*crowd(300)), Looks()
    here.budget = BLOCKED
    line = InLine(*standing(here, looks))
    assert len(line.take().units) == 1  # it asks the budget
    looks.units = 0
    assert not line.take().units
    assert not looks.units


def test_one_call_looks_at_some_of_many_units() -> None:
    """Nothing else runs meanwhile."""
    here, looks = Here(*crowd(300)), Looks()
    here.budget = BLOCKED
    units, room = standing(here, looks)
    line = Line(room)
    for unit in units:
        line.push(unit)
    assert line.take().unit
    looks.units = 0
    assert line.take() == (None, True)
    assert looks.units < 200


def test_new_plan_looks_at_nobody_whose_limit_is_still_closed() -> None:
    here, looks = Here(*crowd(300)), Looks()
    here.budget = BLOCKED
    units, room = standing(here, looks)
    before = InLine(units, room)
    before.take()
    line = filled(before.line, [unit for unit in units if unit.members[0].uid in before.line])
    assert len(line) == 299
    looks.units = 0
    assert line.take() == (None, False)
    assert not looks.units


def filled(line: Line, units: Iterable[Unit]) -> Line:
    """Who is in line after another plan."""
    steps = line.filled(units)
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
