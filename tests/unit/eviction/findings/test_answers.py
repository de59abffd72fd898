"""Answers of the API server that are taken for something else than they say."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.builders import NOW
from tests.unit.cluster.acting import RULES, acting_cluster
from tests.unit.cluster.peer import Answer, Peer, run, status
from tests.unit.eviction.hurried import by
from tests.unit.eviction.objects import claim, pod, rule
from tests.unit.eviction.world import FakeCluster, World, evicting
from webhook.api.claims import Consumer
from webhook.cluster.client.rest import ThrottledCluster
from webhook.cluster.events import EventWriter
from webhook.cluster.eviction_writer import EvictionWriter
from webhook.eviction.modes import Mode
from webhook.eviction.ports import Disruption, EvictionOutcome, EvictionResult, PodRef
from webhook.policy.model import EvictionProfile

POD = PodRef("ml", "web-0", "u1")
DISRUPTION = Disruption("DeletionByDeviceTaintWebhook", "because")
NAMESAKE = (
    'Operation cannot be fulfilled on Pod "web-0": the UID in the precondition (u1) does not match the UID in record '
    "(u2). The object might have been deleted and then recreated"
)
FORBIDDEN = 'poddisruptionbudget.policy "web" is forbidden: '


class Moving:
    """A wall clock that is a minute later at each look."""

    def __init__(self) -> None:
        self._now = NOW

    def __call__(self) -> datetime:
        self._now += timedelta(minutes=1)
        return self._now


def writer(cluster: ThrottledCluster) -> EvictionWriter:
    now = Moving()
    return EvictionWriter(cluster, RULES, EventWriter(cluster, instance="evict-0", now=now), now)


def outcome_of(answer: Answer) -> EvictionOutcome:
    """What an answer of the Eviction API is taken for."""
    outcomes: list[EvictionOutcome] = []

    async def ask() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.append(answer)
            outcomes.append(await writer(cluster).evict(POD, None))

    run(ask())
    return outcomes[0]


def test_eviction_of_a_pod_that_was_replaced_is_done() -> None:
    """M3: a 409 for another UID ends the eviction, as each retry would take one more disruption from the budget."""
    outcome = outcome_of(Answer(status(409, NAMESAKE, reason="Conflict"), 409))
    assert outcome.result is EvictionResult.GONE or outcome.unsure


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."),
        (403, f"{FORBIDDEN}pdb disruptions allowed is negative"),
        (403, f"{FORBIDDEN}DisruptedPods map too big - too many evictions not confirmed by PDB controller"),
    ],
    ids=["two budgets", "negative", "too many"],
)
def test_budgets_that_cannot_allow_an_eviction_block_it(code: int, message: str) -> None:
    """M4: these answers count as blocked by a budget, so `deadline` runs and the pod is not read before each retry."""
    outcome = outcome_of(Answer(status(code, message), code))
    assert (outcome.result, outcome.unsure) == (EvictionResult.BLOCKED, False)


@by(run)
async def test_answer_that_is_not_json_does_not_end_the_worker() -> None:
    problem: Exception | None = None
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(Answer(b"<html>welcome</html>"))
        try:
            await writer(cluster).prepare(POD, delete=False, unsure=True)
        except Exception as error:  # noqa: BLE001 -- any is one too many
            problem = error
    assert problem is None


@pytest.mark.parametrize(
    ("code", "taken_for"), [(404, EvictionResult.GONE), (200, EvictionResult.EVICTED)], ids=["not found", "granted"]
)
def test_page_of_a_load_balancer_is_no_answer_to_an_eviction(code: int, taken_for: EvictionResult) -> None:
    assert outcome_of(Answer(b"<html>one moment</html>", code)).result is not taken_for


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


@by(run)
async def test_disruption_target_is_not_written_anew_with_each_try_to_delete() -> None:
    """L10: condition DisruptionTarget keeps its time while nothing in it changes, as with the in-tree controller."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        asking = writer(cluster)
        marked = Answer({"kind": "Pod", "metadata": {"uid": POD.uid, "resourceVersion": "8"}})
        peer.otherwise = lambda request: marked if request.method != "DELETE" else Answer(b"", 500)
        for _ in range(2):
            await asking.delete(POD, None, DISRUPTION)
        patches = [request.json["status"]["conditions"] for request in peer.requests if request.method == "PATCH"]
        assert [request.method for request in peer.requests] == ["PATCH", "DELETE"] * 2
    assert len({str(conditions) for conditions in patches}) == 1
