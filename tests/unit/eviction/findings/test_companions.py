"""Members of a PodGroup that is disrupted as a whole go only along with one that a taint evicts, and that goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import FREE, NO_BREAKER, World, evicting
from webhook.api.claims import Consumer, ResourceClaim
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, Pod, PodClaim, PodGroup
from webhook.api.rules import DeviceSelector
from webhook.eviction import planner
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling, EvictionOutcome, EvictionResult
from webhook.eviction.profiles import Profiles
from webhook.policy.model import BreakerSettings, EvictionProfile

GROUP = PodGroup(ObjectMeta(name="ring", namespace="ml", uid="uid-ring"), ALL, None)
SKIP = EvictionProfile(skips=True, priority_at_most=-1, per_owner_unavailable=None)
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


STAYING = {
    "action: skip": pod("a", pod_group="ring", priority=-5),
    "DaemonSet": owned("a", kind="DaemonSet", pod_group="ring"),
    "mirror": pod("a", pod_group="ring", mirror=True),
}


@pytest.mark.parametrize("staying", STAYING.values(), ids=STAYING)
def test_member_that_is_exempt_takes_nobody_along(staying: Pod) -> None:
    world = ring(SKIP, FREE)
    world.add(claim("a"), staying, companion(), rule())
    world.advance(60)
    world.add(companion("y"))
    assert world.after(60) == []
    assert world.condition("rule")[:2] == ("False", "NothingToDo")


def reserved(*pods: Pod) -> ResourceClaim:
    return claim("shared", consumers=tuple(Consumer("", "pods", each.meta.name, each.meta.uid) for each in pods))


def test_member_that_came_back_to_its_device_takes_nobody_along() -> None:
    """Its claim stays allocated, as its replacement is there before it has gone; the companion is replaced, too."""
    world = ring()
    world.cluster.lingering = True

    def user(number: int) -> Pod:
        return pod(f"a{number}", pod_group="ring", claims=(PodClaim("shared-claim"),))

    world.add(reserved(user(0)), user(0), companion("z0"), rule())
    for number in range(1, 9):
        world.advance(30)
        for each in [each for each in world.inventory.pods.values() if each.deleting]:
            world.remove(each)
            if each.uses_claims:
                world.add(user(number))
                world.change(world.inventory.claims["ml/shared-claim"], reserved(user(number)))
            else:
                world.add(companion(f"z{number}"))
    assert sorted(world.evicted) == ["a0", "a1", "z0", "z1"]


def test_member_on_hold_is_waited_for() -> None:
    world = ring(structs.replace(FREE, max_hold_seconds=100.0))
    world.add(claim("a"), pod("a", pod_group="ring", hold="debugging"), companion(), rule())
    assert world.after(99) == []
    assert sorted(world.after(2)) == ["a", "z"]


def finish(world: World) -> None:
    world.edit(world.pod("a"), phase="Succeeded", ready=False)


def delete(world: World) -> None:
    world.edit(world.pod("a"), deleting=True)


@pytest.mark.parametrize("end", [finish, delete])
def test_companions_stay_if_the_only_pod_that_is_hit_ends_before_it_is_due(end: Callable[[World], None]) -> None:
    world = ring()
    world.add(claim("a", tolerates(60)), pod("a", pod_group="ring"), companion("y"), companion("z"), rule())
    world.advance(30)
    end(world)
    assert world.after(60) == []


@pytest.mark.parametrize("end", [finish, delete])
def test_companions_go_with_the_member_that_is_left(end: Callable[[World], None]) -> None:
    world = ring()
    world.add(claim("a"), pod("a", pod_group="ring"), companion())
    world.add(claim("b", tolerates(60)), pod("b", pod_group="ring"), rule())
    world.advance(30)
    end(world)
    assert sorted(world.after(60)) == ["b", "z"]


@pytest.mark.parametrize("lingering", [True, False])
def test_companion_is_sent_although_the_pod_that_it_goes_with_is_gone_already(lingering: bool) -> None:  # noqa: FBT001
    world = ring()
    world.cluster.lingering = lingering
    world.add(claim("a"), pod("a", pod_group="ring"), companion("y"), companion("z"), rule())
    assert sorted(world.settled()) == ["a", "y", "z"]


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
