"""Between the request for a pod and its answer, the watch may show the end of the pod, and rules may hit more.

On a control plane, the sixth pod of a patch with a limit of five was evicted that way.
"""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, owned, pod, rule, using
from tests.unit.eviction.patched import POOL_0, TOGETHER, counted, drop, fill, limited, name_of, part, stopped
from tests.unit.eviction.slow import UNSURE, SlowAnswers, slow
from tests.unit.eviction.world import FREE, World, evicting
from webhook.api.claims import Consumer
from webhook.api.meta import ObjectMeta
from webhook.api.pods import SINGLE, PodGroup
from webhook.api.rules import COUNTED_PODS, EVICTED_PODS
from webhook.eviction.modes import Mode
from webhook.eviction.pod_plan import Unit
from webhook.eviction.ports import Ceiling, EvictionOutcome, EvictionResult, PodRef
from webhook.policy.model import EvictionProfile


def said_evicted(world: World) -> list[str]:
    """The pods whose Events say that they were evicted; those about cancelled evictions have the same reason."""
    texts = [(event.about, event.text) for event in world.cluster.events]
    return [about.name for about, text in texts if isinstance(about, PodRef) and text == "Marking for deletion"]


def limited_to(limit: int, profile: EvictionProfile = FREE) -> World:
    """A rule may hit this many pods."""
    ceiling = Ceiling(limit, confirmed=False)
    return World(Mode.REPLACEMENT, profile, ceiling_of=lambda _: ceiling, cluster=SlowAnswers)


def three_pods() -> World:
    """One in the pool of rule `part-0` and two in that of `part-1`; their patch may hit two."""
    world = limited(2, cluster=SlowAnswers)
    fill(world, 0, pods=1)
    fill(world, 1, pods=2)
    return world


def test_rule_of_a_patch_that_comes_before_the_answer_is_stopped_with_the_others() -> None:
    world = three_pods()
    slow(world).before_answer = lambda: world.add(part(1))
    world.add(part(0))
    assert world.after(30) == ["pod-0-0"]
    assert stopped(world, name_of(1)).startswith(f"{TOGETHER} 3 pods, the limit is 2")


def test_rule_that_takes_the_place_of_another_before_the_answer_takes_over_its_count() -> None:
    world = three_pods()

    def replaced() -> None:
        world.add(part(1))
        drop(world, name_of(0))

    slow(world).before_answer = replaced
    world.add(part(0))
    assert world.after(30) == ["pod-0-0"]
    assert world.condition(name_of(1), COUNTED_PODS)[2] == "1"
    assert not world.worker._core.ledger.taken


def test_patch_without_rules_keeps_the_count_of_what_was_in_flight_when_it_lost_them() -> None:
    world = three_pods()
    slow(world).before_answer = lambda: drop(world, name_of(0))
    world.add(part(0))
    world.advance(30)
    world.add(part(1))
    assert world.after(30) == ["pod-0-0"]


def test_pod_that_comes_before_the_answer_is_too_much() -> None:
    world = limited_to(1)
    world.add(claim("one"), pod("one"))
    slow(world).before_answer = lambda: world.add(claim("more"), pod("more"))
    world.add(rule())
    assert world.after(30) == ["one"]
    assert world.condition("rule")[2] == "hits 2 pods, the limit is 1 and nothing was confirmed; 1 pod evicted"


GROUP = PodGroup(ObjectMeta("crew", namespace="ml", uid="uid-crew"), SINGLE)


def of_group(world: World) -> None:
    """A pod whose claim is reserved for its PodGroup, which keeps it reserved for as long as it exists."""
    consumers = (Consumer("scheduling.k8s.io", "podgroups", "crew", "uid-crew"),)
    world.add(claim("one", consumers=consumers, owner="uid-crew", group="crew"), pod("one", pod_group="crew"))


def test_pod_that_its_group_holds_counts_for_no_ceiling() -> None:
    world = limited_to(1)
    of_group(world)
    world.add(GROUP, claim("more"), pod("more"), rule())
    assert world.after(30) == ["more"]


def test_pod_that_its_group_holds_from_now_on_counts_until_its_request_is_answered() -> None:
    world = limited_to(1)
    of_group(world)
    found: list[Unit | None] = []

    def meanwhile() -> None:
        world.add(GROUP, claim("more"), pod("more"))
        world.catch_up()
        found.append(world.worker.take())

    slow(world).before_answer = meanwhile
    world.cluster.answers.append(EvictionOutcome(EvictionResult.FAILED, "500"))
    world.add(rule())
    world.advance(30)
    assert found == [None]
    assert stopped(world, "rule").startswith("hits 2 pods, the limit is 1")


def test_request_that_evicts_no_pod_counts_no_longer() -> None:
    world = limited_to(1)
    world.cluster.answers.append(EvictionOutcome(EvictionResult.FAILED, "500"))
    world.add(claim("one"), pod("one"))
    slow(world).before_answer = lambda: world.remove(world.pod("one"))
    world.add(rule())
    world.advance(30)
    world.add(claim("more"), pod("more"))
    assert world.after(30) == ["more"]
    core = world.worker._core
    assert (core.ledger.taken, core.plan.rules) == ({}, {})


def test_rule_that_is_known_again_before_the_answer_is_not_forgotten_with_it() -> None:
    """A list without the rule, and one with it again."""
    world = three_pods()

    def again() -> None:
        drop(world, name_of(0))
        world.add(part(0))

    slow(world).before_answer = again
    world.add(part(0))
    world.advance(30)
    world.add(part(1))
    assert world.after(30) == ["pod-0-0"]
    assert world.worker._core.ceilings.tally_of(world.inventory.rules[name_of(0)]).evicted == 1


# --- requests without an answer ----------------------------------------------------------------------


def test_pod_that_was_evicted_without_an_answer_counts_against_the_ceiling() -> None:
    world = limited_to(1)
    slow(world).lost = 1
    world.add(claim("one"), pod("one"), rule())
    world.advance(30)
    assert said_evicted(world) == ["one"]
    world.add(claim("more"), pod("more"))
    assert world.after(30) == ["one"]
    assert world.condition("rule")[2] == "hits 2 pods, the limit is 1 and nothing was confirmed; 1 pod evicted"


@pytest.mark.parametrize("how", ["read", "answered", "seen while it waits"])
def test_pod_that_is_found_evicted_at_the_next_attempt_counts_once(how: str) -> None:
    world = limited_to(2)
    world.cluster.answers.extend([UNSURE, EvictionOutcome(EvictionResult.GONE)])
    if how == "read":
        world.cluster.done_all_the_same = True
    elif how == "seen while it waits":
        world.cluster.meanwhile.extend([lambda: None, lambda: world.remove(world.pod("one"))])
    world.add(claim("one"), pod("one"), rule())
    world.advance(15)
    assert world.worker._core.ceilings.tally_of(world.inventory.rules["rule"]).evicted == 1
    assert said_evicted(world) == ["one"]


def test_pod_that_ends_by_itself_after_a_request_without_an_answer_was_not_evicted() -> None:
    world = limited_to(1)
    world.cluster.answers.append(UNSURE)
    world.add(claim("one"), pod("one"), rule())
    world.settle()
    world.edit(world.pod("one"), phase="Succeeded", ready=False)
    world.remove(world.pod("one"))
    world.advance(30)
    assert said_evicted(world) == []
    world.add(claim("more"), pod("more"))
    assert world.after(30) == ["more"]


@pytest.mark.parametrize("lingering", [False, True])
def test_limits_count_a_pod_that_was_evicted_without_an_answer(*, lingering: bool) -> None:
    """`maxPerMinute`, and the owner of the pod, whose replacement is waited for."""
    profile = structs.replace(FREE, max_per_minute=1, per_owner_unavailable=1)
    world = limited_to(9, profile)
    slow(world).lost = 1
    world.cluster.lingering = lingering
    world.add(*using("one", "two", make=owned), rule())
    world.advance(1)
    [first] = world.evicted
    if lingering:
        world.remove(world.pod(first))
    assert len(world.worker._core.room.owner("ml/uid-rs").missing) == 1
    assert world.after(58) == [first]


def test_doubt_outlives_the_plan_and_other_rules() -> None:
    """The group is stopped before the request takes effect, and its plan is dropped or is for another rule by then."""
    world = three_pods()
    world.cluster.answers.append(UNSURE)
    world.add(part(0))
    world.settle()
    world.add(part(1))
    world.settle()
    assert stopped(world, name_of(1))
    world.remove(world.pod("pod-0-0"))
    world.settle()
    assert said_evicted(world) == ["pod-0-0"]
    assert world.worker._core.ceilings.tally_of(world.inventory.rules[name_of(0)]).counting == 1
    assert not world.worker._core.ledger.doubts


@pytest.mark.parametrize("in_flight", [False, True], ids=["after the answer was due", "in flight"])
def test_pod_that_turns_up_as_evicted_for_a_rule_that_is_gone_counts_for_its_patch(*, in_flight: bool) -> None:
    world = three_pods()
    world.cluster.answers.append(UNSURE)
    world.add(part(9))
    if in_flight:
        slow(world).before_answer = lambda: drop(world, name_of(0))
    world.add(part(0))
    world.settle()
    if not in_flight:
        drop(world, name_of(0))
    world.remove(world.pod("pod-0-0"))
    world.advance(30)
    assert world.condition(name_of(9), COUNTED_PODS)[2] == "1"
    world.add(part(1))
    assert world.after(30) == []
    assert stopped(world, name_of(1)).startswith(f"{TOGETHER} 3 pods, the limit is 2")


def test_pod_that_turns_up_as_evicted_for_several_rules_of_a_patch_counts_once() -> None:
    world = limited(9, cluster=SlowAnswers)
    world.cluster.answers.append(UNSURE)
    fill(world, 0, pods=1)
    world.add(part(9))
    world.add(part(0), part(0, name="again", key="example.com/b"))
    world.settle()
    drop(world, name_of(0), "again")
    world.remove(world.pod("pod-0-0"))
    world.advance(30)
    assert world.condition(name_of(9), COUNTED_PODS)[2] == "1"


def test_groups_are_known_of_a_thousand_rules_that_are_gone() -> None:
    world = limited(0)
    for number in range(1003):
        world.add(part(0, name=f"r-{number}"))
        drop(world, f"r-{number}")
    world.add(rule("alone"))
    drop(world, "alone")
    gone = world.worker._core.ceilings._gone
    assert (len(gone), next(iter(gone)), gone["uid-r-3"]) == (1000, "uid-r-3", "uid-firmware")


def test_plan_that_takes_the_place_of_another_in_flight_has_its_doubt() -> None:
    world = limited_to(1)
    world.cluster.answers.append(UNSURE)

    def replanned() -> None:
        known = world.inventory.claims["ml/one-claim"]
        world.remove(known)
        world.add(known)

    slow(world).before_answer = replanned
    world.add(claim("one"), pod("one"), rule())
    world.settle()
    world.remove(world.pod("one"))
    world.add(claim("more"), pod("more"))
    assert world.after(30) == []
    assert world.condition("rule")[1] == "Stopped"


@pytest.mark.parametrize("seconds", [59, 61])
def test_pod_that_goes_long_after_a_request_without_an_answer_was_not_evicted_by_it(seconds: int) -> None:
    world = limited_to(9)
    world.cluster.answers.append(UNSURE)
    world.add(claim("one"), pod("one"), rule())
    world.settle()
    world.holds["ml"] = "wait"
    world.advance(seconds)
    world.remove(world.pod("one"))
    world.settle()
    assert said_evicted(world) == ["one"] * (seconds < 60)


def test_plan_that_is_made_again_knows_of_the_doubt() -> None:
    world = evicting(claim("one"), pod("one"), rule(), answers=[UNSURE])
    world.settle()
    world.remove(world.inventory.rules["rule"])
    world.advance(1)
    world.add(rule("other"))
    world.advance(1)
    assert (world.cluster.looked_at, world.evicted) == (["one"], ["one"])
    assert not world.worker._core.ledger.doubts


def test_rule_that_is_stopped_in_flight_has_its_count_written() -> None:
    """By the time of the answer, the plan of the pod is for the other rule alone."""
    world = World(
        Mode.REPLACEMENT,
        FREE,
        ceiling_of=lambda each: Ceiling(1 if each.meta.name == "wide" else 9, confirmed=False),
        cluster=SlowAnswers,
    )
    world.add(claim("one"), pod("one"), rule("narrow", selector=POOL_0))
    world.cluster.meanwhile.append(lambda: world.add(rule("wide")))
    slow(world).before_answer = lambda: world.add(claim("more", pool="node-1"), pod("more"))
    world.worker.start()
    assert world.after(15) == ["one"]
    assert world.condition("wide", EVICTED_PODS)[2] == "1"


def test_rule_of_a_stopped_patch_that_is_known_again_before_the_answer_stays_stopped() -> None:
    world = limited(2, cluster=SlowAnswers)
    fill(world, 0, pods=1)

    def meanwhile() -> None:
        fill(world, 0, pods=2, start=1)
        drop(world, name_of(0))
        world.add(part(0))

    slow(world).before_answer = meanwhile
    world.add(part(0))
    assert world.after(30) == ["pod-0-0"]
    assert stopped(world, name_of(0)).startswith(f"{TOGETHER} 3 pods, the limit is 2")


def test_counts_of_leaders_before_are_added_to_what_is_in_flight() -> None:
    world = limited(4, cluster=SlowAnswers)
    fill(world, 0, 1, pods=1)
    slow(world).before_answer = lambda: world.add(part(1, conditions=(counted(3),)))
    world.add(part(0))
    assert world.after(30) == ["pod-0-0"]
