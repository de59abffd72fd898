"""Watches that break: resumed where they were, trusted again only once they have caught up, listed if that fails."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import pytest

from tests.unit.cluster.cache.following import (
    EXPIRED,
    QUICK,
    Bench,
    PartialObject,
    bookmark,
    event,
    following,
    page,
    thing,
    waits_of,
)
from tests.unit.cluster.peer import Answer, Drop, Lines, Peer, Reply, cluster_of, status, until
from tests.unit.running import running
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.cache.reflector import Reflector, WatchGap
from webhook.cluster.client.errors import NotFound

AWAY = Answer(status(503, "starting"), 503)
AHEAD = "Too large resource version: 5, current: 3"
ONE = event("ADDED", thing("one", 6))
TWO = event("ADDED", thing("two", 7))


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(Drop(), id="closed without an answer"),
        pytest.param(Answer(status(500, "etcd is away"), 500), id="500"),
        pytest.param(Answer(b"<html>502 Bad Gateway</html>", 502), id="502 of a proxy"),
        pytest.param(Answer(status(504, "timeout"), 504), id="504"),
        pytest.param(Answer(status(408, "request timeout"), 408), id="408"),
        pytest.param(Answer(status(401, "Unauthorized"), 401), id="401"),
        pytest.param(Answer(status(403, "RBAC: not found"), 403), id="403"),
        pytest.param(Lines([], "cut"), id="cut after nothing"),
        pytest.param(Lines([event("ERROR", status(500, "etcd is slow"))]), id="500 as an event"),
    ],
)
async def test_watch_that_fails_is_resumed_from_the_last_version(failure: Reply) -> None:
    watches = (Lines([ONE], "cut"), failure, Lines([TWO]))
    async with following(page(5), watches=watches) as bench:
        await bench.settles("one@6", "two@7")
        assert [request.query["resourceVersion"] for request in bench.peer.watched] == ["5", "6", "6"]
        assert len(bench.peer.lists) == 1
        assert bench.count("reflector_lists_total") == 1


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(Answer(status(410, "too old"), 410), id="410"),
        pytest.param(Answer(status(404, "the server could not find it"), 404), id="404"),
        pytest.param(Answer(status(400, "invalid resource version"), 400), id="400"),
        pytest.param(Answer(status(504, AHEAD), 504), id="a version that is too large, by its message"),
        pytest.param(
            Answer(status(504, "x", details={"causes": [{"reason": "ResourceVersionTooLarge"}]}), 504),
            id="a version that is too large, by its cause",
        ),
        pytest.param(Lines([b"}{\n"]), id="not JSON"),
    ],
)
async def test_watch_that_cannot_go_on_is_followed_by_a_list(failure: Reply) -> None:
    async with following(page(5, thing("a", 1)), page(9, thing("b", 8)), watches=(failure,)) as bench:
        await bench.settles("b@8")
        assert bench.told == [("-", "a@1"), ("a@1", "-"), ("-", "b@8")]
        await until(lambda: len(bench.peer.watched) == 2, "a watch")
        assert bench.peer.watched[1].query["resourceVersion"] == "9"


async def test_list_follows_after_five_watches_in_a_row_without_a_line() -> None:
    watches = [AWAY for _ in range(QUICK.resume_attempts)]
    async with following(page(5), page(9, thing("b", 8)), watches=(*watches, AWAY, Lines([ONE]))) as bench:
        await bench.settles("b@8", "one@6")
        versions = [request.query["resourceVersion"] for request in bench.peer.watched]
        assert versions == ["5", "5", "5", "5", "5", "9", "9"], "the list begins a new row"
        assert len(bench.peer.lists) == 2


@pytest.mark.parametrize("line", [bookmark(6), event("ADDED", thing("one", 6))], ids=["bookmark", "event"])
async def test_line_in_between_begins_a_new_row_of_failures(line: bytes) -> None:
    row: list[Reply] = [AWAY for _ in range(QUICK.resume_attempts - 1)]
    watches = (*row, Lines([line], "cut"), *row[:-1], Lines([TWO]))
    async with following(page(5), watches=watches) as bench:
        await until(lambda: "two" in bench.items, "the last watch")
        assert len(bench.peer.lists) == 1


async def test_busy_server_is_not_asked_for_a_list_however_long_it_is_busy() -> None:
    busy = [Answer(status(429, "too many requests"), 429) for _ in range(2 * QUICK.resume_attempts)]
    async with following(page(5), watches=(*busy, Lines([ONE]))) as bench:
        await bench.settles("one@6")
        assert len(bench.peer.lists) == 1


async def test_list_that_fails_is_not_taken_for_one_that_can_be_resumed() -> None:
    async with following(page(5, thing("a", 1)), Drop(), page(9, thing("b", 8)), watches=(Lines([EXPIRED]),)) as bench:
        await bench.settles("b@8")
        assert len(bench.peer.lists) == 3
        await until(lambda: len(bench.peer.watched) == 2, "a watch")


async def test_expired_version_is_listed_at_once_but_not_in_a_circle(caplog: pytest.LogCaptureFixture) -> None:
    """Waits are for a server that is away, also when it was away before; the second time in a row is no accident."""
    caplog.set_level(logging.DEBUG, "webhook.cluster")

    patient = replace(QUICK, backoff_seconds=0.008, backoff_most_seconds=30.0)
    expired = Lines([EXPIRED])
    watches = (AWAY, expired, expired, Lines([ONE, EXPIRED]))
    async with following(page(5), *[page(9) for _ in range(3)], watches=watches, settings=patient) as bench:
        await until(lambda: len(bench.peer.watched) == 5, "all of them")
    failures = [vars(each) for each in caplog.records if each.message == "list or watch failed"]
    assert [each["delaySeconds"] for each in failures] == [0.006, 0.0, 0.024, 0.0]


async def broken(bench: Bench) -> None:
    """A watch that was current breaks, and the next one is open."""
    await bench.peer.say(bookmark(6))
    await until(lambda: bench.reflector._version == "6", "the bookmark")
    assert bench.reflector.lost_seconds == 0
    assert bench.peer._open_watch is not None
    bench.peer._open_watch.transport.abort()
    await until(lambda: len(bench.peer.watched) == 2, "the next watch")
    await until(lambda: bench.reflector._gap.watching, "its beginning")


async def test_resumed_watch_is_current_after_a_bookmark_and_not_after_an_event() -> None:
    now = [1000.0]
    async with following(page(5), clock=lambda: now[0]) as bench:
        await broken(bench)
        now[0] += 0.5
        assert bench.reflector.lost_seconds == 0.5
        await bench.peer.say(TWO)
        await bench.settles("two@7")
        assert bench.reflector.lost_seconds == 0.5, "there may be more"
        await bench.peer.say(bookmark(8))
        await until(lambda: bench.reflector.lost_seconds == 0, "all has been read")


async def test_resumed_watch_is_current_after_a_second() -> None:
    now = [1000.0]
    async with following(page(5), clock=lambda: now[0]) as bench:
        await broken(bench)
        assert bench.reflector.error == "", "it is open"
        now[0] += 0.99
        assert bench.reflector.lost_seconds == pytest.approx(0.99)
        now[0] += 0.01
        assert bench.reflector.lost_seconds == 0


def test_gap_begins_anew_if_the_watch_had_caught_up() -> None:
    now = [0.0]
    gap = WatchGap(lambda: now[0], 1.0)
    assert (gap.seconds, gap.watching) == (0.0, False)
    gap.opened()
    now[0] = 5.0
    gap.closed()
    now[0] = 7.0
    assert (gap.seconds, gap.watching) == (2.0, False)
    gap.opened()
    assert (gap.seconds, gap.watching) == (2.0, True)
    now[0] = 7.5
    gap.closed()
    assert gap.seconds == 2.5, "it was not open for long enough"
    gap.begin(6.0)
    assert gap.seconds == 2.5
    gap.begin(-math.inf)
    assert gap.seconds == math.inf
    gap.opened()
    now[0] = 8.5
    assert gap.seconds == 0
    gap.closed()
    now[0] = 9.0
    assert gap.seconds == 0.5
    gap.end()
    assert gap.seconds == 0


class Fickle(FixedCollection):
    """Served, or not."""

    served = True

    async def path(self) -> str:
        if not self.served:
            raise NotFound("things are not served", code=404)
        return await super().path()


@pytest.mark.parametrize("optional", [True, False])
async def test_objects_of_a_resource_that_is_served_no_longer_are_dropped_if_it_is_optional(*, optional: bool) -> None:
    now = [1000.0]
    told: list[str] = []
    things = Fickle("example.com", "v1", "things")
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = lambda _: page(5, thing("a", 1))
        reflector = Reflector(
            cluster, things, PartialObject, random=lambda: 0.0, settings=QUICK, optional=optional, clock=lambda: now[0]
        )
        reflector.subscribe(lambda old, new: told.append(f"{old and old.key} {new and new.key}"))
        async with running(reflector.run()):

            async def attempts(more: int) -> None:
                before = reflector._fault.attempts
                await until(lambda: reflector._fault.attempts > before + more, "attempts")

            await until(lambda: len(peer.watched) == 1, "a watch")
            things.served = False
            await peer.say_on("/apis/example.com/v1/things", event("ERROR", status(404, "gone")))
            await until(lambda: reflector.unserved, "that it is not served")
            now[0] += 599.0
            await attempts(2)
            assert told == ["None a"]
            things.served = True
            await until(lambda: not reflector.unserved, "served again")
            things.served = False
            await peer.say_on("/apis/example.com/v1/things", event("ERROR", status(404, "gone")))
            await until(lambda: reflector.unserved, "that it is not served")
            now[0] += 599.0
            await attempts(2)
            assert told == ["None a"], "it was served in between"
            now[0] += 1.0
            await attempts(2)
            assert told == (["None a", "a None"] if optional else ["None a"])
            assert reflector.settled
            things.served = True
            await until(lambda: not reflector.unserved, "served again")
            assert [*reflector.items] == ["a"]


@pytest.mark.parametrize("optional", [True, False])
async def test_optional_resource_that_is_not_served_is_looked_for_ever_more_rarely(
    caplog: pytest.LogCaptureFixture, *, optional: bool
) -> None:
    """While objects are in doubt, as known from when it was served, it is looked for as after other failures."""
    often, rarely = [0.004, 0.008, 0.016, 0.016], [0.004, 0.008, 0.016, 0.032, 0.064, 0.064]

    caplog.set_level(logging.DEBUG, "webhook.cluster.cache.reflector")
    now = [1000.0]
    things = Fickle("example.com", "v1", "things")
    things.served = False
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = lambda _: page(5, thing("a", 1))
        settings = replace(QUICK, backoff_most_seconds=0.016, absent_most_seconds=0.064)
        reflector = Reflector(
            cluster,
            things,
            PartialObject,
            random=lambda: 0.0,
            settings=settings,
            optional=optional,
            clock=lambda: now[0],
        )
        async with running(reflector.run()):
            await until(lambda: len(waits_of(caplog, "things")) >= 6, "vain looks")
            assert waits_of(caplog, "things")[:6] == (rarely if optional else [*often, 0.016, 0.016])
            things.served = True
            await until(lambda: not reflector.unserved and len(peer.watched) == 1, "served again")
            caplog.clear()
            things.served = False
            await peer.say_on("/apis/example.com/v1/things", event("ERROR", status(404, "gone")))
            await until(lambda: len(waits_of(caplog, "things")) >= 6, "vain looks")
            assert max(waits_of(caplog, "things")) == often[-1]
            if optional:
                now[0] += 600.0
                await until(lambda: not reflector.items, "that objects are dropped")
                caplog.clear()
                await until(lambda: len(waits_of(caplog, "things")) >= 5, "vain looks")
                assert waits_of(caplog, "things")[-1] == 0.064
