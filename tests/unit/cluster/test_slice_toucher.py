"""Slices are touched until they are as they should be."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.unit.cluster.peer import Answer, Peer, Reply, Request, cluster_of, status, until
from tests.unit.running import running
from webhook.cluster.cache.discovery import ServedCollection
from webhook.cluster.patch_writer import SliceToucher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GROUP = "/apis/resource.k8s.io"


class Server:
    """Answers touches, and knows which version is served."""

    def __init__(self) -> None:
        self.version = "v1"
        self.replies: list[Reply] = []

    def __call__(self, request: Request) -> Reply:
        if request.method == "GET":
            served = request.path == f"{GROUP}/{self.version}"
            return Answer({"resources": [{"name": "resourceslices"}]}) if served else Answer(status(404, "no"), 404)
        return self.replies.pop(0) if self.replies else Answer({"metadata": {"name": "x"}})


@contextlib.asynccontextmanager
async def touching(server: Server, first_seconds: float = 0.001) -> AsyncIterator[tuple[SliceToucher, Peer]]:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = server
        slices = ServedCollection(cluster, "resource.k8s.io", ("v1", "v1beta2"), "resourceslices")
        toucher = SliceToucher(cluster, slices, random=lambda: 0.0, first_seconds=first_seconds, most_seconds=60.0)
        async with running(toucher.run()):
            yield toucher, peer


def touches(peer: Peer) -> list[str]:
    return [request.path.rpartition("/")[2] for request in peer.requests if request.method == "PATCH"]


def failures(toucher: SliceToucher, name: str) -> int:
    return toucher._queue._failures.get(name, 0)


async def test_touch_is_a_patch_that_says_nothing() -> None:
    async with touching(Server(), 60.0) as (toucher, peer):
        toucher.want(["b", "a"])
        await until(lambda: len(touches(peer)) == 2, "both")
        (first, second) = [request for request in peer.requests if request.method == "PATCH"]
        assert [first.path, second.path] == [f"{GROUP}/v1/resourceslices/{name}" for name in ("a", "b")]
        assert (first.json, first.headers["content-type"]) == ({}, "application/merge-patch+json")
        assert toucher._wanted == {"a", "b"}
        await until(lambda: failures(toucher, "b") == 1, "the last is waited for")
        toucher.want(["b", "a", "c"])
        await until(lambda: len(touches(peer)) == 3, "what is new")
        assert touches(peer) == ["a", "b", "c"], "the others wait"
        toucher.want([])
        assert (toucher._wanted, failures(toucher, "a"), toucher.problems) == (frozenset(), 0, {})


async def test_touch_that_did_not_help_is_repeated_until_the_slice_is_right() -> None:
    async with touching(Server()) as (toucher, peer):
        toucher.want(["a"])
        await until(lambda: failures(toucher, "a") >= 4, "more touches")
        toucher.want(["b"])
        await until(lambda: failures(toucher, "b") >= 2, "those of another")
        assert failures(toucher, "a") == 0
        before = touches(peer).count("a")
        await until(lambda: failures(toucher, "b") >= 5, "more of them")
        assert touches(peer).count("a") == before


async def test_failures_are_told_until_a_touch_succeeds() -> None:
    server = Server()
    server.replies = [Answer(status(403, "not for you"), 403), Answer(status(409, "again"), 409)]
    async with touching(server, 0.05) as (toucher, _):
        toucher.want(["a"])
        await until(lambda: "not for you" in toucher.problems.get("a", ""), "the first reason")
        await until(lambda: "again" in toucher.problems.get("a", ""), "the second")
        await until(lambda: toucher.problems == {}, "success")


async def test_server_that_asks_for_patience_gets_it() -> None:
    server = Server()
    server.replies = [Answer(status(429, "busy"), 429, {"Retry-After": "30"})]
    async with touching(server) as (toucher, peer):
        toucher.want(["a", "b"])
        await until(lambda: failures(toucher, "b") >= 5, "others are touched meanwhile")
        assert touches(peer).count("a") == 1
        toucher.want(["b"])
        assert toucher.problems == {}


async def test_version_is_looked_for_again_when_it_is_gone() -> None:
    server = Server()
    async with touching(server, 0.01) as (toucher, peer):
        toucher.want(["a"])
        await until(lambda: bool(touches(peer)), "a touch")
        server.version = "v1beta2"
        server.replies = [Answer(status(404, "gone"), 404)]
        await until(lambda: any("v1beta2/resourceslices/" in each.path for each in peer.requests), "the other")
