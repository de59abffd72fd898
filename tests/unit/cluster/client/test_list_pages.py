"""How long a page of a list may take: longer than other requests, as long as data arrives."""

from __future__ import annotations

import json
import re

import pytest

from tests.unit.cluster.peer import Answer, Peer, Silence, Slow, cluster_of
from webhook.cluster.client.errors import Unavailable
from webhook.cluster.client.list_pages import collection_version, listed, pages
from webhook.cluster.client.rest import JSON

PATH = "/apis/example.com/v1/things"
PIECES = 20


def page(names: list[str], more: str = "") -> bytes:
    items = [{"metadata": {"name": name}} for name in names]
    return json.dumps({"metadata": {"resourceVersion": "7", "continue": more}, "items": items}).encode()


def slow(names: list[str], more: str = "") -> Slow:
    """A page that takes a second in all."""
    body = page(names, more)
    step = -(-len(body) // PIECES)
    return Slow([body[start : start + step] for start in range(0, len(body), step)], 1.0 / PIECES)


async def test_page_may_take_longer_than_another_request() -> None:
    async with Peer() as peer, cluster_of(peer, timeout_seconds=0.5) as cluster:
        peer.answers.extend([slow(["a", "b"], "more"), slow(["c"])])
        found = await listed(cluster, PATH, "example.com/v1", "Thing")
        assert [each["metadata"]["name"] for each in found] == ["a", "b", "c"]
        peer.answers.append(slow(["a"]))
        with pytest.raises(Unavailable, match=rf"^GET {PATH}: no complete answer within 0\.5 s$"):
            await cluster.get(PATH)


@pytest.mark.parametrize(
    ("reply", "page_seconds", "silence_seconds", "limit"),
    [
        (Silence(), 5.0, 0.1, "no data for 0.1 s"),
        (Slow([b"{", b"}"], 5.0), 5.0, 0.1, "no data for 0.1 s"),
        (slow(["a"]), 0.5, 5.0, "no complete answer within 0.5 s"),
    ],
)
async def test_page_that_stalls_or_takes_too_long_is_given_up(
    reply: Silence | Slow, page_seconds: float, silence_seconds: float, limit: str
) -> None:
    limits = {"page_seconds": page_seconds, "page_silence_seconds": silence_seconds}
    async with Peer() as peer, cluster_of(peer, **limits) as cluster:
        peer.answers.append(reply)
        with pytest.raises(Unavailable, match=rf"^GET {PATH}: {re.escape(limit)}"):
            async for _ in pages(cluster, PATH):
                pass
        peer.answers.append(Answer(page(["a"])))
        assert [page async for page in pages(cluster, PATH)] == [[{"metadata": {"name": "a"}}]]


async def test_version_of_a_collection_has_no_more_time_than_another_request() -> None:
    async with Peer() as peer, cluster_of(peer, timeout_seconds=0.5) as cluster:
        peer.answers.extend([Answer(page(["a"], "more")), slow(["a"]), Answer(b"[]")])
        assert await collection_version(cluster, PATH, selector={}, accept=JSON) == "7"
        for reason in ("no complete answer within 0.5 s", "cannot be read"):
            with pytest.raises(Unavailable, match=rf"^GET {PATH}: {re.escape(reason)}"):
                await collection_version(cluster, PATH, selector={}, accept=JSON)
        assert [request.query for request in peer.requests] == [{"limit": "1"}] * 3
