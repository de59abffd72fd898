"""Members of a PodGroup that is disrupted as a whole go only along with one that a taint evicts, and that goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import FREE, NO_BREAKER, World, evicting
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, Pod, PodGroup
from webhook.api.rules import DeviceSelector
from webhook.eviction import planner
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling, EvictionOutcome, EvictionResult
from webhook.eviction.profiles import Profiles
from webhook.policy.model import BreakerSettings, EvictionProfile

GROUP = PodGroup(ObjectMeta(name="ring", namespace="ml", uid="uid-ring"), ALL, None)
FAILED = EvictionOutcome(EvictionResult.FAILED, "boom")


def companion(name: str = "z") -> Pod:
    """A member without a device."""
    return pod(name, pod_group="ring", claims=())


def ring(*profiles: EvictionProfile) -> World:
    world = World(Mode.REPLACEMENT, *(profiles or (FREE,)))
    world.add(GROUP)
    return world


CHANGED: dict[str, Callable[[World], None]] = {
    "becomes single": lambda world: world.edit(GROUP, disruption_mode=SINGLE),
    "is gone": lambda world: world.remove(GROUP),
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_companions_stay_once_their_group_no_longer_goes_as_a_whole(change: Callable[[World], None]) -> None:
    world = ring()
    world.cluster.lingering = True
    world.add(claim("a"), pod("a", pod_group="ring"), companion("y"), companion("z"))
    world.cluster.while_connecting.extend([lambda: None, lambda: change(world)])
    world.add(rule())
    assert world.after(2) == ["a"]


def test_companion_is_not_sent_once_the_rule_is_gone_although_its_unit_has_begun() -> None:
    world = ring()
    world.add(claim("a"), pod("a", pod_group="ring"), companion("y"), companion("z"), rule())
    world.cluster.while_connecting += [lambda: None, lambda: world.remove(world.inventory.rules["rule"])]
    assert world.settled() == ["a"]


@pytest.mark.parametrize("hit", ["a", "z"], ids=["first", "last"])
def test_replacement_of_a_pod_that_was_evicted_stays_while_the_other_one_is_asked_for(hit: str) -> None:
    """A member is evicted and gone before the other one is asked for, and another pod has joined the group."""
    world = ring()
    world.add(claim(hit), pod(hit, pod_group="ring"), companion("y0"), rule())
    world.cluster.while_connecting += [lambda: None, lambda: world.add(companion("y1"))]
    assert world.after(60) == sorted([hit, "y0"])


def test_pod_that_joins_a_group_before_one_of_it_was_asked_for_goes_with_it() -> None:
    world = ring()
    world.add(claim("a"), pod("a", pod_group="ring"), companion("z0"), rule())
    world.cluster.while_connecting += [lambda: world.add(companion("z1"))]
    assert world.after(60) == ["a", "z0", "z1"]


def test_member_whose_pool_is_not_published_in_full_goes_along_with_one_that_a_rule_hits() -> None:
    world = evicting(breaker=NO_BREAKER, lingering=True)
    unfinished = structs.replace(slice_of({"gpu-b": (taint(key="other"),)}, pool="node-1", name="half"), slice_count=2)
    world.add(GROUP, unfinished, claim("a"), pod("a", pod_group="ring"))
    world.add(claim("b", tolerates(), devices=("gpu-b",), pool="node-1"), pod("b", pod_group="ring"))
    assert world.after(30) == []
    world.add(rule())
    assert sorted(world.after(30)) == ["a", "b"]


def test_pods_wait_for_the_last_of_their_group_although_the_group_is_seen_after_them() -> None:
    world = evicting()
    for name, seconds in (("x", 100), ("y", 600)):
        world.add(claim(name, tolerates(seconds)), pod(name, pod_group="ring"))
    world.add(rule())
    world.advance(1)
    world.add(GROUP)
    assert world.after(590) == []
    assert world.after(60) == ["x", "y"]


@pytest.mark.parametrize("whole_most", [1000, 0], ids=["whole", "part"])
def test_companions_that_come_later_count_against_the_ceiling(whole_most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "WHOLE_MOST", whole_most)
    world = evicting(rate=0.1, burst=1, ceiling_of=lambda _: Ceiling(4))
    world.add(GROUP, claim("y"), pod("y", pod_group="ring"), *[claim(name) for name in "abc"])
    world.add(*[pod(name) for name in "abc"], rule())
    world.advance(1)
    world.add(*[companion(f"z{number}") for number in range(20)])
    assert len(world.after(600)) == 1


@pytest.mark.parametrize("first", ["hit", "companion"])
def test_member_whose_own_rule_is_stopped_follows_the_others_of_its_unit(first: str) -> None:
    world = evicting(ceiling_of=lambda rule: Ceiling(0) if rule.meta.name == "stopped" else None)
    hit, other = ("a", "z") if first == "hit" else ("z", "a")
    world.add(GROUP, claim(hit), pod(hit, pod_group="ring"))
    world.add(claim(other, devices=("gpu-1",)), pod(other, pod_group="ring"))
    world.add(rule(selector=DeviceSelector(driver=DRIVER, device="gpu-0")))
    world.add(rule("stopped", selector=DeviceSelector(driver=DRIVER, device="gpu-1")))
    assert world.after(30) == ["a", "z"]
    assert world.condition("stopped")[1] == "Stopped"


def test_member_whose_breaker_has_tripped_follows_the_others_of_its_unit() -> None:
    world = evicting(breaker=BreakerSettings(devices=1, window_seconds=100, calm_seconds=200))
    world.add(GROUP, claim("a"), pod("a", pod_group="ring"))
    world.add(claim("z", devices=("gpu-1",)), pod("z", pod_group="ring"))
    world.add(slice_of({"gpu-0": (), "gpu-1": (taint(),), "gpu-2": (taint(),)}))
    world.advance(1)
    world.add(rule(selector=DeviceSelector(driver=DRIVER, device="gpu-0")))
    assert world.after(30) == ["a", "z"]


def test_companion_whose_profile_changes_after_its_unit_has_begun_goes_by_the_new_one() -> None:
    """The old one deletes pods past their budgets, the new one does not."""
    world = ring(structs.replace(FREE, deadline_seconds=0.0, delete_after_deadline=True))
    world.cluster.lingering = True

    def change() -> None:
        world.profiles = Profiles((FREE,))
        world.worker.replan_all()

    world.cluster.while_connecting += [lambda: None, change]
    world.add(claim("a"), pod("a", pod_group="ring"), companion(), rule())
    world.advance(30)
    assert [(verb, key) for verb, key, _ in world.cluster.requests] == [("delete", "ml/a"), ("evict", "ml/z")]
