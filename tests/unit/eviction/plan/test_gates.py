"""Places, tokens, the look at limits, and decisions that were found wrong once; `test_oracle` compares the whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, using
from tests.unit.eviction.plan.taking import InLine, Taking, room_of
from tests.unit.eviction.world import FREE
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, DisruptionBudget, Pod, PodGroup
from webhook.api.rules import DeviceSelector
from webhook.eviction.ledger import Ledger, Moment, View
from webhook.eviction.plan import plan
from webhook.eviction.pod_plan import EvictionPlan, StepReason, Unit, Wait
from webhook.eviction.ports import BudgetLimit, LimitKind
from webhook.eviction.profiles import Profile
from webhook.eviction.room import GATE_OF, Gate, Room
from webhook.inventory.evictions import Evictions
from webhook.inventory.pools import Evictor
from webhook.inventory.state import Inventory, InventoryObject
from webhook.inventory.targets import EvictionScope


class Here:
    """A view, and what is taken from it."""

    def __init__(self, *objects: InventoryObject, ledger: Ledger | None = None, **settings: Any) -> None:
        self.inventory = Inventory()
        for each in (slice_of({"gpu-0": ()}), rule(), *objects):
            self.inventory.apply(None, each)
        self.profile = Profile(0, structs.replace(FREE, **settings))
        self.ledger = ledger or Ledger()
        self.budget: DisruptionBudget | None = None
        """Over all pods."""

    def view(self) -> View:
        evictions = Evictions(self.inventory, EvictionScope(Evictor.OURS, asked=True), lambda _: NOW)
        evictions.everything()
        return View(
            inventory=self.inventory,
            evictions=evictions,
            hit=evictions.hits(),
            profile_of=lambda _: self.profile,
            hold_of=lambda _: None,
            group_of=str,
            exceeded=lambda *_: "",
        )

    def take(self, gates: Mapping[type[Any], Gate] = GATE_OF, seconds: float = 0.0) -> Taking:
        """What goes so many seconds later."""
        moment = Moment(NOW + timedelta(seconds=seconds), 1000.0 + seconds)
        view = self.view()
        made = plan(view, self.ledger, None, moment)
        room = room_of(view, self.ledger, moment, made.terminating, budgets=self, profiles=(self.profile,))
        room.gate_of.update(gates)
        return InLine(made.eligible, room).take()

    def select(self, _: Pod) -> tuple[DisruptionBudget, ...]:
        return () if self.budget is None else (self.budget,)

    def find(self, namespace: str, name: str) -> DisruptionBudget | None:  # noqa: ARG002 -- the port's
        return self.budget


def crowd(count: int, **fields: Any) -> list[InventoryObject]:
    """Pods of one owner, with a claim each."""
    return [*using(*[f"pod-{number:04}" for number in range(count)], make=owned, **fields)]


def names(taking: Taking) -> list[str]:
    return [each.pod.meta.name for unit in taking.units for each in unit.members]


def kinds(taking: Taking) -> Counter[LimitKind]:
    return Counter([wait.limit.kind for wait in taking.waits.values() if wait is not None and wait.limit is not None])


# --- adding a limit -----------------------------------------------------------------------------


class Zone(msgspec.Struct, frozen=True):
    """One pod of a node at a time."""

    node: str
    kind = LimitKind.OVERALL


class Zones:
    """A limit that is one class and one row: CONTRIBUTING says how."""

    def __init__(self) -> None:
        self.taken = Counter[str]()

    def limits(self, unit: Unit, room: Room) -> Iterable[Any]:  # noqa: ARG002 -- as the others
        return [Zone(each.pod.node_name) for each in unit.members]

    def closed(self, limit: Any, room: Room) -> Wait | None:  # noqa: ARG002
        return Wait(StepReason.LIMITED, limit=limit) if self.taken[limit.node] else None

    def take(self, unit: Unit, room: Room) -> None:  # noqa: ARG002
        self.taken.update([each.pod.node_name for each in unit.members])


def test_new_limit_is_one_class_and_one_row() -> None:
    here = Here(claim("a"), pod("a"), claim("b"), pod("b"), claim("c"), pod("c", node_name="node-9"))
    taking = here.take({Zone: Zones()})
    assert names(taking) == ["a", "c"]
    wait = taking.waits["uid-b"]
    assert wait is not None
    assert repr(wait.limit) == "Zone(node='node-0')"


# --- what is taken ------------------------------------------------------------------------------


def test_units_behind_one_limit_cost_one_look() -> None:
    """The status of a budget that allows nothing is not read for each of 1,200 pods."""

    class Counted:
        looks = 0

        def limits(self, unit: Unit, room: Room) -> Iterable[Any]:
            return GATE_OF[BudgetLimit].limits(unit, room)

        def closed(self, limit: Any, room: Room) -> Wait | None:
            self.looks += 1
            return GATE_OF[BudgetLimit].closed(limit, room)

        def take(self, unit: Unit, room: Room) -> None:
            GATE_OF[BudgetLimit].take(unit, room)

    here, counted = Here(*crowd(1200)), Counted()
    here.budget = DisruptionBudget(ObjectMeta(name="web", namespace="ml"), None, 0, 1, 2)
    taking = here.take({BudgetLimit: counted})
    assert len(taking.units) == 1  # the probe
    assert kinds(taking) == {LimitKind.BUDGET: 1199}
    assert counted.looks < 20


def test_minute_goes_by_the_settings_and_not_by_the_position_of_a_profile() -> None:
    """R13: a reload that moves a profile gives no second minute."""
    here = Here(*crowd(4), max_per_minute=2)
    assert len(here.take().units) == 2
    here.profile = Profile(0, here.profile.settings)
    assert kinds(here.take(seconds=30.0)) == {LimitKind.MINUTE: 2}


def test_nothing_is_taken_for_units_that_find_no_room() -> None:
    here = Here(*crowd(5), per_namespace=1)
    here.take()
    before = deepcopy(here.ledger)
    assert kinds(here.take()) == {LimitKind.NAMESPACE: 4}
    assert here.ledger.taken == before.taken
    assert here.ledger.departures == before.departures


# --- decisions that were found wrong once ---------------------------------------------------------


def planned(here: Here, seconds: float, **stops: int) -> EvictionPlan:
    """What the pass makes of it; `stops`: the most pods that rules may hit."""
    view = replace(here.view(), exceeded=lambda group, pods, *_: "too many" if pods > stops.get(group, 1000) else "")
    return plan(view, Ledger(), None, Moment(NOW + timedelta(seconds=seconds), 1000.0 + seconds))


def test_companions_count_for_the_next_rule_once_the_first_is_stopped() -> None:
    """Else a ceiling could be passed through a PodGroup that goes because of two rules."""
    here = Here(
        PodGroup(ObjectMeta(name="ring", namespace="ml", uid="uid-ring"), ALL),
        *[rule(f"r{number}", selector=DeviceSelector(device=f"gpu-{number}")) for number in (1, 2)],
        *using("p1", on="gpu-1", pod_group="ring"),
        *using("p2", on="gpu-2", pod_group="ring", after=60),
        *[pod(f"c{number}", claims=(), pod_group="ring") for number in range(20)],
    )
    here.inventory.apply(rule(), None)
    made = planned(here, 100.0, **{"uid-r1": 10, "uid-r2": 5})
    assert {uid: bool(figures.stopped) for uid, figures in made.rules.items()} == {"uid-r1": True, "uid-r2": True}
    assert (made.going, [*made.eligible]) == ({}, [])


def test_hold_that_would_end_after_the_calendar_does_not_end_before() -> None:
    here = Here(claim("a"), pod("a", hold="for ever"), max_hold_seconds=1e15)
    assert planned(here, 1e6).waits["uid-a"].reason is StepReason.HELD
