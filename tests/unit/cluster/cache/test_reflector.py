"""The reflector against every way in which a list or a watch can go wrong."""

from __future__ import annotations

import asyncio
import logging
import math

import pytest

from tests.unit.cluster.cache.following import EXPIRED, PartialObject, bookmark, event, following, page, thing
from tests.unit.cluster.peer import Answer, Drop, Lines, Peer, Reply, Silence, cluster_of, status, until
from webhook.cluster.cache.discovery import FixedCollection
from webhook.cluster.cache.listwatch import is_newer
from webhook.cluster.cache.reflector import Reflector
from webhook.cluster.settings import ReflectorSettings


async def test_list_in_pages_then_watch_from_its_version() -> None:
    async with following(
        page(7, thing("a", 1), thing("b", 2), more="next one/2"), page(7, thing("c", 3)), field_selector="x=y"
    ) as bench:
        await bench.settles("a@1", "b@2", "c@3")
        await until(lambda: len(bench.peer.watched) == 1, "a watch")
        first, second = bench.peer.lists
        assert first.path == "/apis/example.com/v1/things"
        assert first.query == {"limit": "5000", "fieldSelector": "x=y"}
        assert "gzip" in first.headers["accept-encoding"]
        assert second.query == {**first.query, "continue": "next one/2"}
        assert bench.peer.watched[0].headers["accept-encoding"] == "identity"
        query = dict(bench.peer.watched[0].query)
        assert 300 <= int(query.pop("timeoutSeconds")) <= 600
        assert query == {"watch": "true", "resourceVersion": "7", "allowWatchBookmarks": "true", "fieldSelector": "x=y"}


async def test_events_are_told_as_old_and_new() -> None:
    async with following(page(5, thing("a", 1))) as bench:
        await bench.peer.say(
            event("MODIFIED", thing("a", 6)), event("ADDED", thing("b", 7)), event("DELETED", thing("a", 8))
        )
        await bench.settles("b@7")
        assert bench.told == [("-", "a@1"), ("a@1", "a@6"), ("-", "b@7"), ("a@6", "-")]


async def test_each_line_counts_however_it_is_cut_into_packets() -> None:
    async with following(page(5)) as bench:
        lines = event("ADDED", thing("ä" * 40, 6)) + event("ADDED", thing("b", 7)) + event("ADDED", thing("c", 8))
        for start in range(0, len(lines), 7):
            await bench.peer.say(lines[start : start + 7])
        await bench.settles("ä" * 40 + "@6", "b@7", "c@8")


@pytest.mark.parametrize(
    "then", [pytest.param("end", id="the answer ends"), pytest.param("cut", id="the connection breaks")]
)
async def test_half_a_line_at_the_end_is_not_an_event_and_loses_none(then: str) -> None:
    half = event("MODIFIED", thing("a", 6))[:-20]
    cut = Lines([event("ADDED", thing("b", 6)), half], then)
    again = Lines([event("MODIFIED", thing("a", 7))])
    async with following(page(5, thing("a", 1)), watches=(cut, again)) as bench:
        await bench.settles("a@7", "b@6")
        assert [request.query["resourceVersion"] for request in bench.peer.watched] == ["5", "6"]
        assert bench.told == [("-", "a@1"), ("-", "b@6"), ("a@1", "a@7")]


async def test_watch_that_ends_in_order_is_taken_up_where_it_was() -> None:
    first = Lines([event("ADDED", thing("a", 6)), bookmark(20)], "end")
    second = Lines([event("ADDED", thing("b", 21))], "end")
    async with following(page(5), watches=(first, second)) as bench:
        await bench.settles("a@6", "b@21")
        await until(lambda: len(bench.peer.watched) == 3, "three watches")
        assert [request.query["resourceVersion"] for request in bench.peer.watched] == ["5", "20", "21"]
        assert len(bench.peer.lists) == 1
        assert bench.count("reflector_lists_total") == 1
        assert bench.count("reflector_errors_total") == 0


@pytest.mark.parametrize(
    "expired",
    [
        pytest.param(Lines([EXPIRED]), id="as an event"),
        pytest.param(Lines([event("ADDED", thing("z", 6)), EXPIRED]), id="as an event after others"),
        pytest.param(Answer(status(410, "too old"), 410), id="as the answer"),
    ],
)
async def test_expired_watch_brings_the_difference(expired: Reply) -> None:
    before = page(5, thing("same", 1), thing("changed", 2), thing("deleted", 3), thing("replaced", 4, uid="one"))
    after = page(50, thing("same", 1), thing("changed", 30), thing("new", 31), thing("replaced", 32, uid="two"))
    patient = ReflectorSettings(backoff_seconds=30.0)  # it is nobody's fault, so there is nothing to wait for
    async with following(before, after, watches=(expired,), settings=patient) as bench:
        await bench.settles("same@1", "changed@30", "new@31", "replaced@32")
        told = [each for each in bench.told[4:] if "z@6" not in each]
        assert told == [
            ("deleted@3", "-"),
            ("changed@2", "changed@30"),
            ("-", "new@31"),
            ("replaced@4", "-"),
            ("-", "replaced@32"),
        ]
        await until(lambda: len(bench.peer.watched) == 2, "a second watch")
        assert bench.peer.watched[1].query["resourceVersion"] == "50"
        assert bench.count("reflector_lists_total") == 2
        assert bench.count("reflector_errors_total") == 1


async def test_expired_page_begins_again_in_one_piece() -> None:
    async with following(
        page(5, thing("a", 1), more="token"),
        Answer(status(410, "The provided continue parameter is too old", reason="Expired"), 410),
        page(9, thing("b", 2)),
    ) as bench:
        await bench.settles("b@2")
        assert [request.query for request in bench.peer.lists] == [
            {"limit": "5000"},
            {"limit": "5000", "continue": "token"},
            {},
        ]


async def test_what_was_heard_before_changes_nothing() -> None:
    async with following(page(5, thing("a", 4), thing("b", 3))) as bench:
        await bench.peer.say(
            event("ADDED", thing("a", 4)),  # again
            event("MODIFIED", thing("b", 9)),
            event("MODIFIED", thing("b", 8)),  # late
            event("MODIFIED", thing("b", 9)),  # again
            event("DELETED", thing("b", 7)),  # late: of an object before this one
            event("DELETED", thing("a", 10)),
            event("DELETED", thing("a", 10)),  # again
            event("MODIFIED", thing("a", 6)),  # late: it is deleted
            event("ADDED", thing("c", 100)),  # more digits
            event("ADDED", thing("a", 101, uid="next")),
        )
        await bench.settles("a@101", "b@9", "c@100")
        assert bench.told[2:] == [("b@3", "b@9"), ("a@4", "-"), ("-", "c@100"), ("-", "a@101")]


async def test_deleted_objects_are_not_remembered_without_end() -> None:
    async with following(page(5)) as bench:
        await bench.peer.say(*(event("DELETED", thing(f"t{number}", 10 + number)) for number in range(1500)))
        await bench.peer.say(event("ADDED", thing("a", 5000)))
        await bench.settles("a@5000")
        assert len(bench.reflector._store._tombstones) == 1024


async def test_events_of_other_types_are_ignored() -> None:
    async with following(page(5)) as bench:
        await bench.peer.say(
            event("SPARKLED", {"anything": 1}), b"\n", bookmark(8), event("ADDED", thing("a", 9, team="ml"))
        )
        await bench.settles("a@9")
        assert bench.reflector.items["a"].metadata.labels == {"team": "ml"}
        assert len(bench.peer.watched) == 1


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"not JSON at all\n", id="not JSON"),
        pytest.param(b'{"type": "ADDED", "object": {"metadata": {"name": 5}}}\n', id="a name that is a number"),
        pytest.param(b'{"type": "ERROR", "object": []}\n', id="an error that says nothing"),
    ],
)
async def test_line_that_cannot_be_read_leads_to_a_list(line: bytes) -> None:
    watch = Lines([event("ADDED", thing("a", 6)), line, event("ADDED", thing("b", 7))])
    async with following(page(5), page(9, thing("a", 6), thing("c", 8)), watches=(watch,)) as bench:
        await bench.settles("a@6", "c@8")
        assert bench.count("reflector_errors_total") == 1


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(Drop(), id="closed without an answer"),
        pytest.param(Answer(status(500, "etcd is away"), 500), id="500"),
        pytest.param(Answer(status(403, "things is forbidden"), 403), id="403"),
        pytest.param(Answer(status(404, "the server could not find it"), 404), id="404"),
        pytest.param(Answer(b"<html>502 Bad Gateway</html>", 502), id="502 of a proxy"),
        pytest.param(Answer(b"<html>welcome</html>"), id="200 and not JSON"),
        pytest.param(Answer({"items": []}), id="200 and no list"),
        pytest.param(page(4, thing("x", 1), more="more"), id="only the first of two pages"),
    ],
)
async def test_failed_list_is_tried_again_and_is_not_synced(failure: Reply) -> None:
    async with following(failure, Drop(), Drop()) as bench:
        await until(lambda: len(bench.peer.lists) >= 3, "three attempts")
        assert not bench.reflector.synced.is_set()
        assert bench.items == {}
        bench.peer.answers.clear()
        bench.peer.otherwise = lambda _: page(5, thing("a", 1))
        await bench.settles("a@1")


async def test_busy_server_is_left_alone_for_as_long_as_it_asks_and_not_asked_for_a_list() -> None:
    busy = Answer(status(429, "too many requests"), 429, {"Retry-After": "1"})
    patient = ReflectorSettings(backoff_seconds=0.004, backoff_most_seconds=30.0)
    loop = asyncio.get_running_loop()
    began = loop.time()  # before the wait begins, however late this task has its turn
    async with following(page(5), watches=(busy, Lines([event("ADDED", thing("a", 6))])), settings=patient) as bench:
        await bench.settles("a@6")
        assert 0.9 < loop.time() - began < 20
        assert [request.query["resourceVersion"] for request in bench.peer.watched] == ["5", "5"]
        assert len(bench.peer.lists) == 1


async def test_waits_begin_anew_after_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "webhook.cluster")

    failing = Lines([event("ADDED", thing("a", 6)), event("ERROR", status(500, "etcd is slow"))])
    failures = [Answer(status(503, "starting"), 503) for _ in range(2)]
    again = Lines([event("ADDED", thing("b", 7))])
    async with following(*failures, page(5), watches=(failing, again)) as bench:
        await bench.settles("a@6", "b@7")
        told = [(r.levelno, r.__dict__["attempt"]) for r in caplog.records if r.message == "list or watch failed"]
        assert told == [(logging.WARNING, 1), (logging.DEBUG, 2), (logging.WARNING, 1)]


async def test_outage_that_lasts_is_logged_every_five_minutes(caplog: pytest.LogCaptureFixture) -> None:
    """M7: the runbook looks at the log of the last hour. A minute passes between two attempts here."""
    caplog.set_level(logging.DEBUG, "webhook.cluster")

    def failures() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.message == "list or watch failed"]

    away = [Answer(status(503, "starting"), 503) for _ in range(12)]
    async with following(*away, page(5, thing("a", 1)), clock=lambda: 60.0 * len(failures())) as bench:
        await bench.settles("a@1")
        assert bench.reflector.error == ""
    told = [vars(record) for record in failures() if record.levelno == logging.WARNING]
    assert [(each["attempt"], each["sinceSeconds"]) for each in told] == [(1, 0), (6, 300), (11, 600)]


async def test_server_restored_from_a_backup_is_believed() -> None:
    """Its versions begin again at an earlier one."""
    watch = Lines([event("DELETED", thing("a", 101)), EXPIRED])
    async with following(page(100, thing("a", 50), thing("b", 60)), page(5, thing("b", 4)), watches=(watch,)) as bench:
        await bench.settles("b@4")
        await bench.peer.say(event("ADDED", thing("a", 6)), event("MODIFIED", thing("b", 7)))
        await bench.settles("a@6", "b@7")


async def test_silent_watch_is_cut_and_listed_again() -> None:
    settings = ReflectorSettings(silence_seconds=1.0, backoff_seconds=0.001)
    async with following(
        page(5, thing("a", 1)), page(9, thing("a", 8)), watches=(Lines([bookmark(6)]),), settings=settings
    ) as bench:
        bench.peer.otherwise = lambda _: page(9, thing("a", 8))  # the next watch is silent too
        await bench.settles("a@8")
        await until(lambda: len(bench.peer.watched) >= 2, "another watch")
        assert bench.count("reflector_errors_total") == 0, "on some servers an idle resource is silent"


async def test_watch_without_an_answer_is_a_failure() -> None:
    settings = ReflectorSettings(silence_seconds=1.0, backoff_seconds=0.001)
    async with following(page(5), page(9, thing("a", 8)), watches=(Silence(),), settings=settings) as bench:
        bench.peer.otherwise = lambda _: page(9, thing("a", 8))  # the next watch is silent too
        await bench.settles("a@8")
        assert bench.count("reflector_errors_total") == 1


async def test_watch_that_ends_at_once_is_not_opened_in_a_circle() -> None:
    settings = ReflectorSettings(backoff_seconds=0.2, short_watch_seconds=1.0)
    loop = asyncio.get_running_loop()
    began = loop.time()  # before the wait begins, however late this task has its turn
    async with following(page(5), page(6), watches=(Lines([], "end"), Lines([], "end")), settings=settings) as bench:
        await bench.settles()
        await until(lambda: len(bench.peer.watched) >= 2, "the second watch")
        assert loop.time() - began > 0.1


async def test_items_stay_while_the_server_is_away_and_one_list_brings_the_present() -> None:
    now = [1000.0]
    async with following(page(5, thing("a", 1), thing("b", 2)), clock=lambda: now[0]) as bench:
        assert bench.reflector.staleness_seconds == math.inf
        await bench.settles("a@1", "b@2")
        await until(lambda: len(bench.peer.watched) == 1, "a watch")
        await bench.peer.stop()
        await until(lambda: (bench.count("reflector_errors_total") or 0) >= 8, "failed attempts, also of lists")
        now[0] += 75
        assert bench.reflector.staleness_seconds == 75
        assert bench.count("reflector_staleness_seconds") == 75
        assert bench.items == {"a": "1", "b": "2"}
        assert bench.reflector.synced.is_set()
        bench.peer.answers.append(page(9, thing("b", 8)))
        await bench.peer.start()
        await bench.settles("b@8")
        assert bench.reflector.staleness_seconds == 0
        assert len(bench.peer.lists) == 2


async def test_synced_comes_after_the_first_list_was_told() -> None:
    async with following(page(5, thing("a", 1), more="m"), page(5, thing("b", 2))) as bench:
        await bench.reflector.synced.wait()
        assert bench.told == [("-", "a@1"), ("-", "b@2")]


@pytest.mark.parametrize(
    ("answers", "watches"),
    [
        pytest.param((Silence(),), (), id="in a list that hangs"),
        pytest.param((page(1),), (Silence(),), id="in a watch without an answer"),
        pytest.param((page(1),), (Lines(),), id="in a silent watch"),
        pytest.param((Drop(),), (), id="in a wait"),
    ],
)
async def test_run_ends_at_once_when_cancelled(answers: tuple[Reply, ...], watches: tuple[Reply, ...]) -> None:
    slow = ReflectorSettings(backoff_seconds=30.0)
    async with Peer() as peer, cluster_of(peer, timeout_seconds=30) as cluster:
        peer.answers.extend(answers)
        peer.watches.extend(watches)
        things = FixedCollection("", "v1", "things")
        reflector = Reflector(cluster, things, PartialObject, random=lambda: 0.0, settings=slow)
        task = asyncio.create_task(reflector.run())
        await until(lambda: len(peer.requests) >= len(answers) + len(watches), "the requests")
        task.cancel()
        async with asyncio.timeout(20):  # less than what it waits for
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_subscriber_that_fails_ends_the_run() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.answers.append(page(1, thing("a", 1)))
        reflector = Reflector(cluster, FixedCollection("", "v1", "things"), PartialObject, random=lambda: 0.0)

        def fail(*_: object) -> None:
            raise RuntimeError("a fault of ours")

        reflector.subscribe(fail)
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await reflector.run()


async def test_metadata_only_is_asked_for_in_list_and_watch() -> None:
    async with following(page(5), metadata_only=True) as bench:
        await until(lambda: len(bench.peer.watched) == 1, "a watch")
        [listed], [watched] = bench.peer.lists, bench.peer.watched
        assert listed.headers["accept"].startswith("application/json;as=PartialObjectMetadataList;")
        assert watched.headers["accept"].startswith("application/json;as=PartialObjectMetadata;")


@pytest.mark.parametrize(
    ("version", "than", "newer"),
    [
        ("2", "1", True),
        ("1", "1", False),
        ("1", "2", False),
        ("10", "9", True),
        ("9", "10", False),
        ("1", "", True),
        ("", "", False),
        ("b", "a", True),
        ("a", "b", True),
        ("a", "a", False),
    ],
)
def test_versions_are_numbers_or_else_only_differ(version: str, than: str, *, newer: bool) -> None:
    assert is_newer(version, than) is newer
