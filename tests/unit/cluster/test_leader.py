"""Leases: acquired, kept through failures, given back, lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.peer import Answer, Drop, Peer, Reply, Request, Silence, cluster_of, status, until
from webhook.cluster.leader import LeaderSettings, Leadership, LeadershipLost

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from webhook.cluster.client.rest import Cluster

pytestmark = pytest.mark.slow  # leases last for seconds

SETTINGS = LeaderSettings(namespace="ns", name="evict", lease_seconds=4, renew_seconds=2, retry_seconds=1)
KEPT = LeaderSettings(namespace="ns", name="evict", lease_seconds=30, renew_seconds=20, retry_seconds=1)
"""For a lease that must not be lost, also when the machine stands still for a few seconds."""
PATH = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
MICRO_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{6}Z")


class Server:
    """One lease, as an API server keeps it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.broken = False

    def answer(self, request: Request) -> Reply:
        if self.broken:
            return Drop()
        if request.method == "GET":
            return Answer(status(404, "none"), 404) if self.lease is None else Answer(self.lease)
        sent = request.json
        if request.method == "POST" and self.lease is not None:
            return Answer(status(409, "exists"), 409)
        if request.method == "PUT" and sent["metadata"].get("resourceVersion") != str(self.version):
            return Answer(status(409, "changed"), 409)
        self.version += 1
        self.lease = {**sent, "metadata": {**sent["metadata"], "resourceVersion": str(self.version)}}
        return Answer(self.lease, 201)

    def take(self, identity: str) -> None:
        """Somebody else writes it, for an hour."""
        assert self.lease is not None
        self.version += 1
        spec = {**self.lease["spec"], "holderIdentity": identity, "leaseDurationSeconds": 3600}
        self.lease = {"metadata": {"name": "evict", "resourceVersion": str(self.version)}, "spec": spec}

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""


def now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)  # noqa: TID251 -- a clock that tests set


@contextlib.asynccontextmanager
async def candidate(
    cluster: Cluster, identity: str, settings: LeaderSettings = SETTINGS, clock: Callable[[], float] = time.monotonic
) -> Any:
    leadership = Leadership(cluster, settings, identity=identity, now=now, random=random.random, clock=clock)  # noqa: TID251 -- as the shell has it
    task = asyncio.create_task(leadership.run())
    try:
        yield leadership, task
    finally:
        task.cancel()
        await asyncio.wait([task])


@contextlib.asynccontextmanager
async def leading(
    settings: LeaderSettings = SETTINGS, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[tuple[Server, Peer, Cluster, Leadership, asyncio.Task[None]]]:
    """A server with one candidate, which leads."""
    server = Server()
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = server.answer
        async with candidate(cluster, "one", settings, clock) as (one, task):
            await until(one.acquired.is_set, "it leads")
            yield server, peer, cluster, one, task


async def test_lease_is_made_kept_and_given_back_to_whoever_waits() -> None:
    async with leading(KEPT) as (server, _, cluster, one, _):
        assert server.holder == "one"
        assert server.lease is not None
        spec = server.lease["spec"]
        assert all(MICRO_TIME.fullmatch(spec[name]) for name in ("acquireTime", "renewTime"))
        async with candidate(cluster, "two", KEPT) as (two, _):
            renewed = server.version + 1
            await until(lambda: server.version > renewed, "renewed")
            assert not two.acquired.is_set()
            await one.release()
            assert server.holder == ""
            await until(two.acquired.is_set, "the other leads", seconds=KEPT.lease_seconds - 10)
            assert server.holder == "two"


async def test_lease_has_the_annotations_of_its_holder_beside_those_of_others() -> None:
    server = Server()
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = server.answer
        async with candidate(cluster, "one", replace(KEPT, annotations={"mode": "observe"})) as (one, _):
            await until(one.acquired.is_set, "a leader")
            assert server.lease is not None
            assert server.lease["metadata"]["annotations"] == {"mode": "observe"}
            server.lease["metadata"]["annotations"]["of"] = "another"
            await one.release()
        async with candidate(cluster, "two", replace(KEPT, annotations={"mode": "delegated"})) as (two, _):
            await until(two.acquired.is_set, "the other leads")
            assert server.lease["metadata"]["annotations"] == {"mode": "delegated", "of": "another"}


async def test_no_answer_for_less_than_the_deadline_costs_nothing() -> None:
    async with leading(KEPT) as (server, peer, _, _, task):
        server.broken = True
        asked = len(peer.requests) + 1
        await until(lambda: len(peer.requests) > asked, "asked in vain")
        server.broken = False
        known = server.version
        await until(lambda: server.version > known, "renewed after all")
        assert not task.done()


@pytest.mark.parametrize("reply", [Drop(), Silence()], ids=["refused", "not answered"])
async def test_leader_whose_lease_is_not_renewed_ends_at_its_deadline(reply: Reply) -> None:
    """Also while it waits for an answer, and however long a request may take by itself."""
    async with leading() as (_, peer, _, one, task):
        peer.otherwise = lambda _: reply
        await until(task.done, "it ends")
        with pytest.raises(LeadershipLost):
            await task
        assert not one.holds


async def test_leader_that_gave_up_a_moment_before_its_deadline_holds_nothing() -> None:
    """Timers of the event loop count in whole milliseconds, so that they may end a little before the clock."""
    seconds = [0.0]
    async with leading(clock=lambda: seconds[0]) as (_, peer, _, one, task):
        peer.otherwise = lambda _: Silence()
        seconds[0] += SETTINGS.retry_seconds + SETTINGS.renew_seconds - 0.0004
        assert one.holds
        await until(task.done, "it ends")
        with pytest.raises(LeadershipLost):
            await task
        assert not one.holds


async def test_leader_that_was_suspended_past_its_deadline_ends_without_a_request() -> None:
    seconds = [0.0]
    async with leading(clock=lambda: seconds[0]) as (_, peer, _, one, task):
        asked = len(peer.requests)
        seconds[0] += SETTINGS.renew_seconds + SETTINGS.retry_seconds
        assert not one.holds, "it knows before it asks"
        seconds[0] += SETTINGS.lease_seconds
        await until(task.done, "it ends")
        with pytest.raises(LeadershipLost):
            await task
        assert len(peer.requests) == asked


async def test_leader_steps_down_as_soon_as_it_reads_the_name_of_another() -> None:
    async with leading(KEPT) as (server, _, _, one, task):
        server.take("two")
        await until(task.done, "it ends", seconds=KEPT.renew_seconds - 5)
        assert not one.holds
        await one.release()
        assert server.holder == "two"


async def test_record_counts_transitions_and_keeps_what_others_put_there() -> None:
    server = Server()
    spec = {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "leaseTransitions": 4,
        "strategy": "OldestEmulationVersion",
    }
    labels = {"team": "infra"}
    server.lease = {"metadata": {"name": "evict", "resourceVersion": "0", "labels": labels}, "spec": spec}
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = server.answer
        async with candidate(cluster, "one", KEPT) as (one, _):
            await until(one.acquired.is_set, "it leads")
            acquired = server.lease["spec"]["acquireTime"]
            await until(lambda: server.version > 1, "renewed")
            kept = server.lease["spec"]
            assert server.lease["metadata"]["labels"] == labels
            assert (kept["leaseTransitions"], kept["strategy"]) == (5, "OldestEmulationVersion")
            assert (kept["acquireTime"], kept["leaseDurationSeconds"]) == (acquired, KEPT.lease_seconds)
            assert kept["renewTime"] > acquired


async def test_lease_that_cannot_be_read_is_a_failed_attempt_and_not_the_end() -> None:
    server = Server()
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = lambda _: Answer(b"<html>")
        async with candidate(cluster, "one", KEPT) as (one, task):
            await until(lambda: len(peer.requests) > 1, "tried again")
            peer.otherwise = server.answer
            await until(one.acquired.is_set, "it leads")
            assert not task.done()


class Wall:
    """The wall clock that records are written with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_seconds = 0.0
        real = time.time  # noqa: TID251 -- what is set
        monkeypatch.setattr(time, "time", lambda: real() + self.ahead_seconds)


async def test_wall_clock_set_forward_takes_no_lease_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = Wall(monkeypatch)
    async with leading(KEPT) as (server, _, cluster, one, _), candidate(cluster, "two", KEPT) as (two, _):
        for _ in range(3):
            wall.ahead_seconds += 3600
            renewed = server.version + 1
            await until(lambda: server.version > renewed, "renewed")  # noqa: B023 -- called here
        assert (server.holder, one.holds, two.holds) == ("one", True, False)


async def test_wall_clock_set_back_leaves_no_lease_that_nobody_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, server = Wall(monkeypatch), Server()
    settings = replace(SETTINGS, lease_seconds=8, renew_seconds=4)  # not over before it was seen
    then = "2026-01-01T00:00:00.000000Z"
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 8, "acquireTime": then, "renewTime": then}
    server.lease = {"metadata": {"name": "evict", "resourceVersion": "0"}, "spec": spec}
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = server.answer
        async with candidate(cluster, "two", settings) as (two, _):
            await until(lambda: len(peer.requests) > 1, "seen")
            assert server.holder == "dead"
            wall.ahead_seconds -= 3600
            await until(two.acquired.is_set, "taken over", seconds=settings.lease_seconds + 20)
            assert server.holder == "two"


async def test_lease_that_is_deleted_is_free() -> None:
    async with leading(KEPT) as (server, peer, cluster, one, _), candidate(cluster, "two", KEPT) as (two, _):
        seen = len(peer.requests) + 4
        await until(lambda: len(peer.requests) > seen, "seen by both")
        server.broken, server.lease = True, None
        await one.release()
        server.broken = False
        await until(two.acquired.is_set, "the other leads")


async def test_renewal_counts_from_when_it_was_sent() -> None:
    """The answer may have lain there while we were held up, and the lease may be another's by now."""
    server, seconds = Server(), [0.0]

    def late(request: Request) -> Reply:
        if request.method != "GET":
            seconds[0] += KEPT.lease_seconds
        return server.answer(request)

    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = late
        async with candidate(cluster, "one", KEPT, clock=lambda: seconds[0]) as (one, _):
            await until(one.acquired.is_set, "it leads")
            assert not one.holds
