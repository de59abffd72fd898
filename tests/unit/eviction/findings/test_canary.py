"""The rule that shows whether the in-tree controller is at work: left over, or refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.unit.cluster.acting import RULES, RULES_PATH, acting_cluster
from tests.unit.cluster.peer import Answer, Peer, Reply, Request, run, status, until
from tests.unit.eviction.hurried import by
from webhook.api.meta import GROUP
from webhook.cluster.cache.discovery import ServedCollection
from webhook.cluster.client.rest import ThrottledCluster
from webhook.cluster.in_tree_probe import find_in_tree
from webhook.config.workers import parse_evict
from webhook.daemons.evict import Worker
from webhook.eviction.conditions import CANARY
from webhook.eviction.modes import InTree

LEFT_OVER = f"{CANARY}-killed"


def with_left_over(request: Request) -> Reply:
    """An API server that has the canary of a process that was killed long ago."""
    if request.method == "GET" and request.path == RULES_PATH:
        meta = {"name": LEFT_OVER, "uid": "u1", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
        spec = {"deviceSelector": {"driver": "canary.devicetaint.io"}, "taint": {"effect": "None"}}
        return Answer({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": meta, "spec": spec}]})
    return Answer({"metadata": {"name": request.path.rpartition("/")[2], "managedFields": []}})


@by(run)
async def test_canary_of_a_process_that_was_killed_is_deleted() -> None:
    """L5: at its start the worker deletes canaries that are older than a minute."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.otherwise = with_left_over
        assert await find_in_tree(cluster, RULES, "x", wait_seconds=0.0) is InTree.ABSENT
        deleted = [request.path for request in peer.requests if request.method == "DELETE"]
        assert f"{RULES_PATH}/{LEFT_OVER}" in deleted


SERVED = Answer({"resources": [{"name": "devicetaintrules"}]})
UNANSWERED = Answer(status(500, 'failed calling webhook "x.example.com": connection refused'), 500)


def worker_of(folder: Path, cluster: ThrottledCluster, mode: str) -> Worker:
    worker = Worker(parse_evict("evict", [f"--kubeconfig={folder / 'kubeconfig'}", f"--mode={mode}"], {}))
    worker._cluster = cluster
    worker._rules = ServedCollection(cluster, GROUP, ("v1",), "devicetaintrules")
    return worker


@pytest.mark.parametrize(
    "answer", [Answer(status(403, 'admission webhook "x.example.com" denied the request: no owner'), 403), UNANSWERED]
)
@by(run)
async def test_canary_that_a_webhook_keeps_away_does_not_end_mode_delegated(tmp_path: Path, answer: Answer) -> None:
    """L5, H1: mode delegated goes on without the answer when admission refuses the canary or does not answer."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        worker = worker_of(tmp_path, cluster, "delegated")
        peer.otherwise = lambda request: SERVED if request.method == "GET" else answer
        await worker._find_in_tree()
        assert worker._in_tree is InTree.UNKNOWN
        assert worker._in_tree_problem is None


@by(run)
async def test_replacement_is_not_ready_while_a_webhook_does_not_answer_and_then_starts(tmp_path: Path) -> None:
    """H1: it has to know, so it asks again, and says why it waits."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        worker, down = worker_of(tmp_path, cluster, "replacement"), True
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
        assert worker._in_tree is InTree.ABSENT
        assert worker._in_tree_problem is None
