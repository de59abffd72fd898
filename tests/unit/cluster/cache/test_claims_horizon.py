"""Up to when all changes of claims are known: by the server's version, by events, and by a second watch."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.unit.cluster.cache.following import EXPIRED, bookmark, event, page, thing
from tests.unit.cluster.peer import Answer, Lines, Peer, cluster_of, status, until
from tests.unit.running import running
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.cache.inventory import ClaimsHorizon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.cluster.peer import Reply

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"


class Bench:
    """A horizon at work; the inventory's watch is at `version`, and the clock at `now`."""

    def __init__(self, peer: Peer, horizon: ClaimsHorizon) -> None:
        self.peer = peer
        self.horizon = horizon
        self.version = "10"
        self.now = 100.0

    async def knows(self, at: float) -> None:
        await until(lambda: self.horizon.reached(at), f"all up to {at}")

    async def answered(self, lists: int, watches: int = 0) -> None:
        """So many requests were made, and what they brought was noted."""
        await until(lambda: (len(self.peer.lists), len(self.peer.watched)) == (lists, watches), "asked")
        await until(lambda: [each.at for each in self.horizon._marks[-1:]] == [self.now], "noted")


@contextlib.asynccontextmanager
async def asking(*answers: Reply, watches: tuple[Reply, ...] = ()) -> AsyncIterator[Bench]:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.answers.extend(answers)
        peer.watches.extend(watches)
        bench: Bench
        claims = FixedCollection("resource.k8s.io", "v1", "resourceclaims")
        horizon = ClaimsHorizon(
            cluster, claims, lambda: bench.version, clock=lambda: bench.now, random=lambda: 0.999, event_seconds=0.01
        )
        bench = Bench(peer, horizon)
        async with running(horizon.run()):
            yield bench


async def test_nothing_is_asked_before_an_answer_is_wanted() -> None:
    async with asking() as bench:
        await asyncio.sleep(0.05)
        assert bench.peer.requests == []
        assert not bench.horizon.reached(-1e9)


async def test_version_that_the_watch_has_reached_needs_no_second_watch() -> None:
    async with asking(page(10, thing("a", 3), more="rest")) as bench:
        assert not bench.horizon.reached(90.0)
        await bench.knows(90.0)
        [request] = bench.peer.requests
        assert (request.path, request.query) == (CLAIMS, {"limit": "1"})
        assert "PartialObjectMetadataList" in request.headers["accept"]
        assert bench.horizon.reached(100.0), "as of the request"


async def test_what_comes_after_the_request_is_not_known_by_it() -> None:
    async with asking(page(10), page(12), watches=(Lines(then="end"),)) as bench:
        bench.horizon.reached(100.0)
        await bench.knows(100.0)
        bench.now = 101.0
        assert not bench.horizon.reached(100.5)
        await bench.answered(2, 1)
        assert not bench.horizon.reached(100.5), "the watch is at 10"
        bench.version = "12"
        assert bench.horizon.reached(100.5)


async def test_second_watch_shows_that_nothing_was_missed() -> None:
    watch = Lines([bookmark(15), bookmark(20)])
    async with asking(page(20), watches=(watch,)) as bench:
        bench.horizon.reached(100.0)
        await bench.knows(100.0)
        [request] = bench.peer.watched
        assert request.path == CLAIMS
        assert request.query["resourceVersion"] == "10"
        assert request.query["timeoutSeconds"] == "3"
        assert request.query["allowWatchBookmarks"] == "true"


FIRST = event("MODIFIED", thing("a", 13))


@pytest.mark.parametrize(
    ("changes", "versions"),
    [
        pytest.param([event("DELETED", thing("b", 14)), bookmark(20)], ["10", "13", "14"], id="no later than the last"),
        pytest.param([event("ADDED", thing("b", 21))], ["13", "21"], id="a later change ends it"),
    ],
)
async def test_second_watch_shows_what_is_still_to_come(changes: list[bytes], versions: list[str]) -> None:
    """The inventory need not come further than the last change."""
    async with asking(page(20), watches=(Lines([FIRST, *changes]),)) as bench:
        bench.horizon.reached(100.0)
        await bench.answered(1, 1)
        for version in versions:
            bench.version = version
            assert bench.horizon.reached(100.0) is (version == versions[-1])


async def test_second_watch_that_shows_too_little_leaves_it_to_the_first() -> None:
    for watch in (Lines([bookmark(19)], then="end"), Lines([EXPIRED]), Lines(then="cut")):
        async with asking(page(20), watches=(watch,)) as bench:
            bench.horizon.reached(100.0)
            await bench.answered(1, 1)
            bench.version = "19"
            assert not bench.horizon.reached(100.0)
            bench.version = "20"
            assert bench.horizon.reached(100.0)


async def test_no_newer_question_keeps_an_older_one_from_its_answer() -> None:
    ended = Lines(then="end")
    async with asking(page(20), page(30), page(40), watches=(ended, ended, ended)) as bench:
        for number in (1, 2, 3):
            bench.now = 100.0 + number
            assert not bench.horizon.reached(bench.now)
            await bench.answered(number, number)
        bench.version = "20"
        assert bench.horizon.reached(101.0)
        assert not bench.horizon.reached(101.5)
        bench.version = "40"
        assert bench.horizon.reached(103.0)


async def test_versions_that_go_back_do_not_wait_for_those_before() -> None:
    """As after etcd was restored from a backup."""
    ended = Lines(then="end")
    async with asking(page(20), page(15), watches=(ended, ended)) as bench:
        bench.horizon.reached(100.0)
        await bench.answered(1, 1)
        bench.now = 101.0
        bench.horizon.reached(101.0)
        await bench.answered(2, 2)
        bench.version = "15"
        assert bench.horizon.reached(101.0)


async def test_failure_is_retried() -> None:
    async with asking(Answer(status(500, "not now"), 500), Answer(status(404, "not yet"), 404), page(10)) as bench:
        bench.horizon._backoff._first_seconds = 0.001
        bench.horizon.reached(100.0)
        await bench.knows(100.0)
        assert len(bench.peer.lists) == 3
        assert bench.horizon._backoff.failures == 0
        assert bench.horizon._fault.attempts == 0
