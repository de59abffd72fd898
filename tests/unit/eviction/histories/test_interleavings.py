"""A unit of two pods and one more pod under one rule: all orders of takes, sends, answers, passes and a change.

Each order is played; what it breaks is in `Checks`. Every await of a request, and each pause of a pass that is cut in
two, may come before or after every other one, and before or after the change.
"""

from __future__ import annotations

from typing import Final

import pytest
from msgspec import structs

from tests.unit.eviction.histories.events import (
    ClaimIsFreed,
    Event,
    PassGoesOn,
    PauseChanges,
    PodChanges,
    PodComes,
    PodGoes,
    PodTerminates,
    PolicyChanges,
    RequestGoesOn,
    RuleChanges,
    RuleGoes,
    UnitIsTaken,
)
from tests.unit.eviction.histories.orders import Scene, orders_of
from tests.unit.eviction.histories.played import Setting
from tests.unit.eviction.world import BLUNT, FREE
from webhook.eviction.sender import Sender

CHANGES: Final[dict[str, Event]] = {
    "a pod is held": PodChanges("b", held=True),
    "the rule goes": RuleGoes(),
    "a pod terminates": PodTerminates("b"),
    "its claim is freed": ClaimIsFreed("b"),
    "a pod is gone": PodGoes("b"),
    "evictions are paused": PauseChanges(1000.0),
    "another pod comes": PodComes("d", gang="train", shared=True),
    "the rule may hit one pod": RuleChanges(most="1"),
    "a limit is set": PolicyChanges((structs.replace(BLUNT, overall=1, deadline_seconds=600.0),)),
}
DELETED: Final = Setting(profiles=(BLUNT,), lingers=False)
ASKED: Final = Setting(profiles=(FREE,))
ONE_PLACE: Final = Setting(profiles=(structs.replace(BLUNT, overall=1),), lingers=False)
GANG: Final = (PodComes("a", gang="train"), PodComes("b", gang="train"))
SHARED: Final = (PodComes("a", shared=True), PodComes("b", shared=True))
UNITS: Final = {"gang": GANG, "shared claim": SHARED}
LATER: Final = PodComes("c", seconds=100)
"""It is in the plan, and goes once all is quiet."""
NEXT: Final = PodComes("c", priority=1)
"""It goes as soon as there is room."""
HALF_A_PASS: Final = 10


def check(scene: Scene, more_than: int) -> None:
    """No order breaks anything, and there are more of them than that."""
    orders = list(orders_of(scene))
    print(f"{len(orders)} orders")
    assert len(orders) > more_than
    assert not (broken := [each for each in orders if each.broken]), broken[0]


@pytest.mark.untraced
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("unit", UNITS)
def test_no_order_of_a_unit_and_a_change_breaks_anything(unit: str, change: str) -> None:
    check(Scene(DELETED, (*UNITS[unit], LATER, RuleChanges()), (CHANGES[change],)), 50)


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("unit", "change"),
    [
        ("gang", "a pod is held"),
        pytest.param("shared claim", "a pod terminates", marks=pytest.mark.whole),
        pytest.param("gang", "a pod is gone", marks=pytest.mark.whole),
    ],
)
def test_no_order_of_a_unit_half_a_pass_and_a_change_breaks_anything(unit: str, change: str) -> None:
    """The change also comes before, in and after half a pass; the long tests take all changes."""
    check(Scene(DELETED, (*UNITS[unit], LATER, RuleChanges()), (CHANGES[change],), (HALF_A_PASS,)), 200)


@pytest.mark.untraced
def test_no_order_of_a_unit_and_a_pod_that_waits_for_its_place_breaks_anything() -> None:
    check(Scene(ONE_PLACE, (*GANG, NEXT, RuleChanges())), 500)


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("setting", "first", "slices"),
    [
        pytest.param(ONE_PLACE, (*GANG, NEXT), (), id="a pod waits for its place"),
        pytest.param(ASKED, (*SHARED, LATER), (HALF_A_PASS, HALF_A_PASS), id="budgets are asked"),
    ],
)
def test_no_order_of_two_units_and_a_change_breaks_anything(
    setting: Setting, first: tuple[Event, ...], slices: tuple[int, ...], change: str
) -> None:
    check(Scene(setting, (*first, RuleChanges()), (CHANGES[change],), slices), 500)


def test_orders_are_all_there_are() -> None:
    """One pod that is prepared, written and answered, and a change that may come at each of these moments."""
    [*orders] = orders_of(Scene(DELETED, (PodComes("a"), RuleChanges()), (PodChanges("z", held=True),)))
    change, take, on = PodChanges("z", held=True), UnitIsTaken(), RequestGoesOn()
    rows = [[*[take, on, on, on][:at], change, *[take, on, on, on][at:]] for at in range(5)]
    assert sorted(map(str, rows)) == sorted(str(list(each.row)) for each in orders)


def test_a_worker_that_does_not_look_as_a_request_is_written_breaks_some_orders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Sender, "_wanted", lambda *_: True)
    orders = orders_of(Scene(DELETED, (*GANG, LATER, RuleChanges()), (CHANGES["a pod is held"],)))
    broken = [each for each in orders if each.broken]
    assert {each.broken.partition(":")[0] for each in broken} == {"request"}
    assert not any(isinstance(each, PassGoesOn) for order in broken for each in order.row)
