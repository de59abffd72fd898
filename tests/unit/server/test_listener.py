"""Where a listener listens; how its connections fare is in tests/https."""

from __future__ import annotations

import asyncio
import errno
import http.client
import re
import socket

import pytest

from webhook.server.listener import Listener
from webhook.server.responses import Answer
from webhook.server.settings import Address, ListenerSettings

QUICK = ListenerSettings(drain_idle_seconds=0.0)


async def fine(_: object) -> Answer:
    return Answer(b"fine")


def ask(host: str, port: int) -> bytes:
    connection = http.client.HTTPConnection(host, port, timeout=20)
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
