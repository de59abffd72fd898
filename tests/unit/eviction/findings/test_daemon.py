"""The process around the worker: what it finds out first, and when it may act."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.unit.cluster.acting import acting_cluster
from tests.unit.cluster.peer import Answer, Peer, Reply, Request, run, status, until
from tests.unit.eviction.hurried import by, looped
from webhook.api.meta import GROUP
from webhook.cluster.cache.discovery import ServedCollection
from webhook.cluster.client.rest import ThrottledCluster
from webhook.config.workers import parse_evict
from webhook.daemons.evict import Worker
from webhook.eviction.modes import InTree
from webhook.policy.decide import BUILTIN_JUDGE

LEASE = ("--leader-elect", "--leader-elect-lease=ns/evict")
SERVED = Answer({"resources": [{"name": "devicetaintrules"}]})
UNANSWERED = Answer(status(500, 'failed calling webhook "x.example.com": connection refused'), 500)


def worker_of(folder: Path, *flags: str, cluster: ThrottledCluster | None = None) -> Worker:
    worker = Worker(parse_evict("evict", [f"--kubeconfig={folder / 'kubeconfig'}", *flags], {}))
    if cluster is not None:
        worker._cluster = cluster
        worker._rules = ServedCollection(cluster, GROUP, ("v1",), "devicetaintrules")
    return worker


@by(run)
async def test_webhook_that_does_not_answer_about_the_canary_does_not_end_mode_delegated(tmp_path: Path) -> None:
    """H1: it goes on without knowing."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        worker = worker_of(tmp_path, "--mode=delegated", cluster=cluster)
        peer.otherwise = lambda request: SERVED if request.method == "GET" else UNANSWERED
        await worker._find_in_tree()
        assert (worker._in_tree, worker._in_tree_problem) == (InTree.UNKNOWN, None)


@by(run)
async def test_replacement_is_not_ready_while_a_webhook_does_not_answer_and_then_starts(tmp_path: Path) -> None:
    """H1: it has to know, so it asks again, and says why it waits."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        worker, down = worker_of(tmp_path, "--mode=replacement", cluster=cluster), True
        created = Answer({"resources": SERVED.body["resources"], "metadata": {"name": "canary"}})

        def answer(request: Request) -> Reply:
            return UNANSWERED if request.method == "POST" and down else created

        peer.otherwise = answer
        looking = asyncio.create_task(worker._find_in_tree())
        await until(lambda: worker._in_tree_problem is not None, "it waits")
        assert "failed calling webhook" in str(worker._in_tree_problem)
        down = False
        async with asyncio.timeout(30):
            await looking
        assert (worker._in_tree, worker._in_tree_problem) == (InTree.ABSENT, None)


@by(run)
async def test_no_pod_is_evicted_while_holds_of_namespaces_are_not_known(tmp_path: Path) -> None:
    """M14: the worker evicts no pod while its watch of namespaces is broken, as a hold may have been set."""
    worker = worker_of(tmp_path)
    worker._policies.use(BUILTIN_JUDGE)
    for reflector in (*worker._cache._reflectors, worker._namespaces.reflector):
        reflector.synced.set()
    assert worker._trusted()
    worker._namespaces.reflector._gap.begin(0.0)
    assert not worker._trusted()


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux has a clock that counts suspended seconds")
@looped
async def test_lease_and_trust_run_out_while_the_machine_is_suspended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """M2: CLOCK_MONOTONIC stands still meanwhile, CLOCK_BOOTTIME and the wall clock do not."""
    worker = worker_of(tmp_path, *LEASE)
    worker.stages()
    leader = worker._leader
    assert leader is not None
    leader.acquired.set()
    leader._renewed_at = leader._clock()
    assert (worker._leads(), worker._loop_monitor.steady) == (True, True)
    still, clocks = time.monotonic(), (time.CLOCK_BOOTTIME, time.CLOCK_REALTIME)
    gone_on = {clock: time.clock_gettime(clock) + 60.0 for clock in clocks}
    with monkeypatch.context() as suspended:
        suspended.setattr(time, "monotonic", lambda: still)
        suspended.setattr(time, "time", lambda: gone_on[time.CLOCK_REALTIME])
        suspended.setattr(time, "clock_gettime", lambda clock: gone_on.get(clock, still))
        found = worker._leads(), worker._loop_monitor.steady
    assert found == (False, False)
