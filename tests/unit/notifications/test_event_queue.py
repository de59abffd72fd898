"""What receivers of CloudEvents get."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from tests.unit.cluster.peer import Answer, Peer, Silence, run, until
from tests.unit.notifications.noticing import NOW, make_notice
from webhook.notifications.event_queue import EventQueue
from webhook.notifications.poster import Poster
from webhook.notifications.settings import ReceiverSettings
from webhook.telemetry.notifications import NotificationMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest


class Queue:
    """A queue in front of peers."""

    def __init__(self, *peers: Peer, **options: Any) -> None:
        self.registry = CollectorRegistry()
        self.leads = True
        self.queue = EventQueue(
            [Poster(f"{peer.url}/events", ReceiverSettings()) for peer in peers],
            "",
            NotificationMetrics(self.registry),
            leads=lambda: self.leads,
            random=lambda: 0.0,
            first_seconds=0.01,
            **options,
        )

    def sample(self, name: str) -> float | None:
        labels = {"sink": "cloudevents"}
        return self.registry.get_sample_value(f"device_taint_webhook_notifications_{name}", labels)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[EventQueue]:
        task = asyncio.create_task(self.queue.run())
        try:
            yield self.queue
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def taking(peer: Peer) -> Peer:
    peer.otherwise = lambda _: Answer(b"", 204)
    return peer


def names(peer: Peer) -> list[str]:
    return [request.json["data"]["rule"]["name"] for request in peer.requests]


def test_events_come_in_order_and_in_the_structured_mode() -> None:
    async def test() -> None:
        async with Peer() as peer:
            queue = Queue(taking(peer))
            async with queue.running() as running:
                for name in ("a", "b", "c"):
                    running.put(make_notice(name=name))
                await until(lambda: queue.sample("sent_total") == 3, "three events")
            assert names(peer) == ["a", "b", "c"]
            types = {request.headers["content-type"] for request in peer.requests}
            assert types == {"application/cloudevents+json; charset=utf-8"}

    run(test())


def test_an_event_is_sent_again_until_it_is_taken_and_before_the_next() -> None:
    async def test() -> None:
        async with Peer() as peer:
            queue = Queue(taking(peer))
            peer.answers.extend([Answer({}, 503)] * 3)
            async with queue.running() as running:
                running.put(make_notice(name="a"))
                running.put(make_notice(name="b"))
                await until(lambda: queue.sample("sent_total") == 2, "taken at last")
            assert names(peer) == ["a", "a", "a", "a", "b"]
            assert len({request.json["id"] for request in peer.requests}) == 2
            assert (queue.sample("failures_total"), queue.sample("dropped_total")) == (3, 0)

    run(test())


def test_an_event_that_is_refused_for_good_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Peer() as peer:
            queue = Queue(taking(peer))
            peer.answers.append(Answer({}, 400))
            async with queue.running() as running:
                running.put(make_notice(name="a"))
                running.put(make_notice(name="b"))
                await until(lambda: names(peer) == ["a", "b"], "the next one")
                await until(lambda: running.unsent == 0, "all taken")
            assert queue.sample("dropped_total") == 1

    with caplog.at_level(logging.WARNING, logger="webhook"):
        run(test())
    assert [record.getMessage() for record in caplog.records] == ["event not sent", "notifications dropped"]


def test_a_receiver_that_does_not_answer_delays_no_other_and_nothing_waits_without_end() -> None:
    async def test() -> None:
        async with Peer() as silent, Peer() as peer:
            queue = Queue(silent, taking(peer), waiting_most=5)
            silent.answers.append(Silence())
            async with queue.running() as running:
                running.put(make_notice(name="first"))
                await until(lambda: bool(silent.requests), "it hangs")
                for number in range(20):
                    running.put(make_notice(name=f"r{number}"))
                    await until(lambda number=number: f"r{number}" in names(peer), "the other has it")  # type: ignore[misc]
                await until(lambda: running.unsent == 6, "the other has been answered")
                assert queue.sample("waiting") == 6
            assert queue.sample("dropped_total") == 15

    run(test())


def test_a_text_that_changes_makes_no_new_event_and_an_end_does() -> None:
    async def test() -> None:
        async with Peer() as peer:
            queue = Queue(taking(peer))
            async with queue.running() as running:
                for text in ("1 blocked", "2 blocked", "3 blocked"):
                    running.put(make_notice(text=text))
                running.put(make_notice(ended=NOW))
                await until(lambda: len(peer.requests) >= 2 and running.unsent == 0, "the end")
            types = [request.json["type"] for request in peer.requests]
            assert types == ["io.devicetaint.rule.stopped", "io.devicetaint.rule.stopped.ended"]

    run(test())


def test_a_process_that_has_lost_the_lease_sends_nothing() -> None:
    async def test() -> None:
        async with Peer() as peer:
            queue = Queue(taking(peer))
            queue.leads = False
            async with queue.running() as running:
                running.put(make_notice())
                await until(lambda: running.unsent == 0, "taken from the queue")
            assert peer.requests == []

    run(test())
