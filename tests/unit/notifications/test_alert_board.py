"""What Alertmanagers get, and when."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from tests.unit.cluster.peer import Answer, Peer, run, until
from tests.unit.notifications.noticing import EARLIER, NOW, make_notice
from webhook.notifications.alert_board import AlertBoard
from webhook.notifications.notice import NoticeKind
from webhook.notifications.poster import Poster
from webhook.notifications.settings import ReceiverSettings
from webhook.telemetry.notifications import NotificationMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


class Board:
    """A board in front of peers, by a clock that stands still."""

    def __init__(self, *peers: Peer, **options: Any) -> None:
        self.registry = CollectorRegistry()
        self.now = NOW
        self.leads = True
        self.board = AlertBoard(
            [Poster(f"{peer.url}/api/v2/alerts", ReceiverSettings()) for peer in peers],
            "prod",
            NotificationMetrics(self.registry),
            leads=lambda: self.leads,
            now=lambda: self.now,
            random=lambda: 0.999,
            **options,
        )

    def sample(self, name: str) -> float | None:
        labels = {"sink": "alertmanager"}
        return self.registry.get_sample_value(f"device_taint_webhook_notifications_{name}", labels)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[AlertBoard]:
        task = asyncio.create_task(self.board.run())
        try:
            yield self.board
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@contextlib.asynccontextmanager
async def taking() -> AsyncIterator[Peer]:
    """An Alertmanager that takes everything."""
    async with Peer() as peer:
        peer.otherwise = lambda _: Answer({})
        yield peer


def alerts_of(peer: Peer) -> list[tuple[str, str]]:
    """Name of the alert and its end, of every alert of every request."""
    return [(each["labels"]["alertname"], each["endsAt"]) for request in peer.requests for each in request.json]


def test_each_alertmanager_gets_each_alert_at_once() -> None:
    async def test() -> None:
        async with taking() as one, taking() as other:
            board = Board(one, other)
            async with board.running() as running:
                running.put(make_notice())
                for peer in (one, other):
                    await until(lambda peer=peer: len(alerts_of(peer)) == 1, "an alert")  # type: ignore[misc]
                    assert alerts_of(peer) == [("DeviceTaintRuleStopped", "2026-06-01T12:04:00Z")]
                    assert {request.path for request in peer.requests} == {"/api/v2/alerts"}
                await until(lambda: board.sample("sent_total") == 2, "both counted")

    run(test())


def test_what_lasts_is_sent_again_and_what_ended_once() -> None:
    async def test() -> None:
        async with taking() as peer:
            board = Board(peer, resend_seconds=0.05)
            async with board.running() as running:
                running.put(make_notice())
                await until(lambda: len(alerts_of(peer)) >= 3, "sent again")
                running.put(make_notice(ended=NOW))
                await until(lambda: running.unsent == 0, "the end is sent")
                ended = ("DeviceTaintRuleStopped", "2026-06-01T12:00:00Z")
                await until(lambda: alerts_of(peer)[-1] == ended, "resolved")
                await asyncio.sleep(0.2)
                assert alerts_of(peer).count(ended) == 1

    run(test())


def test_an_alertmanager_that_was_away_gets_what_holds_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with taking() as there, taking() as away:
            await away.stop()
            board = Board(there, away)
            async with board.running() as running:
                running.put(make_notice())
                await until(lambda: bool(alerts_of(there)), "the other one has it")
                await until(lambda: (board.sample("failures_total") or 0) >= 1, "a failure")
                assert board.sample("waiting") == 1
                await away.start()
                await until(lambda: bool(alerts_of(away)), "it is back")
                await until(lambda: board.sample("waiting") == 0, "all have it")

    with caplog.at_level(logging.WARNING, logger="webhook"):
        run(test())
    assert {record.getMessage() for record in caplog.records} == {"alerts not sent"}


def test_many_alerts_come_in_several_requests() -> None:
    async def test() -> None:
        async with taking() as peer:
            board = Board(peer)
            for number in range(150):
                board.board.put(make_notice(name=f"r{number}"))
            async with board.running():
                await until(lambda: len(alerts_of(peer)) == 150, "all of them")
            assert [len(request.json) for request in peer.requests] == [64, 64, 22]

    run(test())


def test_alerts_beyond_the_most_are_dropped_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with taking() as peer:
            board = Board(peer, alerts_most=2)
            for number in range(5):
                board.board.put(make_notice(name=f"r{number}"))
            assert board.sample("dropped_total") == 3
            board.board.put(make_notice(name="r0", text="another text"))
            assert board.sample("dropped_total") == 3

    with caplog.at_level(logging.WARNING, logger="webhook"):
        run(test())
    assert [record.getMessage() for record in caplog.records] == ["notifications dropped"]


def test_what_happened_once_is_no_alert_after_a_while() -> None:
    async def test() -> None:
        async with taking() as peer:
            board = Board(peer, resend_seconds=0.02)
            async with board.running() as running:
                running.put(make_notice(NoticeKind.RELEASED))
                await until(lambda: len(alerts_of(peer)) >= 2, "while it is news")
                assert set(alerts_of(peer)) == {("DeviceTaintRuleReleased", "2026-06-01T12:05:00Z")}
                board.now = EARLIER + timedelta(minutes=16)
                await asyncio.sleep(0.1)
                sent = len(alerts_of(peer))
                await asyncio.sleep(0.2)
                assert len(alerts_of(peer)) == sent

    run(test())


def test_a_process_without_the_lease_sends_nothing() -> None:
    async def test() -> None:
        async with taking() as peer:
            board = Board(peer, resend_seconds=0.02)
            board.leads = False
            async with board.running() as running:
                running.put(make_notice())
                await asyncio.sleep(0.2)
                assert peer.requests == []
                board.leads = True
                await until(lambda: bool(peer.requests), "it leads")

    run(test())
