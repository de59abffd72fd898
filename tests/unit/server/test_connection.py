"""What aiohttp's parser holds back, read in the end, whatever order bytes and turns come in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from tests.https.serving import post
from tests.unit.server.transports import Transport
from webhook.server.listener import Listener, _Server
from webhook.server.responses import Answer
from webhook.server.settings import Address, ListenerSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from webhook.server.listener import Connection

QUEUED: Final = 32
"""aiohttp's: so many whole requests of a connection may wait for their turn."""
CHUNKS_UNREAD: Final = 16_384
"""aiohttp's: with more chunks of one body, it stops reading."""
TURNS: Final = 200
"""Iterations of the loop, far more than any of these requests takes."""


async def echo(request: web.BaseRequest) -> Answer:
    return Answer(str(len(await request.content.read())).encode())


def answers(then: Callable[[Connection], Awaitable[None]]) -> list[int]:
    """The size of the body of each request that was answered."""
    transport = Transport()

    async def scenario() -> None:
        listener = Listener("reviews", Address(), echo, ListenerSettings())
        listener._server = _Server(listener, listener._handle)
        connection = listener._server()
        connection.connection_made(cast("Any", transport))
        await some_turns()
        await then(connection)
        await some_turns()

    asyncio.run(scenario())
    return [int(each.partition(b"HTTP/1.1")[0]) for each in transport.written.split(b"\r\n\r\n")[1:]]


async def some_turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


def test_request_behind_a_body_that_came_late_is_read_with_all_others() -> None:
    whole = post(b"12345")

    async def then(connection: Connection) -> None:
        connection.data_received(whole[:-1])
        await some_turns()
        connection.data_received(whole[-1:] + whole * QUEUED * 2)

    assert answers(then) == [5] * (1 + QUEUED * 2)


def test_request_behind_very_many_bodies_that_came_late_is_read_with_all_others() -> None:
    whole = post(b"12345")

    async def then(connection: Connection) -> None:
        for _ in range(QUEUED):
            connection.data_received(whole[:-1])
            await some_turns()
            connection.data_received(whole[-1:])
            await some_turns()
        connection.data_received(whole * 2)

    assert answers(then) == [5] * (QUEUED + 2)


def test_body_behind_one_of_very_many_chunks_is_read() -> None:
    head = post(b"", Content_Length="", Transfer_Encoding="chunked")

    async def then(connection: Connection) -> None:
        connection.data_received(head + b"1\r\nx\r\n" * (CHUNKS_UNREAD + 1) + b"0\r\n\r\n")
        await some_turns()
        connection.data_received(post(b"12345"))

    assert answers(then) == [CHUNKS_UNREAD + 1, 5]


def test_body_whose_end_comes_with_its_last_turn_is_read_once() -> None:
    whole = post(b"12345")

    async def then(connection: Connection) -> None:
        for start in range(len(whole)):
            connection.data_received(whole[start : start + 1])
            await asyncio.sleep(0)

    assert answers(then) == [5]


class CountingParser:
    """aiohttp's, and what was fed to it."""

    def __init__(self, parser: Any) -> None:
        self.fed: list[bytes] = []
        self._parser = parser

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> Any:
        self.fed.append(data)
        return self._parser.feed_data(data)


def test_nothing_is_parsed_again_for_a_request_that_came_whole() -> None:
    whole = post(b"12345")
    counting = []

    async def then(connection: Connection) -> None:
        counting.append(CountingParser(connection._parser))
        connection._parser = cast("Any", counting[0])
        connection.data_received(whole)

    assert answers(then) == [5]
    assert counting[0].fed == [whole]
