"""Which pods of a PodGroup go because of others, and how much is looked at to find out."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from tests.builders import NOW
from tests.costs import calls_of
from tests.unit.eviction.objects import claim, pod, rule, tolerates
from tests.unit.eviction.world import FREE, World
from webhook.api.meta import ObjectMeta
from webhook.api.pod_groups import ALL, PodGroup
from webhook.eviction.modes import Mode
from webhook.eviction.units import Companions
from webhook.inventory.evictions import Eviction
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.pods import Pod

GROUP = PodGroup(ObjectMeta(name="ring", namespace="ml", uid="uid-ring"), ALL, None)


class Ring:
    """A PodGroup, the taints of whose pods are said by hand."""

    def __init__(self, *names: str) -> None:
        self.inventory = Inventory()
        self.inventory.apply(None, GROUP)
        for name in names:
            self.inventory.apply(None, pod(name, pod_group="ring", claims=()))
        self.companions = Companions(self.inventory)

    def pod(self, name: str) -> Pod:
        return self.inventory.pods[f"ml/{name}"]

    def hits(self, name: str, after: float | None, *, held: bool = False) -> None:
        own = None if after is None else Eviction(NOW + timedelta(seconds=after), ())
        self.companions.eviction_of(self.pod(name), own, stays=held, begun=False)

    def goes_after(self, name: str, *, begun: bool = False) -> float | None:
        """When a pod goes that no taint evicts itself, in seconds from now."""
        eviction = self.companions.eviction_of(self.pod(name), None, stays=False, begun=begun)
        return None if eviction is None else (eviction.due - NOW).total_seconds()

    def changed(self) -> list[str]:
        """The pods that are to be planned again since this was asked last."""
        groups = set(self.companions.changed)
        self.companions.changed.clear()
        return [key.removeprefix("ml/") for key in self.companions.others_of(groups)]

    def leaves(self, name: str) -> None:
        self.inventory.apply(self.pod(name), structs.replace(self.pod(name), deleting=True))


def test_others_go_with_the_first_that_is_due_whatever_changes() -> None:
    ring = Ring(*"abcz")
    assert ring.goes_after("z") is None
    for name, after, first in [
        ("b", 20, 20),
        ("a", 10, 10),
        ("c", 30, 10),
        ("a", 40, 20),
        ("b", 20, 20),
        ("b", None, 30),
        ("c", 50, 40),
        ("c", 5, 5),
        ("c", None, 40),
        ("a", None, None),
    ]:
        ring.hits(name, after)
        assert ring.goes_after("z") == first, (name, after)


def test_what_was_said_before_is_forgotten_and_what_holds_is_not() -> None:
    """However often a pod's taints change; old evictions are dropped now and then."""
    ring = Ring(*"abz")
    ring.hits("b", 500)
    for after in range(30):
        ring.hits("a", 1000 - after)
        assert ring.goes_after("z") == 500, after
    ring.hits("b", None)
    assert ring.goes_after("z") == 971


def test_of_pods_due_at_the_same_time_the_one_that_was_hit_first_counts() -> None:
    ring = Ring(*"abz")
    first = Eviction(NOW, (), (("uid-first", "first"),))
    second = Eviction(NOW, (), (("uid-second", "second"),))
    ring.companions.eviction_of(ring.pod("b"), first, stays=False, begun=False)
    ring.companions.eviction_of(ring.pod("a"), second, stays=False, begun=False)
    ring.companions.eviction_of(ring.pod("b"), structs.replace(first), stays=False, begun=False)
    assert ring.companions.eviction_of(ring.pod("z"), None, stays=False, begun=False) is first


def test_only_pods_that_may_go_along_are_planned_again_and_only_if_that_changes_something() -> None:
    ring = Ring(*"abcyz")
    ring.hits("a", 20)
    assert ring.changed() == ["b", "c", "y", "z"]
    ring.hits("b", 30)
    assert ring.changed() == [], "later than the first"
    ring.hits("c", 10)
    assert ring.changed() == ["y", "z"]
    ring.hits("a", None)
    assert ring.changed() == [], "not the first"
    ring.hits("c", None)
    assert ring.changed() == ["a", "c", "y", "z"]
    ring.hits("b", None)
    assert ring.changed() == ["a", "b", "c", "y", "z"]


def test_pod_of_which_no_device_would_become_free_takes_none_along() -> None:
    ring = Ring(*"az")
    ring.hits("a", 10, held=True)
    assert (ring.goes_after("z"), ring.changed()) == (None, [])


def test_pod_that_no_longer_exists_takes_none_along() -> None:
    ring = Ring(*"abz")
    ring.hits("a", 10)
    ring.hits("b", 20)
    ring.companions.forget(ring.pod("a"))
    assert ring.goes_after("z") == 20


def test_pods_on_their_way_out_take_along_those_whose_unit_has_begun_to_go() -> None:
    ring = Ring(*"abyz")
    ring.hits("a", 10)
    ring.hits("b", 20)
    assert ring.goes_after("y") == 10
    ring.leaves("a")
    assert ring.goes_after("z") == 10, "b is left"
    ring.changed()
    ring.leaves("b")
    assert (ring.goes_after("y", begun=True), ring.goes_after("z")) == (10, None)
    assert ring.changed() == ["y", "z"]


def test_pod_that_is_hit_when_all_others_are_leaving_begins_again() -> None:
    ring = Ring(*"abz")
    ring.hits("a", 10)
    ring.leaves("a")
    assert ring.goes_after("z") is None
    ring.changed()
    ring.hits("b", 20)
    assert ring.changed() == ["z"], "although the first is the same"
    assert ring.goes_after("z") == 10


def test_pod_that_was_hit_before_and_is_hit_again_is_left() -> None:
    ring = Ring(*"az")
    ring.hits("a", 10)
    ring.hits("a", None)
    ring.hits("a", 20)
    assert ring.goes_after("z") == 20


def test_pod_that_no_taint_evicts_any_longer_is_not_left() -> None:
    ring = Ring(*"abz")
    ring.hits("a", 10)
    ring.hits("b", 20)
    ring.hits("a", None)
    ring.leaves("b")
    assert ring.goes_after("z") is None


def test_pod_that_took_the_name_of_another_one_is_not_left() -> None:
    ring = Ring(*"az")
    ring.hits("a", 10)
    ring.inventory.apply(ring.pod("a"), None)
    ring.inventory.apply(None, pod("a", pod_group="ring", claims=(), uid="uid-again"))
    assert ring.goes_after("z") is None


def test_pods_that_were_spared_meanwhile_do_not_go_with_those_on_their_way_out() -> None:
    ring = Ring(*"az")
    ring.hits("a", 10)
    assert ring.goes_after("z") == 10
    ring.hits("a", None)
    ring.hits("a", 20)
    ring.leaves("a")
    assert ring.goes_after("z") is None


def test_pods_whose_taints_change_all_the_time_take_no_more_room() -> None:
    ring = Ring(*"abz")
    for after in range(100):
        ring.hits("a", 10 + after)
        ring.hits("b", 20 + after)
    [causes] = ring.companions._causes.values()
    assert len(causes._by_due) <= 8
    assert ring.goes_after("z") == 109


def test_pods_whose_taints_are_gone_take_room_for_a_while_only() -> None:
    many = [f"p{number}" for number in range(40)]
    ring = Ring(*many, "z")
    for name in many:
        ring.hits(name, 1000)
    for name in many[1:]:
        ring.hits(name, None)
    for after in range(100):
        ring.hits(many[0], 900 - after)
    [causes] = ring.companions._causes.values()
    assert len(causes._by_due) <= 4


def test_cost_of_one_more_pod_does_not_grow_with_its_group() -> None:
    def ring_of(size: int) -> Ring:
        names = [f"p{number}" for number in range(size)]
        ring = Ring(*names, "more")
        for name in names:
            ring.hits(name, 1000)
        return ring

    few, many = (calls_of(lambda ring: ring.hits("more", 500), partial(ring_of, size)) for size in (10, 200))
    assert many == few


@pytest.mark.parametrize("after", [lambda _: 1000, lambda at: 1000 + at, lambda at: 9000 - at])
def test_large_group_is_planned_once_whatever_the_order_of_its_due_times(after: Callable[[int], int]) -> None:
    """Of 600 pods a taint hits 300; the others are planned when the first is known, and not once for each."""
    world = World(Mode.REPLACEMENT, FREE)
    world.add(GROUP)
    for number in range(300):
        name = f"hit-{number:03}"
        world.add(claim(name, tolerates(after(number)), devices=(f"gpu-{name}",)), pod(name, pod_group="ring"))
        world.add(pod(f"other-{number:03}", pod_group="ring", claims=()))
    world.catch_up()
    plans, planned = world.worker.plans, list[str]()
    plan_pod = plans._plan_pod

    def counted(key: str, *others: object) -> None:
        planned.append(key)
        plan_pod(key, *others)  # type: ignore[arg-type]

    plans._plan_pod = counted  # type: ignore[method-assign, assignment]
    world.add(rule())
    world.catch_up()
    assert len(plans.scheduled) == 600
    assert len(planned) <= 900
    first = min(after(number) for number in range(300))
    assert {plans.scheduled[f"uid-other-{number:03}"].eviction.due for number in range(300)} == {
        NOW + timedelta(seconds=first)
    }
