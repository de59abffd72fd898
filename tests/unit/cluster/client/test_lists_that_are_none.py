"""A 200 that is no list, as from a proxy: it must not read as a list without objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tables import table
from tests.unit.cluster.peer import Answer, Peer, cluster_of, status
from webhook.cluster.client.errors import Unavailable
from webhook.cluster.client.list_pages import collection_version, listed
from webhook.cluster.client.rest import JSON

PATH = "/apis/example.com/v1/things"


@table(
    "answer",
    {
        "a Status": {**status(503, "backend unavailable"), "metadata": {}},
        "an object with nothing": {"metadata": {}},
        "a list of no version": {"metadata": {"resourceVersion": ""}, "items": []},
        "an object that is none": {"kind": "Thing", "metadata": {"name": "x", "resourceVersion": "7"}},
    },
)
async def test_what_is_no_list_is_no_empty_list(answer: Any) -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = lambda _: Answer(answer)
        with pytest.raises(Unavailable, match=rf"^GET {PATH}: cannot be read"):
            await listed(cluster, PATH, "example.com/v1", "Thing")
        with pytest.raises(Unavailable, match=rf"^GET {PATH}: cannot be read"):
            await collection_version(cluster, PATH, selector={}, accept=JSON)


@pytest.mark.parametrize("items", [[], None])
async def test_list_without_objects_is_empty(items: Any) -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = lambda _: Answer({"metadata": {"resourceVersion": "7"}, "items": items})
        assert await listed(cluster, PATH, "example.com/v1", "Thing") == []
