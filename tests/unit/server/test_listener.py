"""Where a listener listens, and what aiohttp's parser holds back; how connections fare is in tests/https."""

from __future__ import annotations

import asyncio
import errno
import http.client
import re
import socket
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from tests.https.serving import post
from tests.unit.server.doubles import Transport
from webhook.server.listener import Listener, _Server
from webhook.server.responses import Answer
from webhook.server.settings import Address, ListenerSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from webhook.server.listener import Connection

QUICK = ListenerSettings(drain_idle_seconds=0.0)


async def fine(_: object) -> Answer:
    return Answer(b"fine")


def ask(host: str, port: int) -> bytes:
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read()
    finally:
        connection.close()


def listener(host: str, port: int = 0) -> Listener:
    return Listener("reviews", Address(host=host, port=port), fine, QUICK)


def answers(listening: Listener, *hosts: str) -> list[bytes]:
    """What is answered at each host on the one port that was picked."""

    async def scenario() -> list[bytes]:
        await listening.start()
        try:
            return [await asyncio.to_thread(ask, host, listening.port) for host in hosts]
        finally:
            await listening.stop()

    return asyncio.run(scenario())


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no socket for both IPv6 and IPv4 here")
def test_no_host_is_every_interface_of_both_protocols_on_one_port() -> None:
    assert answers(listener(""), "127.0.0.1", "::1") == [b"fine", b"fine"]


def test_no_host_is_every_interface_where_there_is_no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    for attempt in range(5):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        try:
            assert answers(listener("", port), "127.0.0.1") == [b"fine"]
            break
        except OSError as error:  # another program was quicker
            if error.errno != errno.EADDRINUSE or attempt == 4:
                raise


def test_address_that_is_not_ours_is_named() -> None:
    started = listener("192.0.2.1", 443).start()
    with pytest.raises(OSError, match=re.escape("cannot listen on 192.0.2.1:443 for reviews: ")):
        asyncio.run(started)


def test_listener_that_never_started_stops_at_once() -> None:
    idle = listener("127.0.0.1")
    asyncio.run(idle.stop())
    assert (idle.problem, idle.connections) == ("not listening", 0)


CHUNKS_UNREAD: Final = 16_384
"""aiohttp's: with more chunks of one body, it stops reading."""
TURNS: Final = 200
"""Iterations of the loop, far more than any of these requests takes."""


async def echo(request: web.BaseRequest) -> Answer:
    return Answer(str(len(await request.content.read())).encode())


def sizes(then: Callable[[Connection], Awaitable[None]]) -> list[int]:
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


def test_body_behind_one_of_very_many_chunks_is_read() -> None:
    head = post(b"", Content_Length="", Transfer_Encoding="chunked")

    async def then(connection: Connection) -> None:
        connection.data_received(head + b"1\r\nx\r\n" * (CHUNKS_UNREAD + 1) + b"0\r\n\r\n")
        await some_turns()
        connection.data_received(post(b"12345"))

    assert sizes(then) == [CHUNKS_UNREAD + 1, 5]


def test_body_whose_end_comes_with_its_last_turn_is_read_once() -> None:
    whole = post(b"12345")

    async def then(connection: Connection) -> None:
        for start in range(len(whole)):
            connection.data_received(whole[start : start + 1])
            await asyncio.sleep(0)

    assert sizes(then) == [5]


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

    assert sizes(then) == [5]
    assert counting[0].fed == [whole]
