"""Members of a PodGroup that is disrupted as a whole go only along with one that a taint evicts, and that goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.world import FREE, World, evicting
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, Pod, PodGroup
from webhook.eviction import planner
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling, EvictionOutcome, EvictionResult
from webhook.eviction.profiles import Profiles
from webhook.policy.model import EvictionProfile

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


@pytest.mark.parametrize("whole_most", [1000, 0], ids=["whole", "part"])
def test_companions_that_come_later_count_against_the_ceiling(whole_most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "WHOLE_MOST", whole_most)
    world = evicting(rate=0.1, burst=1, ceiling_of=lambda _: Ceiling(4))
    world.add(GROUP, claim("y"), pod("y", pod_group="ring"), *[claim(name) for name in "abc"])
    world.add(*[pod(name) for name in "abc"], rule())
    world.advance(1)
    world.add(*[companion(f"z{number}") for number in range(20)])
    assert len(world.after(600)) == 1


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
