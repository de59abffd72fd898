"""Which taints share a rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from tests.builders import DRIVER, KEY
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint
from tests.unit.eviction.patched import PATCH, POOL_0, fill, of_patch, part, patch
from tests.unit.eviction.world import FREE, NO_BREAKER, World
from webhook.api.rules import DeviceSelector
from webhook.api.taints import NO_EXECUTE, DeviceTaint, TaintExtras
from webhook.eviction.modes import Mode

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule
    from webhook.policy.model import EvictionProfile

OWN_RATE = structs.replace(taint(), extras=TaintExtras(evictions_per_second=1))
PODS = 15


def cluster(*profiles: EvictionProfile) -> World:
    """Pods on devices whose taints have a rate of their own, and as many on others."""
    world = World(Mode.REPLACEMENT, *profiles, breaker=NO_BREAKER)
    for number in range(PODS):
        for name in (f"own-{number}", f"usual-{number}"):
            world.add(claim(name, devices=(name,)), pod(name, priority=number % 2))
    tainted = [(f"own-{number}", (OWN_RATE,)) for number in range(PODS)]
    world.add(slice_of(dict([*tainted, *[(f"usual-{number}", (taint(),)) for number in range(PODS)]])))
    return world


def evicted(world: World, kind: str) -> int:
    return sum(name.startswith(kind) for name in world.evicted)


@pytest.mark.parametrize("position", [0, 1])
def test_rate_that_a_driver_asks_for_is_not_shared_with_its_other_taints(position: int) -> None:
    of_others = structs.replace(FREE, priority_at_most=-1)
    world = cluster(*[of_others] * position, structs.replace(FREE, rate=2, burst=2))
    world.settle()
    assert (evicted(world, "own"), evicted(world, "usual")) == (10, 2)
    world.advance(2.0)
    assert (evicted(world, "own"), evicted(world, "usual")) == (12, 6)


def test_rate_that_a_driver_asks_for_is_one_for_the_pods_of_all_profiles() -> None:
    world = cluster(structs.replace(FREE, priority_at_most=0), FREE)
    world.settle()
    assert (evicted(world, "own"), evicted(world, "usual")) == (10, PODS)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param([part(number) for number in range(6)], [2, 3, 4], id="of a patch"),
        pytest.param(
            [part(number, key=f"example.com/{number % 2}") for number in range(6)], [4, 6, 6], id="two taints"
        ),
        pytest.param([part(number, patch=f"p-{number % 2}") for number in range(6)], [4, 6, 6], id="of two patches"),
        pytest.param([rule(f"r-{at}", selector=part(at).selector) for at in range(6)], [6, 6, 6], id="of no patch"),
    ],
)
def test_rules_of_a_patch_share_one_rate_for_each_taint(rules: list[DeviceTaintRule], expected: list[int]) -> None:
    """Else a patch that has a rule for each device would evict from all of them at once."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, rate=1, burst=2))
    fill(world, *range(6), pods=1)
    taints = [DeviceTaint(key, "", NO_EXECUTE) for key in (KEY, "example.com/0", "example.com/1")]
    for name in (PATCH, "p-0", "p-1"):
        world.set_patch(patch(name, DeviceSelector(DRIVER), *taints))
    world.add(*rules)
    for seconds, gone in enumerate(expected):
        world.advance(min(seconds, 1))
        assert len(world.evicted) == gone


@pytest.mark.parametrize("gangs", [False, True], ids=["of single pods", "of pods with others that they do not hit"])
def test_rules_seen_before_the_update_of_their_patch_share_its_rate(*, gangs: bool) -> None:
    """Their pods are queued by then, each with the rate of its own rule."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, priority_at_most=-1), structs.replace(FREE, rate=1, burst=2))
    world.set_patch(patch(PATCH, DeviceSelector(DRIVER), DeviceTaint(KEY, "", "None")))
    for number in range(6):
        world.add(claim(f"of-patch-{number}", pool=f"node-{number}"), pod(f"of-patch-{number}", gang=f"g-{number}"))
        if gangs:
            world.add(claim(f"a-{number}", pool="other"), pod(f"a-{number}", gang=f"g-{number}", priority=-1))
    world.add(rule("other", selector=DeviceSelector(DRIVER, "other")), *[part(number) for number in range(6)])
    world.set_patch(patch(PATCH, DeviceSelector(DRIVER)))
    for seconds, gone in enumerate([2, 3, 4]):
        world.advance(min(seconds, 1))
        assert evicted(world, "of-patch") == gone


def test_rule_that_claims_to_be_of_a_patch_has_no_fresh_burst_for_another_key() -> None:
    """N-17: whatever changes on a rule; that it names a patch proves nothing."""
    world = World(Mode.REPLACEMENT, structs.replace(FREE, rate=1, burst=2))
    fill(world, 0, pods=6)
    world.set_patch(patch("another"))
    claimed = of_patch(rule("mine", selector=POOL_0, key="example.com/0"), "another")
    world.add(claimed)
    world.advance(0)
    assert len(world.evicted) == 2
    world.change(claimed, of_patch(rule("mine", selector=POOL_0, key="example.com/1"), "another"))
    world.advance(0)
    assert len(world.evicted) == 2
