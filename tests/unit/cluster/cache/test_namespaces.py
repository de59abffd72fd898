"""Holds and labels of namespaces."""

from __future__ import annotations

from typing import Any

from tests.unit.cluster.acting import acting_cluster
from tests.unit.cluster.cache.following import event, no_chance, page, synced
from tests.unit.cluster.peer import Peer, until
from webhook.api.pods import HOLD
from webhook.cluster.cache.names import NamespaceCache


def namespace(name: str, version: int = 3, hold: str | None = None, **labels: str) -> dict[str, Any]:
    annotations = {"other": "x"} | ({} if hold is None else {HOLD: hold})
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": {**meta, "labels": labels, "annotations": annotations}}


async def test_holds_and_labels_of_namespaces_are_known_and_their_changes_told() -> None:
    told: list[str] = []
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(page(10, namespace("ml", tier="prod"), namespace("web", hold="release")))
        namespaces = NamespaceCache(cluster, random=no_chance, on_change=told.append)
        async with synced(namespaces.reflector):
            facts = namespaces.facts_of("ml")
            assert facts is not None
            assert facts.labels == {"tier": "prod"}
            assert [namespaces.hold_of(name) for name in ("ml", "web", "none")] == [None, "release", None]
            assert told == ["ml", "web"]
            told.clear()
            await peer.say(event("MODIFIED", namespace("ml", 11, hold="stop", tier="prod")))
            await peer.say(event("MODIFIED", namespace("web", 12, hold="release", tier="x")))
            await peer.say(event("MODIFIED", namespace("ml", 13, hold="stop", tier="prod")))  # something else
            await peer.say(event("DELETED", namespace("web", 14)))
            await until(lambda: namespaces.facts_of("web") is None, "deleted")
            assert told == ["ml", "web", "web"]
            assert namespaces.hold_of("ml") == "stop"
