"""Pods of several profiles, or due at several times, that go together: the limits of each of them count."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import claim, owned, pod, rule, tolerates
from tests.unit.eviction.world import FREE, World, evicting
from webhook.api.rules import EVICTIONS_PER_SECOND, DeviceSelector
from webhook.eviction.modes import Mode
from webhook.policy.model import EvictionWindow

LOW = -5


def of_two_profiles(narrow: str, **limit: Any) -> World:
    """Pods of low priority have the first one. One of the two has this limit, and the other none."""
    strict = structs.replace(FREE, **limit)
    first, second = (strict, FREE) if narrow == "first" else (FREE, strict)
    return World(Mode.REPLACEMENT, structs.replace(first, priority_at_most=0), second)


def mixed(world: World, gang: str, **fields: Any) -> None:
    """Two pods that go together: one of the first profile and one of the second."""
    for name, priority in ((f"{gang}-low", LOW), (f"{gang}-high", 100)):
        devices = (f"gpu-{name}",)
        world.add(claim(name, devices=devices), pod(name, gang=gang, priority=priority, **fields))


@pytest.mark.parametrize("narrow", ["first", "second"])
@pytest.mark.parametrize(
    "limit", [{"overall": 1}, {"per_namespace": 1}, {"max_per_minute": 1}, {"rate": 0.001, "burst": 1}], ids=str
)
def test_limit_of_either_profile_holds_for_both(limit: dict[str, Any], narrow: str) -> None:
    world = of_two_profiles(narrow, **limit)
    world.cluster.lingering = True
    # The place is taken by a pod of the strict profile.
    world.add(claim("x", devices=("gpu-x",)), pod("x", priority=LOW if narrow == "first" else 100), rule())
    assert world.after(1) == ["x"]
    mixed(world, "train")
    assert world.after(20) == ["x"]
    world.remove(world.pod("x"))
    assert sorted(world.after(2000)) == ["train-high", "train-low", "x"]


@pytest.mark.parametrize("narrow", ["first", "second"])
def test_owner_limit_of_either_profile_holds_for_both(narrow: str) -> None:
    world = of_two_profiles(narrow, per_owner_unavailable=1)
    world.add(claim("missing", tolerates(), devices=("gpu-m",)), owned("missing", ready=False))
    for name, priority in (("low", LOW), ("high", 100)):
        world.add(claim(name, devices=(f"gpu-{name}",)), owned(name, gang="train", priority=priority))
    world.add(rule())
    assert world.after(20) == []
    world.edit(world.pod("missing"), ready=True)
    assert sorted(world.after(1)) == ["high", "low"]


@pytest.mark.parametrize("narrow", ["first", "second"])
def test_window_of_either_profile_holds_for_both(narrow: str) -> None:
    opens = NOW + timedelta(hours=2)
    world = of_two_profiles(narrow, windows=(EvictionWindow(f"{opens.minute} {opens.hour} * * *", 3600.0, "UTC"),))
    mixed(world, "train")
    world.add(rule())
    assert world.after(2 * 3600 - 60) == []
    assert sorted(world.after(120)) == ["train-high", "train-low"]


def thirty_pairs(**fields: Any) -> World:
    """A pod in pool `fast` and one in pool `slow` go together."""
    world = evicting(**fields)
    for at in range(30):
        for pool in ("fast", "slow"):
            world.add(claim(f"{pool}-{at}", pool=pool), pod(f"{pool}-{at}", gang=f"g-{at}"))
    return world


@pytest.mark.parametrize("later", [-1, 0, 1])
def test_rate_of_each_pod_of_a_unit_holds_although_others_of_it_may_go_faster(later: int) -> None:
    world = thirty_pairs()
    for pool, rate, added in (("slow", "1", NOW + timedelta(seconds=later)), ("fast", "1000", NOW)):
        selector = DeviceSelector(DRIVER, pool)
        world.add(rule(pool, selector=selector, added=added, annotations={EVICTIONS_PER_SECOND: rate}))
    world.advance(max(later, 0))
    gone = list[int]()
    for _ in range(4):
        gone.append(sum(name.startswith("slow") for name in world.evicted))
        world.advance(1)
    assert gone == [10, 11, 12, 13]


def test_rate_that_a_rule_is_given_later_holds_for_units_that_wait() -> None:
    world = thirty_pairs(rate=0.001, burst=1)
    for pool in ("fast", "slow"):
        world.add(rule(pool, selector=DeviceSelector(DRIVER, pool)))
    assert len(world.after(1)) == 2
    for pool, rate in (("fast", "1000"), ("slow", "1")):
        before = world.inventory.rules[pool]
        meta = structs.replace(before.meta, annotations={EVICTIONS_PER_SECOND: rate})
        world.edit(before, meta=meta)
    assert len(world.after(4)) == 2 + 2 * 14
