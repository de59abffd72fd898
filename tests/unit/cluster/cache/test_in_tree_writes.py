"""Whether the in-tree controller writes the status of rules."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.unit.cluster.acting import RULES, acting_cluster
from tests.unit.cluster.cache.following import event, no_chance, page, synced
from tests.unit.cluster.peer import Peer, until
from webhook.cluster.in_tree_probe import IN_TREE_MANAGER, InTreeWrites

Json = dict[str, Any]

AT_FIRST: Final = "2026-01-01T00:00:00Z"
LATER: Final = "2026-01-01T00:10:00Z"


def managed(time: str, **fields: str) -> Json:
    """An entry of managedFields; by default as the server writes it when the in-tree controller applies a status."""
    fields = {"manager": IN_TREE_MANAGER, "subresource": "status", **fields}
    return {"operation": "Apply", "apiVersion": "resource.k8s.io/v1", "time": time, **fields}


def condition(message: str, kind: str = "EvictionInProgress") -> Json:
    times = {"observedGeneration": 1, "lastTransitionTime": AT_FIRST}
    return {"type": kind, "status": "False", "reason": "NotStarted", "message": message, **times}


def rule(version: int, *entries: Json, said: str = "", name: str = "rule") -> Json:
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "managedFields": entries}
    ours = condition(f"at {version}", "devicetaint.io/Eviction")
    return {"metadata": meta, "status": {"conditions": [ours, condition(said)]} if said else {}}


KNOWN: Final = rule(3, managed(AT_FIRST), said="one")


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        pytest.param([rule(11, managed(LATER), said="two")], True, id="the controller writes"),
        pytest.param([rule(11, managed(AT_FIRST, subresource=""), managed(LATER), said="two")], True, id="beside it"),
        pytest.param(
            [rule(11, managed("9999-01-01T00:00:00Z"), said="one"), rule(12, managed(LATER), said="two")],
            *(True,),
            id="it writes where somebody has named a time far ahead",
        ),
        pytest.param([rule(11, name="new"), rule(12, managed(LATER), said="two", name="new")], True, id="a new rule"),
        pytest.param([rule(11, managed(AT_FIRST), said="two")], False, id="another one writes the status"),
        pytest.param([rule(11, managed(LATER, subresource=""), said="two")], False, id="not to the status"),
        pytest.param([rule(11, managed(LATER, manager="kubectl"), said="two")], False, id="another manager"),
        pytest.param([rule(11, managed(LATER), said="one")], False, id="managedFields by hand"),
        pytest.param([rule(11, managed(LATER), name="new")], False, id="managedFields by hand on a new rule"),
        pytest.param(
            [rule(11, managed(LATER), said="one"), rule(12, managed(LATER), said="two")],
            *(False,),
            id="by hand, then the worker writes the condition",
        ),
        pytest.param(
            [rule(11, managed(AT_FIRST), managed(LATER), said="one"), rule(12, managed(AT_FIRST), said="two")],
            *(False,),
            id="by hand, then the worker takes the condition over",
        ),
    ],
)
async def test_in_tree_controller_is_seen_only_where_its_write_changes_the_status(
    changes: list[Json], *, seen: bool
) -> None:
    """A field manager and managedFields are whatever a client sends; who may not write a status cannot change it."""
    async with Peer() as peer, acting_cluster(peer) as cluster:
        peer.answers.append(page(10, KNOWN))
        writes = InTreeWrites(cluster, RULES, random=no_chance)
        async with synced(writes.reflector):
            for each in changes:
                await peer.say(event("ADDED", each))
            name, version = (changes[-1]["metadata"][field] for field in ("name", "resourceVersion"))
            items = writes.reflector.items
            await until(lambda: name in items and items[name].meta.resource_version == version, "told")
            assert writes.seen.is_set() is seen
