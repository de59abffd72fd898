"""A pod that goes along counts for the ceiling of the rule for which it goes, also if only some pods are planned again.

In each of these scenes one pod more than confirmed comes to go for a rule, none of them by a taint of that rule. The
member that the rule hits is on hold, so all is planned before anything may go.
"""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.builders import DRIVER
from tests.unit.eviction.findings.test_companions import GROUP, companion
from tests.unit.eviction.objects import claim, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.world import NO_BREAKER, World, evicting
from webhook.api.pods import Pod
from webhook.api.rules import DeviceSelector
from webhook.eviction import planner
from webhook.eviction.ports import Ceiling


@pytest.fixture(autouse=True, params=[1000, 0], ids=["whole", "part"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "WHOLE_MOST", request.param)


def limited(**most: int) -> World:
    """Rules of these names may evict so many pods."""

    def ceiling_of(name: str) -> Ceiling | None:
        return Ceiling(most[name]) if name in most else None

    return evicting(GROUP, breaker=NO_BREAKER, ceiling_of=lambda rule: ceiling_of(rule.meta.name))


def member(name: str, hold: str | None = None) -> Pod:
    return pod(name, pod_group="ring", hold=hold)


def hold(world: World, name: str, text: str | None) -> None:
    world.edit(world.pod(name), hold=text)


def holds_no_more(world: World, name: str, of: str) -> str:
    """The reason of a rule's condition before and after the hold of a pod is lifted."""
    world.advance(30)
    before = world.condition(of)[1]
    hold(world, name, None)
    world.advance(30)
    return f"{before}, {world.condition(of)[1]}"


def test_companion_that_joins_the_group_counts() -> None:
    world = limited(rule=1)
    world.add(claim("a"), member("a", "debugging"), rule())
    world.advance(30)
    world.add(companion())
    assert holds_no_more(world, "a", "rule") == "Stopped, Stopped"
    assert world.evicted == []


def test_companion_that_goes_for_another_rule_from_now_on_counts_for_that() -> None:
    """The first member that goes was hit by the one rule, and the next one is hit by the other."""
    world = limited(two=1)
    world.add(claim("a"), member("a"), claim("b", devices=("gpu-1",)), member("b", "debugging"), companion())
    world.add(rule("one", selector=DeviceSelector(driver=DRIVER, device="gpu-0")))
    world.add(rule("two", selector=DeviceSelector(driver=DRIVER, device="gpu-1")))
    world.advance(30)
    world.remove(world.pod("a"))
    assert holds_no_more(world, "b", "two") == "Stopped, Stopped"
    assert world.evicted == []


def test_member_whose_pool_is_not_published_in_full_counts_for_the_rule_for_which_it_goes_along() -> None:
    world = limited(rule=1)
    unfinished = structs.replace(slice_of({"gpu-b": (taint(key="other"),)}, pool="node-1", name="half"), slice_count=2)
    world.add(unfinished, claim("a"), member("a", "debugging"), rule())
    world.advance(30)
    world.add(claim("b", tolerates(), devices=("gpu-b",), pool="node-1"), member("b"))
    assert holds_no_more(world, "a", "rule") == "Stopped, Stopped"
    assert world.evicted == []


def test_member_whose_own_rule_is_stopped_counts_for_the_rule_for_which_it_goes_along() -> None:
    world = limited(one=1, two=0)
    world.add(claim("a"), member("a", "debugging"), claim("b", devices=("gpu-1",)), pod("b"))
    world.add(rule("one", selector=DeviceSelector(driver=DRIVER, device="gpu-0")))
    world.add(rule("two", selector=DeviceSelector(driver=DRIVER, device="gpu-1")))
    world.advance(30)
    world.add(claim("z", devices=("gpu-1",)), member("z"))
    assert holds_no_more(world, "a", "one") == "Stopped, Stopped"
    assert world.evicted == []


def test_companion_that_has_the_name_of_one_that_was_evicted_counts_beside_it() -> None:
    world = limited(rule=2)
    world.cluster.lingering = True
    world.cluster.while_connecting += [lambda: None, lambda: hold(world, "b", "debugging")]
    world.add(companion("a"), claim("b"), member("b"), rule())
    world.settle()
    world.remove(world.pod("a"))
    world.add(structs.replace(companion("a"), meta=structs.replace(companion("a").meta, uid="another")))
    assert holds_no_more(world, "b", "rule") == "Stopped, Stopped"
    assert world.evicted == ["a"]
