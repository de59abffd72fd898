"""Pods that stand as they were, although an answer said that they were evicted."""

from __future__ import annotations

import pytest

from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.world import FakeCluster, World, evicting
from webhook.api.claims import Consumer
from webhook.eviction.modes import Mode
from webhook.eviction.ports import EvictionOutcome, EvictionResult, PodRef
from webhook.policy.model import EvictionProfile


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


class Idle(FakeCluster):
    """Says that it evicts, and does nothing."""

    def _remove(self, verb: str, ref: PodRef) -> EvictionOutcome:
        self.requests.append((verb, str(ref), self.world.clock.passed()))
        return EvictionOutcome(EvictionResult.EVICTED)


def test_pod_that_stays_as_it_is_after_its_eviction_is_evicted_again() -> None:
    world = evicting(claim("pod"), pod("pod"), rule(), cluster=Idle)
    world.advance(300)
    assert [round(at) for _, _, at in world.cluster.requests] == [0, 60, 120, 180, 240]
    assert world.worker._core.ledger.granted == {"uid-pod"}


def test_pod_that_is_there_although_an_answer_said_that_it_is_gone_is_evicted_again() -> None:
    world = evicting(claim(), pod(), rule(), answers=[EvictionOutcome(EvictionResult.GONE)])
    assert world.after(1) == []
    assert world.after(120) == ["pod"]


def test_pod_that_is_being_deleted_is_not_evicted_again(caplog: pytest.LogCaptureFixture) -> None:
    world = evicting(claim("pod"), pod("pod"), rule(), lingering=True)
    world.advance(290)
    assert len(world.cluster.requests) == 1
    assert world.sample("pods_under_way") == 1
    assert world.worker._core.ledger.granted == {"uid-pod"}
    assert warnings_in(caplog) == []


def test_pod_whose_deletion_may_not_have_been_seen_is_not_evicted_again() -> None:
    world = evicting(claim("pod"), pod("pod"), rule(), cluster=Idle)
    world.settle()
    world.trusted = False
    world.advance(150)
    assert world.worker._core.ledger.granted == {"uid-pod"}
    world.trusted = True
    world.advance(60)
    assert [round(at) for _, _, at in world.cluster.requests] == [0, 180]


def test_pod_that_took_the_name_of_an_evicted_one_is_given_its_own_minute(caplog: pytest.LogCaptureFixture) -> None:
    world = evicting(claim("pod"), pod("pod"), rule(), cluster=Idle)
    world.advance(30)
    next_one = claim("pod", owner="u2", consumers=(Consumer("", "pods", "pod", "u2"),))
    world.change(world.inventory.claims["ml/pod-claim"], next_one)
    world.change(world.pod("pod"), pod("pod", uid="u2"))
    world.advance(80)
    assert [round(at) for _, _, at in world.cluster.requests] == [0, 30, 90]
    assert warnings_in(caplog) == ["pod not deleted after its eviction, planned again"]


def test_pod_that_stays_as_it_is_makes_room_for_others() -> None:
    world = World(Mode.REPLACEMENT, EvictionProfile(overall=1), cluster=Idle)
    world.add(claim("pod"), pod("pod"), claim("other"), pod("other"), rule())
    world.settle()
    [(_, first, _)] = world.cluster.requests
    world.remove(world.inventory.claims[f"{first}-claim"])  # it uses no device any more, so it is not evicted again
    world.advance(59)
    assert len(world.cluster.requests) == 1
    world.advance(2)
    assert {name for _, name, _ in world.cluster.requests} == {"ml/pod", "ml/other"}
