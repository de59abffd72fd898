"""The rule that shows whether the in-tree controller is at work: left over, or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.unit.cluster.acting import RULES, RULES_PATH, acting_cluster
from tests.unit.cluster.peer import Answer, Peer, Reply, Request, run, status
from webhook.api.meta import GROUP
from webhook.cluster.cache.discovery import ServedCollection
from webhook.cluster.client.errors import ClusterError
from webhook.cluster.in_tree_probe import find_in_tree
from webhook.config.evict import parse_evict
from webhook.daemons.evict import Worker
from webhook.eviction.conditions import CANARY
from webhook.eviction.modes import InTree

if TYPE_CHECKING:
    from pathlib import Path

LEFT_OVER = f"{CANARY}-killed"


def with_left_over(request: Request) -> Reply:
    """An API server that has the canary of a process that was killed long ago."""
    if request.method == "GET" and request.path == RULES_PATH:
        meta = {"name": LEFT_OVER, "uid": "u1", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}
        spec = {"deviceSelector": {"driver": "canary.devicetaint.io"}, "taint": {"effect": "None"}}
        return Answer({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": meta, "spec": spec}]})
    return Answer({"metadata": {"name": request.path.rpartition("/")[2], "managedFields": []}})


def test_canary_of_a_process_that_was_killed_is_deleted() -> None:
    """L5: at its start the worker deletes canaries that are older than a minute."""

    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.otherwise = with_left_over
            assert await find_in_tree(cluster, RULES, "x", wait_seconds=0.0) is InTree.ABSENT
            deleted = [request.path for request in peer.requests if request.method == "DELETE"]
            assert f"{RULES_PATH}/{LEFT_OVER}" in deleted

    run(test())


def test_canary_that_a_webhook_refuses_does_not_end_mode_delegated(tmp_path: Path) -> None:
    """L5: mode delegated goes on without the answer when an admission policy refuses the canary."""

    async def test() -> None:
        worker = Worker(parse_evict("evict", [f"--kubeconfig={tmp_path / 'kubeconfig'}", "--mode=delegated"], {}))
        refusal = 'admission webhook "x.example.com" denied the request: no rule without an owner'
        problem: ClusterError | None = None
        async with Peer() as peer, acting_cluster(peer) as cluster:
            served = Answer({"resources": [{"name": "devicetaintrules"}]})
            peer.otherwise = lambda request: served if request.method == "GET" else Answer(status(403, refusal), 403)
            worker._cluster = cluster
            worker._rules = ServedCollection(cluster, GROUP, ("v1",), "devicetaintrules")
            try:
                await worker._find_in_tree()
            except ClusterError as error:
                problem = error
        assert problem is None
        assert worker._in_tree is InTree.UNKNOWN

    run(test())
