"""Lists that come as the beginning of a watch, and servers that do not do that."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.unit.cluster.api_peer import list_end
from tests.unit.cluster.cache.following import EXPIRED, QUICK, bookmark, event, following, page, thing
from tests.unit.cluster.peer import Answer, Lines, Reply, run, status, until

STREAM = replace(QUICK, stream=True)
REFUSED = Answer(status(422, "sendInitialEvents: Forbidden", reason="Invalid"), 422)


def test_list_and_what_comes_after_it_are_one_request() -> None:
    async def test() -> None:
        begun = Lines([event("ADDED", thing("a", 3)), event("ADDED", thing("b", 4)), list_end(7)])
        async with following(watches=(begun,), settings=STREAM, field_selector="x=y") as bench:
            await bench.settles("a@3", "b@4")
            await bench.peer.say(event("MODIFIED", thing("a", 8)), event("DELETED", thing("b", 9)))
            await bench.settles("a@8")
            [watched] = bench.peer.requests
            query = dict(watched.query)
            assert 300 <= int(query.pop("timeoutSeconds")) <= 600
            assert query == {
                "watch": "true",
                "sendInitialEvents": "true",
                "resourceVersionMatch": "NotOlderThan",
                "allowWatchBookmarks": "true",
                "fieldSelector": "x=y",
            }
            assert watched.headers["accept-encoding"] == "identity"
            assert bench.count("reflector_lists_total") == 1
            assert bench.reflector.lost_seconds == 0

    run(test())


def test_nothing_is_known_before_the_list_has_ended() -> None:
    async def test() -> None:
        async with following(watches=(Lines([event("ADDED", thing("a", 3))]),), settings=STREAM) as bench:
            await bench.peer.say(event("ADDED", thing("b", 4)), event("MODIFIED", thing("a", 5)))
            await bench.peer.say(event("DELETED", thing("b", 6)), event("SPARKLED", {}))
            await until(lambda: bench.reflector.staleness_seconds < 60, "a sign of life")
            assert (bench.items, bench.reflector.synced.is_set()) == ({}, False)
            await bench.peer.say(list_end(6))
            await bench.settles("a@5")
            assert bench.told == [("-", "a@5")]

    run(test())


def test_stream_that_ends_in_order_is_followed_by_a_watch_from_its_version() -> None:
    async def test() -> None:
        begun = Lines([event("ADDED", thing("a", 3)), list_end(7), bookmark(9)], "end")
        async with following(watches=(begun,), settings=STREAM) as bench:
            await bench.settles("a@3")
            await until(lambda: len(bench.peer.watched) == 2, "a watch")
            assert bench.peer.watched[1].query["resourceVersion"] == "9"
            assert "sendInitialEvents" not in bench.peer.watched[1].query
            assert bench.count("reflector_errors_total") == 0

    run(test())


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(REFUSED, id="422"),
        pytest.param(Answer(status(400, "unknown parameter"), 400), id="400"),
        pytest.param(Lines([event("ADDED", thing("a", 1)), bookmark(5)]), id="never heard of it"),
    ],
)
def test_server_that_does_not_stream_is_asked_for_pages_and_not_again_for_a_stream(refusal: Reply) -> None:
    async def test() -> None:
        pages = page(5, thing("a", 1), more="x"), page(5, thing("b", 2)), page(9, thing("b", 8))
        async with following(*pages, watches=(refusal, Lines([EXPIRED])), settings=STREAM) as bench:
            await bench.settles("b@8")
            assert ["sendInitialEvents" in request.query for request in bench.peer.watched[:2]] == [True, False]
            await until(lambda: len(bench.peer.watched) == 3, "a watch")
            assert bench.peer.watched[2].query["resourceVersion"] == "9"
            assert bench.count("reflector_errors_total") == 1, "the version that expired, not the refusal"

    run(test())


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(Answer(status(500, "etcd is away"), 500), id="500"),
        pytest.param(Answer(status(403, "things is forbidden"), 403), id="403"),
        pytest.param(Answer(status(429, "busy"), 429), id="429"),
        pytest.param(Lines([event("ADDED", thing("x", 3))], "end"), id="ends before the list"),
        pytest.param(Lines([event("ADDED", thing("x", 3)), event("ADDED", thing("y", 4))[:-9]], "cut"), id="cut"),
        pytest.param(Lines([event("ADDED", thing("x", 3)), b"}{\n"]), id="not JSON"),
        pytest.param(Lines([event("ADDED", thing("x", 3)), EXPIRED]), id="expired"),
    ],
)
def test_stream_that_fails_is_tried_again_and_tells_nothing(failure: Reply) -> None:
    async def test() -> None:
        begun = Lines([event("ADDED", thing("a", 3)), list_end(7)])
        async with following(watches=(failure, begun), settings=STREAM) as bench:
            await bench.settles("a@3")
            assert bench.told == [("-", "a@3")]
            assert bench.peer.lists == []
            assert bench.count("reflector_errors_total") == 1

    run(test())


def test_stream_that_breaks_after_the_list_is_resumed_without_another_list() -> None:
    async def test() -> None:
        begun = Lines([event("ADDED", thing("a", 3)), list_end(7), event("ADDED", thing("b", 8))], "cut")
        async with following(watches=(begun, Lines([event("DELETED", thing("a", 9))])), settings=STREAM) as bench:
            await bench.settles("b@8")
            assert bench.peer.watched[1].query["resourceVersion"] == "8"
            assert "sendInitialEvents" not in bench.peer.watched[1].query
            assert bench.count("reflector_lists_total") == 1

    run(test())


def test_stream_after_an_expired_watch_tells_the_difference_and_keeps_what_is_the_same() -> None:
    async def test() -> None:
        first = Lines(
            [event("ADDED", thing(name, 3)) for name in ("same", "changed", "deleted")] + [list_end(7), EXPIRED]
        )
        second = Lines(
            [event("ADDED", thing("same", 3)), event("ADDED", thing("changed", 8)), event("ADDED", thing("new", 9))]
        )
        async with following(watches=(first, second), settings=STREAM) as bench:
            await bench.settles("same@3", "changed@3", "deleted@3")
            same = bench.reflector.items["same"]
            await until(lambda: len(bench.peer.watched) == 2, "another stream")
            assert bench.reflector.lost_seconds == math.inf
            await bench.peer.say(list_end(9))
            await bench.settles("same@3", "changed@8", "new@9")
            assert bench.reflector.lost_seconds == 0
            assert bench.told[3:] == [("deleted@3", "-"), ("changed@3", "changed@8"), ("-", "new@9")]
            assert bench.reflector.items["same"] is same

    run(test())
