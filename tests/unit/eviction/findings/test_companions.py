"""Members of a PodGroup that is disrupted as a whole go only along with one that a taint evicts, and that goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import FREE, NO_BREAKER, World, evicting
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, Pod, PodGroup
from webhook.api.rules import DeviceSelector
from webhook.eviction import planner
from webhook.eviction.ports import Ceiling
from webhook.eviction.profiles import Profiles

GROUP = PodGroup(ObjectMeta(name="ring", namespace="ml", uid="uid-ring"), ALL, None)


def companion(name: str = "z") -> Pod:
    """A member without a device."""
    return pod(name, pod_group="ring", claims=())


def ring(**fields: Any) -> World:
    return evicting(GROUP, **fields)


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


def test_companion_whose_profile_changes_after_its_unit_has_begun_goes_by_the_new_one() -> None:
    """The old one deletes pods past their budgets, the new one does not."""
    world = ring(deadline_seconds=0.0, delete_after_deadline=True)
    world.cluster.lingering = True

    def change() -> None:
        world.profiles = Profiles((FREE,))
        world.worker.replan_all()

    world.cluster.while_connecting += [lambda: None, change]
    world.add(claim("a"), pod("a", pod_group="ring"), companion(), rule())
    world.advance(30)
    assert [(verb, key) for verb, key, _ in world.cluster.requests] == [("delete", "ml/a"), ("evict", "ml/z")]


# --- ceilings: one pod more than confirmed comes to go for a rule, none of them by a taint of that rule -------------


@pytest.fixture(params=[1000, 0], ids=["whole", "part"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above so many pods, only those that have changed are planned again."""
    monkeypatch.setattr(planner, "WHOLE_MOST", request.param)


by_size = pytest.mark.usefixtures("size")


@by_size
def test_companions_that_come_later_count_against_the_ceiling() -> None:
    world = evicting(rate=0.1, burst=1, ceiling_of=lambda _: Ceiling(4))
    world.add(GROUP, claim("y"), pod("y", pod_group="ring"), *[claim(name) for name in "abc"])
    world.add(*[pod(name) for name in "abc"], rule())
    world.advance(1)
    world.add(*[companion(f"z{number}") for number in range(20)])
    assert len(world.after(600)) == 1


def limited(**most: int) -> World:
    """Rules of these names may evict so many pods."""
    ceilings = {name: Ceiling(pods) for name, pods in most.items()}
    return evicting(GROUP, breaker=NO_BREAKER, ceiling_of=lambda rule: ceilings.get(rule.meta.name))


def member(name: str, hold: str | None = None) -> Pod:
    return pod(name, pod_group="ring", hold=hold)


def stays_stopped(world: World, of: str, name: str, *evicted: str) -> None:
    """The rule is, before and after the hold of the pod that it hits: so all is planned before anything may go."""
    world.advance(30)
    assert world.condition(of)[1] == "Stopped"
    world.edit(world.pod(name), hold=None)
    assert world.after(30) == [*evicted]
    assert world.condition(of)[1] == "Stopped"


@by_size
def test_companion_that_joins_the_group_counts() -> None:
    world = limited(rule=1)
    world.add(claim("a"), member("a", "debugging"), rule())
    world.advance(30)
    world.add(companion())
    stays_stopped(world, "rule", "a")


@by_size
def test_companion_that_goes_for_another_rule_from_now_on_counts_for_that() -> None:
    """The first member that goes was hit by the one rule, and the next one is hit by the other."""
    world = limited(two=1)
    world.add(claim("a"), member("a"), claim("b", devices=("gpu-1",)), member("b", "debugging"), companion())
    world.add(rule("one", selector=DeviceSelector(driver=DRIVER, device="gpu-0")))
    world.add(rule("two", selector=DeviceSelector(driver=DRIVER, device="gpu-1")))
    world.advance(30)
    world.remove(world.pod("a"))
    stays_stopped(world, "two", "b")


@by_size
def test_member_whose_pool_is_not_published_in_full_counts_for_the_rule_for_which_it_goes_along() -> None:
    world = limited(rule=1)
    unfinished = structs.replace(slice_of({"gpu-b": (taint(key="other"),)}, pool="node-1", name="half"), slice_count=2)
    world.add(unfinished, claim("a"), member("a", "debugging"), rule())
    world.advance(30)
    world.add(claim("b", tolerates(), devices=("gpu-b",), pool="node-1"), member("b"))
    stays_stopped(world, "rule", "a")


@by_size
def test_member_whose_own_rule_is_stopped_counts_for_the_rule_for_which_it_goes_along() -> None:
    world = limited(one=1, two=0)
    world.add(claim("a"), member("a", "debugging"), claim("b", devices=("gpu-1",)), pod("b"))
    world.add(rule("one", selector=DeviceSelector(driver=DRIVER, device="gpu-0")))
    world.add(rule("two", selector=DeviceSelector(driver=DRIVER, device="gpu-1")))
    world.advance(30)
    world.add(claim("z", devices=("gpu-1",)), member("z"))
    stays_stopped(world, "one", "a")


@by_size
def test_companion_that_has_the_name_of_one_that_was_evicted_counts_beside_it() -> None:
    world = limited(rule=2)
    world.cluster.lingering = True
    world.cluster.while_connecting += [lambda: None, lambda: world.edit(world.pod("b"), hold="debugging")]
    world.add(companion("a"), claim("b"), member("b"), rule())
    world.settle()
    world.remove(world.pod("a"))
    world.add(structs.replace(companion("a"), meta=structs.replace(companion("a").meta, uid="another")))
    stays_stopped(world, "rule", "b", "a")
