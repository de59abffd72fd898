"""Whether the in-tree controller writes the status of rules."""

from __future__ import annotations

from typing import Any

from tests.unit.cluster.acting import RULES, acting_cluster
from tests.unit.cluster.cache.following import event, no_chance, page, synced
from tests.unit.cluster.peer import Peer, run, until
from webhook.cluster.cache.in_tree_writes import IN_TREE_MANAGER, InTreeWrites


def facts(version: int, written: str = "") -> dict[str, Any]:
    managed = [{"manager": "kubectl", "time": "2026-01-01T00:00:00Z"}]
    if written:
        managed.append({"manager": IN_TREE_MANAGER, "subresource": "status", "time": written})
    meta = {"name": "rule", "uid": "uid-rule", "resourceVersion": str(version)}
    return {"metadata": {**meta, "managedFields": managed}}


def test_in_tree_controller_is_noticed_when_it_writes_and_not_for_what_it_wrote_before() -> None:
    async def test() -> None:
        async with Peer() as peer, acting_cluster(peer) as cluster:
            peer.answers.append(page(10, facts(3, "2026-01-01T00:00:00Z")))
            writes = InTreeWrites(cluster, RULES, random=no_chance)
            async with synced(writes.reflector):
                await peer.say(event("MODIFIED", facts(11, "2026-01-01T00:00:00Z")))
                await until(lambda: writes.reflector.items["rule"].metadata.resource_version == "11", "told")
                assert not writes.seen.is_set()
                await peer.say(event("MODIFIED", facts(12, "2026-01-01T00:10:00Z")))
                await until(writes.seen.is_set, "noticed")

    run(test())
