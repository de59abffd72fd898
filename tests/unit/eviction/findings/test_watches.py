"""Watches that break, resources that are not served, and changes that do not reach the worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.cluster.acting import RULES_PATH, acting_cluster
from tests.unit.cluster.api_peer import ALL, ApiPeer
from tests.unit.cluster.cache.following import QUICK, bookmark, event, following, page, thing
from tests.unit.cluster.peer import Answer, Lines, Peer, cluster_of, run, until
from tests.unit.eviction.hurried import by
from tests.unit.running import running
from webhook.cluster.cache.inventory import InventoryCache
from webhook.cluster.cache.names import NamespaceCache
from webhook.cluster.settings import InventorySettings
from webhook.config.workers import parse_evict
from webhook.daemons.evict import Worker
from webhook.policy.decide import BUILTIN_JUDGE

RULES = "devicetaintrules"


def a_rule() -> dict[str, Any]:
    spec = {"deviceSelector": {"driver": "gpu.example.com"}, "taint": {"key": "example.com/bad", "effect": "NoExecute"}}
    meta = {"name": "rule"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": meta, "spec": spec}


@by(run)
async def test_rules_that_are_served_no_longer_are_not_trusted() -> None:
    """M9: one API server that does not serve rules must not let the worker act on the rules that it knew before."""
    settings = InventorySettings(stale_seconds=0.0, reflector=QUICK)
    async with ApiPeer() as peer, cluster_of(peer) as cluster:
        peer.put(a_rule())
        cache = InventoryCache(cluster, random=lambda: 0.5, settings=settings)
        async with running(cache.run()):
            await cache.synced()
            await peer.say_on(RULES_PATH, bookmark(200))
            await until(lambda: cache.sight().inventory is not None, "that it is followed")
            peer.served = {"v1": ALL["v1"] - {RULES}}
            await peer.say_on(RULES_PATH, cut=True)
            await until(lambda: cache._rules.unserved, "that rules are not served")
            assert list(cache.inventory.rules) == ["rule"]
            assert cache.sight().inventory is None


@by(run)
async def test_watch_that_breaks_is_resumed_without_a_list() -> None:
    half = Lines([event("ADDED", thing("one", 6)), event("ADDED", thing("two", 7))[:20]], then="cut")
    async with following(page(5), page(9, thing("one", 6)), watches=(half,)) as bench:
        await until(lambda: len(bench.peer.watched) == 2, "another watch")
        assert len(bench.peer.lists) == 1
        assert bench.peer.watched[1].query["resourceVersion"] == "6"


# --- namespaces -----------------------------------------------------------------------------------


def namespace(version: int, tier: str) -> dict[str, Any]:
    meta = {"name": "ml", "uid": "uid-ml", "resourceVersion": str(version), "labels": {"tier": tier}}
    return {"metadata": meta}


@by(run)
async def test_changed_labels_of_a_namespace_reach_the_worker() -> None:
    """M14: profiles choose namespaces by labels, so pods of a namespace are planned anew when its labels change."""
    changed: list[str] = []
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(Answer({"metadata": {"resourceVersion": "10"}, "items": [namespace(3, "batch")]}))
        namespaces = NamespaceCache(cluster, random=lambda: 0.0, on_change=changed.append)
        async with running(namespaces.reflector.run()):
            await namespaces.reflector.synced.wait()
            changed.clear()
            await peer.say(event("MODIFIED", namespace(11, "production")))
            known = namespaces.reflector.items
            await until(lambda: known["ml"].metadata.resource_version == "11", "the change")
            assert changed == ["ml"]


@by(run)
async def test_no_pod_is_evicted_while_holds_of_namespaces_are_not_known(tmp_path: Path) -> None:
    """M14: the worker evicts no pod while its watch of namespaces is broken, as a hold may have been set."""
    worker = Worker(parse_evict("evict", [f"--kubeconfig={tmp_path / 'kubeconfig'}"], {}))
    worker._policies.use(BUILTIN_JUDGE)
    followed = [*worker._cache._reflectors, worker._namespaces.reflector]
    for reflector in followed:
        reflector.synced.set()
    assert worker._trusted()
    worker._namespaces.reflector._mark_lost(0.0)
    assert not worker._trusted()
