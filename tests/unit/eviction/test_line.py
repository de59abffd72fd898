"""Who goes next of the pods that may go: in which order, and when nothing can go for how long."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates, using
from tests.unit.eviction.world import FREE, World, evicting
from webhook.api.rules import EVICTIONS_PER_SECOND, DeviceSelector
from webhook.eviction.ledger import Failure
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult, LimitKind
from webhook.policy.model import Pause

FAILED = EvictionOutcome(EvictionResult.FAILED, "500")
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


def test_pod_that_was_refused_goes_after_those_that_were_not() -> None:
    world = evicting(*using(*"abc"), rule(), answers=[FAILED])
    assert world.after(1) == ["b", "c", "a"]


def test_pod_behind_one_that_is_kept_back_goes_before_those_of_other_rates() -> None:
    world = evicting(owned("broken", ready=False), per_owner_unavailable=1)
    for name, device in (("a1", "a"), ("a2", "a"), ("b3", "b"), ("c4", "c")):
        world.add(claim(name, devices=(f"gpu-{device}",)), owned(name) if name == "a1" else pod(name))
    world.add(*[rule(each, selector=DeviceSelector(device=f"gpu-{each}")) for each in "cba"])
    assert world.settled() == ["a2", "b3", "c4"]


def test_pod_that_is_taken_is_in_line_no_longer() -> None:
    world = evicting(claim("a"), pod("a"), claim("b"), pod("b"), rule(), overall=1)
    world.catch_up()
    assert world.worker.take() is not None
    line = world.worker._core.line
    assert ("uid-a" in line, "uid-b" in line, len(line)) == (False, True, 1)
    assert world.worker.take() is None
    waits = dict(line.pods())
    assert {uid: wait and wait.limit and wait.limit.kind for uid, wait in waits.items()} == {"uid-b": LimitKind.OVERALL}
    world.catch_up()
    assert "uid-a" not in world.worker._core.line


# --- room that becomes free ---------------------------------------------------------------------


def nothing(world: World) -> None:
    """The first of those that wait goes."""


def spared(world: World) -> None:
    world.remove(world.inventory.claims["ml/a-claim"])


def held(world: World) -> None:
    world.edit(world.pod("a"), hold="later")


def gone(world: World) -> None:
    world.remove(world.pod("a"))


def of_an_owner_without_room(world: World) -> None:
    world.add(owned("broken", ready=False))


@pytest.mark.parametrize("meanwhile", [nothing, spared, held, gone, of_an_owner_without_room])
def test_room_goes_to_the_first_that_needs_it_and_may_go(meanwhile: Callable[[World], None]) -> None:
    world = evicting(overall=1, per_owner_unavailable=1, lingering=True)
    world.add(claim("0"), pod("0"), claim("a"), owned("a"), claim("b"), pod("b"), rule())
    assert world.settled() == ["0"]
    meanwhile(world)
    assert world.settled() == ["0"]
    world.remove(world.pod("0"))
    world.settle()
    first = "a" if meanwhile is nothing else "b"
    assert world.evicted == ["0", first]
    world.remove(world.pod(first))
    assert world.settled() == ["0", "a", "b"] if meanwhile is nothing else ["0", "b"]


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
