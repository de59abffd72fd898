"""Pods that are left of a unit: once the worker has evicted one of it, each of the others follows by itself.

That ends once the evicted pods are gone: then the others are judged like any other pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from msgspec import structs

from tests.unit.eviction.findings.test_meanwhile import verbs_past_the_deadline
from tests.unit.eviction.objects import claim, owned, pod, rule, slice_of, taint, tolerates
from tests.unit.eviction.slow import UNSURE
from tests.unit.eviction.test_units import group
from tests.unit.eviction.world import FREE, NO_BREAKER, Budget, FakeCluster, World, evicting
from webhook.api.claims import Consumer
from webhook.api.pods import PodClaim
from webhook.api.rules import NOT_BEFORE, DeviceSelector
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Ceiling, EvictionOutcome, EvictionResult, PodRef

EVICTED = EvictionOutcome(EvictionResult.EVICTED)
FAILED = EvictionOutcome(EvictionResult.FAILED, "500")
DUE_IN_A_LIFETIME = "2099-01-31T22:00:00Z"

lingering = partial(evicting, lingering=True)


def ring(world: World) -> World:
    """A PodGroup that is disrupted as a whole: a taint evicts one of its pods, the other one goes along."""
    world.add(group(), claim("a"), pod("a", pod_group="ring"), pod("z", pod_group="ring", claims=()))
    return world


def train(world: World, **seconds: int) -> World:
    """A gang, with the seconds that each of its pods tolerates the taint."""
    for name, after in seconds.items():
        world.add(claim(name, tolerates(after), devices=(f"gpu-{name}",)), pod(name, gang="train"))
    return world


def again(world: World, name: str) -> None:
    """The owner of a pod has made another one of that name."""
    uid, device = f"uid-{name}-2", f"gpu-{name}"
    world.remove(world.pod(name), world.inventory.claims[f"ml/{name}-claim"])
    consumers = (Consumer("", "pods", name, uid),)
    world.add(claim(name, devices=(device,), consumers=consumers, owner=uid), pod(name, gang="train", uid=uid))


def send(world: World, *answers: EvictionOutcome) -> None:
    """The first unit goes, with these answers, and no other one after it."""
    world.cluster.answers.extend(answers)
    world.catch_up()
    unit = world.worker.take()
    assert unit is not None
    asyncio.run(world.worker.evict(unit))


def hold(world: World, name: str) -> None:
    world.edit(world.pod(name), hold="checkpoint")


# --- they follow ---------------------------------------------------------------------------------


def test_companion_follows_if_the_tainted_pod_turns_out_to_have_gone() -> None:
    world = ring(lingering())
    world.add(rule())
    send(world, UNSURE, FAILED)
    world.edit(world.pod("a"), deleting=True)  # it had worked
    assert world.after(120)[-1] == "z"


def test_failed_user_of_a_shared_claim_has_the_place_of_one_that_turns_out_to_have_gone() -> None:
    world = lingering(per_owner_unavailable=1)
    users = tuple([Consumer("", "pods", name, f"uid-{name}") for name in "ab"])
    world.add(claim("both", consumers=users, owner=""))
    world.add(*[owned(name, claims=(PodClaim("both-claim"),)) for name in "ab"], rule())
    send(world, UNSURE, FAILED)
    leaving = structs.replace(world.pod("a"), deleting=True, grace_ends=world.clock.wall + timedelta(seconds=300))
    world.change(world.pod("a"), leaving)
    assert world.after(200) == ["b"]


# --- not against anything that keeps other pods --------------------------------------------------


def test_budget_of_a_pod_that_is_left_is_asked() -> None:
    world = train(lingering(), a=0, b=0)
    world.add(rule())
    send(world, EVICTED, FAILED)
    world.add_budget(Budget("b", status=0, allows_at=300))
    assert world.after(200) == ["a"]
    assert world.after(200) == ["a", "b"]


STAYS: dict[str, Callable[[World], None]] = {
    "rule is gone": lambda world: world.remove(world.inventory.rules["rule"]),
    "rule is put off": lambda world: world.change(
        world.inventory.rules["rule"], rule(annotations={NOT_BEFORE: DUE_IN_A_LIFETIME})
    ),
}


@pytest.mark.parametrize("change", STAYS.values(), ids=STAYS.keys())
@pytest.mark.parametrize("stands", [True, False], ids=["while it stands", "when it is gone"])
def test_companion_stays_once_the_tainted_pod_would(change: Callable[[World], None], *, stands: bool) -> None:
    world = ring(lingering())
    world.add(rule())
    send(world, EVICTED, FAILED)
    if not stands:
        world.remove(world.pod("a"))
    change(world)
    assert world.after(120) == ["a"]


@pytest.mark.parametrize("tainted", [False, True])
def test_companion_stays_while_the_pool_is_published_again(*, tainted: bool) -> None:
    world = ring(lingering(breaker=NO_BREAKER))
    if tainted:
        world.add(claim("z"))
        world.edit(world.pod("z"), claims=pod("z").claims)
    before = slice_of({"gpu-0": (taint(),)})
    world.add(before)
    send(world, EVICTED, FAILED)
    world.edit(before, pool_generation=2, slice_count=2)
    assert world.after(120) == ["a"]


# --- who has begun -------------------------------------------------------------------------------


def test_second_wave_is_checked_as_a_whole() -> None:
    """It shares the place of the first one, and is a unit of its own all the same."""
    world = train(lingering(), a=0, b=100, c=100)
    world.add(rule())
    assert world.after(50) == ["a"]
    world.cluster.while_connecting.append(lambda: hold(world, "c"))
    assert world.after(60) == ["a"]


def test_unit_of_the_same_pods_under_another_rule_is_checked_as_a_whole() -> None:
    world = train(lingering(), a=0, b=0)
    world.add(rule())
    send(world, FAILED, EVICTED)
    world.remove(world.inventory.rules["rule"])
    world.settle()
    world._move(5)
    world.add(claim("c", devices=("gpu-c",)), pod("c", gang="train"), rule("again", uid="uid-again"))
    world.cluster.while_connecting.append(lambda: hold(world, "c"))
    assert world.after(30) == ["b"]


class Deleted(FakeCluster):
    """A user deletes a pod while its unit is asked for in a dry run."""

    done = False

    async def may_evict(self, pod: PodRef) -> EvictionOutcome:
        if not self.done:
            self.done = True
            self.world.edit(self.world.pod("a"), deleting=True)
            self.world.remove(self.world.pod("a"))
            if "ml/b" in self.world.inventory.pods:
                hold(self.world, "b")
        return await super().may_evict(pod)


@pytest.mark.parametrize(("build", "last"), [(ring, "z"), (lambda world: train(world, a=0, b=0, c=0), "c")])
def test_unit_has_not_begun_because_a_user_deletes_a_pod_of_it(build: Callable[[World], World], last: str) -> None:
    world = build(World(Mode.REPLACEMENT, FREE, cluster=Deleted))
    world.add_budget(Budget(last, allows_at=100))
    world.add(rule())
    assert world.after(300) == []


def test_request_that_had_worked_begins_nothing_once_its_rule_is_gone() -> None:
    world = train(lingering(), a=0, b=0, c=0)
    world.add(rule())
    send(world, UNSURE, FAILED, FAILED)
    world.remove(world.inventory.rules["rule"])
    world.advance(5)
    world.edit(world.pod("a"), deleting=True)
    again(world, "a")
    world.advance(600)
    hold(world, "b")
    world.add(rule("later", uid="uid-later"))
    assert world.after(60) == []


def test_pod_that_is_left_is_of_the_gang_again_once_the_others_are_replaced() -> None:
    world = train(lingering(), a=0, b=0)
    world.add(rule())
    send(world, EVICTED, FAILED)
    hold(world, "b")
    world.advance(600)
    again(world, "a")
    assert world.after(600) == ["a"]


def test_pod_that_is_left_is_not_deleted_for_refusals_that_are_old_by_then() -> None:
    world = train(lingering(deadline_seconds=20.0, delete_after_deadline=True), a=0, b=0)
    world.add(rule())
    send(world, FAILED, EVICTED)
    world.add_budget(Budget("a"))
    assert "delete" not in verbs_past_the_deadline(world, world.cluster.while_connecting)


def test_pod_that_goes_along_for_one_rule_while_its_own_is_stopped_is_asked_once() -> None:
    world = lingering(ceiling_of=lambda rule: Ceiling(0) if rule.meta.name == "over" else None)
    world.add(group(), claim("a"), pod("a", pod_group="ring"))
    world.add(claim("d", devices=("gpu-1",)), pod("d", pod_group="ring"))
    world.add(rule("over", selector=DeviceSelector(device="gpu-0")))
    world.settle()
    world.add(rule("other", uid="uid-other", selector=DeviceSelector(device="gpu-1")))
    send(world, FAILED, EVICTED)
    assert world.after(40) == ["d", "a"]
    assert len(world.cluster.requests) == 3


@pytest.mark.parametrize("gone", ["rule", "mate"])
def test_failure_is_forgotten_of_a_companion_that_was_not_planned_any_more_when_it_was_answered(gone: str) -> None:
    class Late(FakeCluster):
        async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
            if pod.name != "z":
                return await super().evict(pod, grace_period_seconds)
            self.world.remove(self.world.inventory.rules["rule"] if gone == "rule" else self.world.pod("a"))
            self.world.catch_up()
            return FAILED

    world = ring(lingering(cluster=Late))
    world.add(rule())
    send(world)
    world.advance(60)
    world.worker.forget_idle()
    assert world.evicted == ["a"]
    assert not world.worker._core.ledger.failures
