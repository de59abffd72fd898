"""How long a page of a list may take: longer than other requests, as long as data arrives."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest

from tests.unit.cluster.peer import Answer, Peer, Silence, Slow, cluster_of
from webhook.cluster.client.errors import Unavailable
from webhook.cluster.client.list_pages import collection_version, listed, pages
from webhook.cluster.client.rest import JSON

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_Found = TypeVar("_Found")
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


async def patiently(ask: Callable[[], Awaitable[_Found]]) -> _Found:
    """The answer, once the machine has not stood still meanwhile for as long as the limits of these tests are."""
    for _ in range(10):
        with suppress(Unavailable):
            return await ask()
        await asyncio.sleep(0)
    return await ask()


async def test_page_may_take_longer_than_another_request() -> None:
    async with Peer() as peer, cluster_of(peer, timeout_seconds=0.5) as cluster:
        peer.otherwise = lambda _: Answer({})
        await patiently(lambda: cluster.get("/x"))  # there is a connection from now on
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
        peer.otherwise = lambda _: Answer(page(["a"]))

        async def read() -> object:
            return [page async for page in pages(cluster, PATH)]

        assert await patiently(read) == [[{"metadata": {"name": "a"}}]]


async def test_version_of_a_collection_has_no_more_time_than_another_request() -> None:
    async with Peer() as peer, cluster_of(peer, timeout_seconds=0.5) as cluster:
        peer.otherwise = lambda _: Answer(page(["a"], "more"))
        asked = partial(collection_version, path=PATH, selector={}, accept=JSON)
        assert await patiently(lambda: asked(cluster)) == "7"
        peer.answers.append(slow(["a"]))
        with pytest.raises(Unavailable, match=rf"^GET {PATH}: no complete answer within 0\.5 s"):
            await asked(cluster)
        peer.otherwise = lambda _: Answer(b"[]")
        async with cluster_of(peer) as patient:
            with pytest.raises(Unavailable, match=rf"^GET {PATH}: cannot be read"):
                await asked(patient)
        assert all(request.query == {"limit": "1"} for request in peer.requests)
