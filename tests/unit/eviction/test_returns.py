"""How rounds of evictions of a claim's pods are counted: after two, the next pods of the claim are left alone."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.world import FREE, World
from webhook.api.claims import Consumer
from webhook.api.pods import PodClaim
from webhook.eviction.modes import Mode
from webhook.eviction.pod_plan import StepReason
from webhook.eviction.ports import EvictionOutcome, EvictionResult

SHARED = "ml/shared-claim"
USING = (PodClaim("shared-claim"),)
EVICTED = EvictionOutcome(EvictionResult.EVICTED)
FAILED = EvictionOutcome(EvictionResult.FAILED, "internal error")


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
        consumers = (*(known.reserved_for or ()), Consumer("", "pods", name, f"uid-{name}"))
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


def test_claims_made_for_their_pod_are_not_counted() -> None:
    world = Rounds()
    world.add(claim("own"), pod("own"))
    world.settle()
    assert (world.evicted, world.counts) == (["own"], {})


def test_claim_that_is_not_allocated_is_not_counted() -> None:
    world = Rounds()
    world.edit(world.inventory.claims[SHARED], allocation=None)
    world.add(claim("own"), pod("own", claims=(PodClaim("shared-claim"), PodClaim("own-claim", generated=True))))
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
    world.add(claim("other", owner="", consumers=(Consumer("", "pods", "a", "uid-a"),)))
    world.cluster.while_connecting.append(go)
    world.cluster.answers.append(FAILED)
    world.add(pod("a", claims=(PodClaim("shared-claim"), PodClaim("other-claim"))))
    world.settle()
    assert seen == [{SHARED: 1, "ml/other-claim": 1}, {"ml/other-claim": 1}]
    assert (len(world.cluster.requests), world.counts) == (1, {})
