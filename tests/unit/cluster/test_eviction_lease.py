"""What the lease of the eviction workers tells `serve`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.cluster.peer import Answer, Drop, Peer, Reply, Request, cluster_of, run, status, until
from tests.unit.running import running
from webhook.api.meta import NamespacedName
from webhook.cluster import leader as module
from webhook.cluster.leader import READ_SECONDS, EvictionLease
from webhook.eviction.modes import MODE_ANNOTATION

PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/evict"
NO_HOLDER = "no eviction worker holds its lease, so pods stay until one does"


def lease(mode: str | None = "delegated", holder: str = "one", renewed: str = "1", seconds: int | None = 15) -> Answer:
    annotations = {} if mode is None else {MODE_ANNOTATION: mode}
    spec: dict[str, Any] = {"holderIdentity": holder, "renewTime": renewed}
    if seconds is not None:
        spec["leaseDurationSeconds"] = seconds
    return Answer({"metadata": {"name": "evict", "annotations": annotations}, "spec": spec})


def problems(*replies: Reply, every: float = READ_SECONDS) -> list[str]:
    """The problem after each read; `every`: seconds between two reads."""
    found: list[str] = []
    seconds = [100.0]

    async def test() -> None:
        given = iter(replies)

        def answer(request: Request) -> Reply:
            assert (request.method, request.path) == ("GET", PATH)
            return next(given)

        async with Peer() as peer, cluster_of(peer) as cluster:
            peer.otherwise = answer
            seen = EvictionLease(
                cluster,
                NamespacedName("ns", "evict"),
                wanted=lambda: True,
                random=lambda: 0.5,
                clock=lambda: seconds[0],
            )
            assert seen.problem == ""
            for _ in replies:
                await seen.read()
                found.append(seen.problem)
                seconds[0] += every

    run(test())
    return found


@pytest.mark.parametrize("mode", ["delegated", "replacement", None])
def test_worker_that_acts_is_no_problem(mode: str | None) -> None:
    assert problems(lease(mode)) == [""]


def test_worker_that_does_not_act_is_named() -> None:
    assert problems(lease("observe")) == ["the eviction worker runs in mode observe, so pods stay"]


def test_lease_without_holder_is_no_worker() -> None:
    missing = Answer(status(404, "not found"), 404)
    assert problems(missing, lease(), lease(holder=""), missing) == [NO_HOLDER, "", NO_HOLDER, NO_HOLDER]
    assert problems(Answer({"metadata": {}, "spec": {}})) == [NO_HOLDER]
    assert problems(Answer({"metadata": {"annotations": None}})) == [NO_HOLDER]


def test_holder_counts_for_as_long_as_its_record_changes() -> None:
    kept = [lease(renewed=str(number)) for number in range(5)]
    assert problems(*kept) == [""] * 5
    silent = [lease() for _ in range(5)]
    assert problems(*silent, every=12.5) == ["", "", "", NO_HOLDER, NO_HOLDER]
    assert problems(*[lease(seconds=None) for _ in range(4)], every=12.5) == ["", "", "", NO_HOLDER]
    assert problems(*[lease(seconds=40) for _ in range(4)], every=25) == ["", "", "", NO_HOLDER]


def test_answer_that_does_not_come_proves_nothing() -> None:
    assert (
        problems(lease("observe"), *[Drop()] * 8, every=60)
        == ["the eviction worker runs in mode observe, so pods stay"] * 9
    )


def test_what_may_not_be_read_is_not_known() -> None:
    forbidden, again = problems(Answer(status(403, "leases is forbidden"), 403), lease())
    assert forbidden.startswith("it is not known whether an eviction worker acts: ")
    assert "leases is forbidden" in forbidden
    assert again == ""
    assert "not known" in problems(Answer({"metadata": 7}))[0]


@pytest.mark.parametrize(
    "odd",
    [
        {"metadata": {"annotations": []}},
        {"metadata": {"annotations": {MODE_ANNOTATION: ["observe"]}}},
        {"metadata": {}, "spec": {"holderIdentity": "one", "leaseDurationSeconds": "15"}},
        {"metadata": {}, "spec": {"holderIdentity": 1}},
    ],
)
def test_fields_of_wrong_types_are_no_end_of_the_process(odd: dict[str, Any]) -> None:
    unclear, again = problems(Answer(odd), lease())
    assert unclear.startswith("it is not known whether an eviction worker acts: ")
    assert again == ""


def test_only_what_a_holder_renews_shows_that_it_lives() -> None:
    def changed(number: int) -> Answer:
        spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "1", "leaseTransitions": number}
        return Answer({"metadata": {}, "spec": spec})

    assert problems(*map(changed, range(4)), every=12.5) == ["", "", "", NO_HOLDER]


async def test_it_is_read_again_and_again_while_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_SECONDS", 0.01)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    wanted = False

    async with Peer() as peer, cluster_of(peer) as cluster:
        asked = 0

        def answer(_: Request) -> Reply:
            nonlocal asked
            asked += 1
            return lease(renewed=str(asked))

        peer.otherwise = answer
        seen = EvictionLease(cluster, NamespacedName("ns", "evict"), wanted=lambda: wanted, random=lambda: 0.5)
        async with running(seen.run()):
            await asyncio.sleep(0.1)
            assert asked == 0
            wanted = True
            await until(lambda: asked > 2, "read again")
