"""Claims that several pods use: how rounds of evictions are counted, and when the next pods are left alone."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.builders import DRIVER, NOW
from tests.unit.eviction.objects import claim, owned, pod, rule, users
from tests.unit.eviction.world import EVICTED, FAILED, FREE, FakeCluster, World, delegated, evicting
from webhook.api.claims import Consumer, ResourceClaim
from webhook.api.meta import ObjectMeta
from webhook.api.pods import ALL, SINGLE, Pod, PodClaim, PodGroup
from webhook.api.rules import DeviceSelector
from webhook.eviction.ceilings import Confirmed, ceiling_of
from webhook.eviction.modes import Mode
from webhook.eviction.pod_plan import StepReason
from webhook.eviction.ports import EvictionOutcome, PodRef
from webhook.inventory.impact import Taint, impact_of
from webhook.policy.model import EvictionProfile, Policy

SHARED = "ml/shared-claim"
USING = (PodClaim("shared-claim"),)


class Rounds(World):
    """A claim that was not made for a pod, on a device with a taint; evicted pods are gone at once."""

    def __init__(self) -> None:
        super().__init__(Mode.REPLACEMENT, FREE)
        self.add(claim("shared", owner="", consumers=()), rule())

    def come(self, *names: str, hold: str | None = None) -> None:
        """Pods of the claim are there, and what can be done now is done."""
        for name in names:
            self.reserve(name)
        self.add(*[pod(name, claims=USING, hold=hold) for name in names])
        self.settle()

    def reserve(self, name: str) -> None:
        known = self.inventory.claims[SHARED]
        consumers = (*(known.reserved_for or ()), *users(name))
        self.change(known, structs.replace(known, reserved_for=consumers))

    @property
    def counts(self) -> dict[str, int]:
        """The rounds of each claim."""
        return {key: each.count for key, each in self.worker._core.ledger.rounds.items()}

    def left_alone(self, name: str) -> bool:
        wait = self.worker._core.plan.waits.get(f"uid-{name}")
        return wait is not None and wait.reason is StepReason.RETURNS and wait.because == SHARED


def test_pods_that_come_after_two_rounds_are_left_alone() -> None:
    world = Rounds()
    for name in "abcd":
        world.come(name)
    assert world.evicted == ["a", "b"]
    assert (world.left_alone("c"), world.left_alone("d")) == (True, True)


def test_pods_that_are_there_when_a_round_begins_belong_to_it() -> None:
    world = Rounds()
    world.cluster.answers += [EVICTED, FAILED]
    world.come("a", "b")
    assert (world.evicted, world.counts) == (["a"], {SHARED: 1})
    world.advance(1)
    assert (world.evicted, world.counts) == (["a", "b"], {SHARED: 1})
    world.come("c")
    assert world.evicted == ["a", "b", "c"]
    world.come("d")
    assert world.left_alone("d")


def test_round_that_evicts_no_pod_is_taken_back() -> None:
    world = Rounds()
    world.come("a")
    world.cluster.answers += [FAILED] * 5
    world.come("b")
    for _ in range(4):
        assert world.counts == {SHARED: 1}
        world.advance(world.worker.upkeep.retry_seconds("uid-b") + 0.001)
    assert (world.evicted, world.counts) == (["a"], {SHARED: 1})
    world.come("c")
    assert world.after(10) == ["a", "b", "c"], "it was there when that round began"
    world.come("d")
    assert world.left_alone("d")


def test_first_round_that_evicts_no_pod_leaves_nothing() -> None:
    world = Rounds()
    world.cluster.answers.append(FAILED)
    world.come("a")
    assert len(world.cluster.requests) == 1
    assert world.counts == {}


@pytest.mark.parametrize("answers", [(EVICTED, FAILED), (FAILED, EVICTED)])
def test_round_that_evicts_one_of_its_pods_counts(answers: tuple[EvictionOutcome, EvictionOutcome]) -> None:
    world = Rounds()
    world.cluster.answers += answers
    world.come("a", "b")
    assert (len(world.evicted), world.counts) == (1, {SHARED: 1})
    world.remove(*world.inventory.pods.values())
    world.come("c")
    world.come("d")
    assert world.evicted[1:] == ["c"]
    assert world.left_alone("d")


@pytest.mark.parametrize("using", [(), USING], ids=["alone", "beside one that is not allocated"])
def test_claims_made_for_their_pod_are_not_counted(using: tuple[PodClaim, ...]) -> None:
    world = Rounds()
    world.edit(world.inventory.claims[SHARED], allocation=None)
    world.add(claim("own"), pod("own", claims=(*using, PodClaim("own-claim", generated=True))))
    world.settle()
    assert (world.evicted, world.counts) == (["own"], {})


def test_claim_that_is_deallocated_starts_over() -> None:
    world = Rounds()
    world.come("a")
    known = world.inventory.claims[SHARED]
    world.edit(known, reserved_for=())
    assert world.counts == {SHARED: 1}
    known = world.inventory.claims[SHARED]
    world.edit(known, allocation=None)
    assert world.counts == {}
    world.change(world.inventory.claims[SHARED], known)
    world.come("b")
    assert world.counts == {SHARED: 1}
    world.remove(world.inventory.claims[SHARED])
    assert world.counts == {}


def test_claim_made_anew_under_the_same_name_starts_over() -> None:
    world = Rounds()
    world.come("a")
    known = world.inventory.claims[SHARED]
    world.edit(known, meta=structs.replace(known.meta, uid="another"))
    for name in "bcd":
        world.come(name)
    assert world.evicted == ["a", "b", "c"]
    assert world.left_alone("d")


def test_pods_that_no_taint_evicts_any_longer_start_over() -> None:
    world = Rounds()
    world.come("a")
    world.come("b", hold="later")
    assert world.counts == {SHARED: 1}
    world.remove(world.inventory.rules["rule"])
    world.settle()
    assert world.counts == {}


def test_claim_that_is_gone_by_the_time_of_the_response_leaves_the_rounds_of_others_as_they_are() -> None:
    world = Rounds()
    seen = list[dict[str, int]]()

    def go() -> None:
        seen.append(world.counts)
        world.remove(world.inventory.claims[SHARED])
        seen.append(world.counts)

    world.reserve("a")
    world.add(claim("other", owner="", consumers=users("a")))
    world.cluster.while_connecting.append(go)
    world.cluster.answers.append(FAILED)
    world.add(pod("a", claims=(PodClaim("shared-claim"), PodClaim("other-claim"))))
    world.settle()
    assert seen == [{SHARED: 1, "ml/other-claim": 1}, {"ml/other-claim": 1}]
    assert (len(world.cluster.requests), world.counts) == (1, {})


# --- claims that several pods use, and claims of PodGroups ----------------------------------------


GROUP = Consumer("scheduling.k8s.io", "podgroups", "gang", "uid-gang")


def shared(*pods: Pod) -> ResourceClaim:
    """One device, reserved for these pods."""
    return claim("shared", consumers=users(*[each.meta.name for each in pods]))


def replica(number: int) -> Pod:
    """A pod of a Deployment whose template names a ResourceClaim."""
    return owned(f"web-{number}", by="trainer", claims=USING)


def reserve(world: World, *pods: Pod) -> None:
    """The claim stays allocated, and is now reserved for these pods."""
    world.change(world.inventory.claims[SHARED], shared(*pods))


# --- pods of one claim --------------------------------------------------------------------------


def test_deployment_on_one_claim_is_not_evicted_again_and_again() -> None:
    """H2: the claim is free once all of its pods are gone, so each replica is evicted once."""
    replicas = [replica(1), replica(2)]
    world = World(Mode.DELEGATED, EvictionProfile())
    world.add(shared(*replicas), *replicas, rule(effect="NoSchedule", evict=True))
    serial = 2
    for _ in range(60):
        world.advance(1)
        left = [each for each in replicas if f"ml/{each.meta.name}" in world.inventory.pods]
        if not left:
            break  # deallocated: the replacements get another device
        fresh = [replica(serial + 1 + number) for number in range(2 - len(left))]
        serial += len(fresh)
        if fresh:
            replicas = [*left, *fresh]
            reserve(world, *replicas)
            world.add(*fresh)
    assert len(world.evicted) == 2


def test_worker_stops_for_a_claim_after_its_pods_returned_twice() -> None:
    world = delegated(lingering=True)
    current = replica(1)
    world.add(shared(current), current, rule(effect="NoSchedule", evict=True))
    for number in range(2, 12):
        world.advance(15)
        if not world.pod(current.meta.name).deleting:
            break
        fresh = replica(number)  # scheduled while the pod that is Terminating still holds the claim
        reserve(world, world.pod(current.meta.name), fresh)
        world.add(fresh)
        reserve(world, fresh)
        world.remove(world.pod(current.meta.name))
        current = fresh
    assert len(world.evicted) <= 3
    _, reason, message = world.condition("rule")
    assert reason == "ReturnsToDevice"
    assert "trainer" in message


def test_replacement_that_is_seen_before_the_answer_to_the_eviction_is_of_the_next_round() -> None:
    """Seen on a real API server: the watch was faster than the response, and a third round was evicted."""

    class Faster(FakeCluster):
        async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
            outcome = await super().evict(pod, grace_period_seconds)
            evicted = self.world.inventory.pods[str(pod)]
            fresh = replica(int(pod.name.removeprefix("web-")) + 1)
            reserve(self.world, evicted, fresh)
            self.world.add(fresh)
            return outcome

    world = delegated(cluster=Faster, lingering=True)
    world.add(shared(replica(1)), replica(1), rule(effect="NoSchedule", evict=True))
    assert world.after(60) == ["web-1", "web-2"]


def test_claim_that_no_taint_touches_brings_no_pod_back() -> None:
    """Pods share a claim that stays allocated; what evicts them is another one, made for each."""
    world = evicting(claim("scratch", devices=("disk",), pool="disks", consumers=()))
    world.add(pod("keeper", claims=(PodClaim("scratch-claim"),)))
    world.add(rule(selector=DeviceSelector(device="gpu-0")))
    for name in ("p0", "p1", "p2", "p3"):
        claims = (PodClaim("scratch-claim"), PodClaim(f"{name}-claim", generated=True))
        world.add(claim(name), pod(name, claims=claims))
        world.advance(60)
    assert world.evicted == ["p0", "p1", "p2", "p3"]


def test_pod_is_left_alone_for_a_claim_only_as_long_as_that_is_allocated() -> None:
    """Another claim of the pod is hit by the same taint all the time, so its plan does not change."""
    world = evicting(shared(), rule())
    for number in range(2):
        reserve(world, replica(number))
        world.add(replica(number))
        world.settle()
    assert world.evicted == ["web-0", "web-1"]
    fresh = owned("web-2", by="trainer", claims=(PodClaim("shared-claim"), PodClaim("web-2-claim", generated=True)))
    reserve(world, fresh)
    world.add(claim("web-2", devices=("gpu-1",)), fresh)
    assert world.after(20) == ["web-0", "web-1"]
    assert world.condition("rule")[1] == "ReturnsToDevice"
    world.edit(world.inventory.claims[SHARED], allocation=None, reserved_for=())
    assert world.settled() == ["web-0", "web-1", "web-2"]


# --- claims of PodGroups ------------------------------------------------------------------------


def gang(world: World, count: int) -> None:
    """Pods of one PodGroup, for which their claims are reserved."""
    world.add(PodGroup(ObjectMeta("gang", namespace="ml", uid="uid-gang"), SINGLE))
    for number in range(count):
        name = f"pod-{number}"
        group = claim(name, devices=(f"gpu-{number}",), consumers=(GROUP,), owner="uid-gang", group="gang")
        world.add(group, pod(name, pod_group="gang"))


def test_confirmed_rule_on_claims_of_a_pod_group_is_not_stopped() -> None:
    """H6: the text confirms no pods for a PodGroup of unknown size, so its pods do not count against the ceiling."""
    world = evicting()
    gang(world, 8)
    confirmed = rule()
    impact = impact_of(world.inventory, confirmed.selector, Taint.of_rule(confirmed, in_tree=False), NOW)
    ceiling = ceiling_of(confirmed, Policy(), lambda: (0, 0), Confirmed(len(impact.pods), 1))
    world = evicting(ceiling_of=lambda _: ceiling)
    gang(world, 8)
    world.add(confirmed)
    world.advance(60)
    assert world.condition("rule")[1] != "Stopped"


def test_pod_that_stays_for_its_pod_group_takes_no_other_along() -> None:
    """Evicting the rest of a group of mode `all` would free no device either."""
    world = evicting(PodGroup(ObjectMeta("gang", namespace="ml", uid="uid-gang"), ALL))
    reserved = claim("hit", devices=("gpu-0",), consumers=(GROUP,), owner="uid-gang", group="gang")
    world.add(reserved, pod("hit", pod_group="gang"))
    world.add(claim("beside", devices=("gpu-1",)), pod("beside", pod_group="gang"))
    world.add(rule(selector=DeviceSelector(DRIVER, None, "gpu-0")))
    assert world.after(60) == []
    assert world.condition("rule")[1] == "HeldByPodGroup"
    world.add(claim("beside", devices=("gpu-0",)))
    assert world.after(60) == ["beside"], "because of its own claim"
