"""Notices of rules that a watch shows, at a receiver."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from tests.unit.cluster.peer import Answer, Peer, run, until
from tests.unit.notifications.noticing import NOW, eviction, rule
from webhook.daemons.notifier import Notifier
from webhook.inventory.state import Inventory
from webhook.notifications.settings import NotificationSettings, ReceiverSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Watched:
    """An inventory that is followed."""

    def __init__(self) -> None:
        self.inventory = Inventory()
        self.followers: list[Callable[[Any, Any], None]] = []

    def subscribe(self, on_change: Callable[[Any, Any], None]) -> None:
        self.followers.append(on_change)

    def show(self, old: Any, new: Any) -> None:
        self.inventory.apply(old, new)
        for on_change in self.followers:
            on_change(old, new)


def notifier(**settings: ReceiverSettings) -> Notifier:
    chosen = NotificationSettings(**settings, cluster="c")
    return Notifier(chosen, CollectorRegistry(), lambda: True, lambda: NOW, lambda: 0.0)


@contextlib.asynccontextmanager
async def running(notifier: Notifier) -> AsyncIterator[None]:
    task = asyncio.create_task(notifier.run())
    yield
    await notifier.finish()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_rules_that_are_there_and_rules_that_come_are_sent_to_both_sorts_of_receivers() -> None:
    async def test() -> None:
        async with Peer() as alertmanager, Peer() as receiver:
            for peer in (alertmanager, receiver):
                peer.otherwise = lambda _: Answer({})
            both = notifier(
                alertmanager=ReceiverSettings(urls=(f"{alertmanager.url}/am/",)),
                cloud_events=ReceiverSettings(urls=(f"{receiver.url}/events",)),
            )
            watched = Watched()
            watched.show(None, rule(eviction("Stopped"), name="there", uid="u1"))
            both.begin(watched)  # type: ignore[arg-type]
            async with running(both):
                await until(lambda: len(receiver.requests) == 1, "the one that was there")
                watched.show(None, rule(eviction("Stopped"), name="comes", uid="u2"))
                await until(lambda: len(receiver.requests) == 2, "the one that came")
            assert [each.json["subject"] for each in receiver.requests] == [
                "devicetaintrules/there",
                "devicetaintrules/comes",
            ]
            assert {each.path for each in alertmanager.requests} == {"/am/api/v2/alerts"}
            assert {alert["labels"]["rule"] for alert in alertmanager.requests[-1].json} == {"there", "comes"}

    run(test())


def test_what_is_queued_when_the_worker_stops_is_sent_first() -> None:
    async def test() -> None:
        async with Peer() as receiver:
            receiver.otherwise = lambda _: Answer({})
            queued = notifier(cloud_events=ReceiverSettings(urls=(receiver.url,)))
            watched = Watched()
            for number in range(5):
                watched.show(None, rule(eviction("Stopped"), name=f"r{number}", uid=f"u{number}"))
            queued.begin(watched)  # type: ignore[arg-type]
            async with running(queued):
                await until(lambda: bool(receiver.requests), "the first")
            assert len(receiver.requests) == 5

    run(test())


def test_without_receivers_rules_are_not_followed() -> None:
    watched = Watched()
    notifier().begin(watched)  # type: ignore[arg-type]
    assert watched.followers == []
