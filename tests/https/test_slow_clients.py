"""Clients that take their time: each way of doing so has its bound, and is cut off at it."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import pytest

from tests.builders import encoded, make_claim, make_review, make_toleration
from tests.https.conftest import QUICK_END, StartServer
from tests.https.serving import CLOSE, HOST, SECONDS, Client, Server, eventually, post, status_reply
from tests.https.test_crowds import SlowNames, large, response_in
from tests.https.test_reviews import ALLOWED
from tests.https.test_shutdown import connections
from tests.unit.policy.documents import judge_of, make_entry
from webhook.server.settings import ReviewSettings

REVIEW = encoded(make_review(make_claim()))
WORDY = encoded(make_review(make_claim([make_toleration(effect=f"Evict-{'x' * 200}") for _ in range(16)])))
"""A review whose answer is many times as long: one cause for each toleration."""
BOUND = 0.3
SLOWNESS = 0.05
"""Seconds between two bytes of a slow client."""


@contextmanager
def cut_off() -> Iterator[None]:
    """What happens inside takes at least the bound, and less than the 10 s that the defaults would allow.

    It begins before anything that starts the server's clock: who is slow to look sees less than the whole bound.
    """
    started = time.monotonic()
    yield
    assert BOUND * 0.9 < time.monotonic() - started < 9.5


def drip(client: Client, data: bytes) -> None:
    """Sends a byte at a time for as long as the server does not answer or close."""
    for byte in data:
        if select.select([client.socket], [], [], SLOWNESS)[0]:
            return
        try:
            client.send(bytes([byte]))
        except ConnectionError:  # ended just now
            return


def test_body_that_trickles_in_is_answered_and_cut_off(start_server: StartServer) -> None:
    server = start_server(reviews=ReviewSettings(body_seconds=BOUND))
    with server.connect() as client, cut_off():
        client.send(post(REVIEW).removesuffix(REVIEW))
        drip(client, REVIEW)
        message = "the body did not arrive within 0.3 s"
        assert client.answer() == status_reply("408 Request Timeout", "Timeout", message, extra=CLOSE)
        assert client.closed()
    assert server.metric("bad_requests_total", code="408") == 1


def test_body_that_never_comes_is_given_up_at_the_callers_own_deadline(start_server: StartServer) -> None:
    server = start_server()
    with server.connect() as client, cut_off():
        client.send(post(REVIEW, "/validate?timeout=375ms").removesuffix(REVIEW))
        message = "the body did not arrive within 0.3 s"
        assert client.answer() == status_reply("408 Request Timeout", "Timeout", message, extra=CLOSE)
        assert client.closed()


@pytest.mark.parametrize("sent_before", [0, 1], ids=["first request", "second request"])
def test_header_that_trickles_in_is_cut_off(start_server: StartServer, sent_before: int) -> None:
    server = start_server(replace(QUICK_END, header_seconds=BOUND))
    with server.connect() as client:
        for _ in range(sent_before):
            assert client.ask(post(REVIEW)) == ALLOWED
        with cut_off():
            drip(client, post(REVIEW))
            assert client.closed()


def test_header_that_stops_in_the_middle_is_cut_off(start_server: StartServer) -> None:
    server = start_server(replace(QUICK_END, header_seconds=BOUND))
    with server.connect() as client, cut_off():
        client.send(b"POST /validate HTT")
        assert client.closed()


def test_header_in_two_pieces_does_not_end_the_connection_later(start_server: StartServer) -> None:
    """The clock of a header stops with the header, not with the connection."""
    server = start_server(replace(QUICK_END, header_seconds=BOUND))

    def stays() -> bool:
        """Whether the rest of each header came within its bound, which it may not on a machine that stands still."""
        with server.connect() as client:
            for _ in range(3):
                try:
                    client.send(post(REVIEW)[:20])
                    eventually(lambda: not any(connection.quiet for connection in connections(server)))
                    assert client.ask(post(REVIEW)[20:]) == ALLOWED
                except (OSError, EOFError):
                    return False
                assert not select.select([client.socket], [], [], 2 * BOUND)[0]
        return True

    eventually(stays)


def asked(server: Server, requests: int) -> Client:
    """A connection on which so many requests were answered."""
    client = server.connect()
    try:
        for _ in range(requests):
            assert client.ask(post(REVIEW)) == ALLOWED
    except (OSError, EOFError):
        client.socket.close()
        raise
    return client


def heard(server: Server, requests: int) -> Client:
    """The same; again where a machine stands still until it was closed before."""
    for _ in range(9):
        with suppress(OSError, EOFError):
            return asked(server, requests)
    return asked(server, requests)


@pytest.mark.parametrize("requests", [0, 1])
def test_idle_connection_is_closed(start_server: StartServer, requests: int) -> None:
    server = start_server(replace(QUICK_END, idle_seconds=BOUND))
    with cut_off(), heard(server, requests) as client:
        assert client.closed()


def test_handshake_that_never_comes_is_given_up(start_server: StartServer) -> None:
    server = start_server(replace(QUICK_END, handshake_seconds=BOUND))
    with cut_off(), socket.create_connection(server.address, timeout=SECONDS) as plain:
        assert plain.recv(1) == b""


def test_client_that_sends_and_never_reads_is_cut_off(start_server: StartServer) -> None:
    server = start_server(replace(QUICK_END, write_seconds=BOUND))
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.settimeout(SECONDS)
    small.connect(server.address)
    with server.trusting().wrap_socket(small, server_hostname=HOST) as client:
        client.settimeout(0.5)
        assert not _all_taken(client, post(WORDY), times=5000), "the server went on although nobody took its answers"
    eventually(lambda: not server.listener.connections)


def test_client_that_does_not_read_the_answer_that_fills_its_buffer_is_cut_off(start_server: StartServer) -> None:
    """Found by review: only a client that sent one more request was.

    Each request waits for the answer before it to be written. A client that runs ahead of a busy server blocks in its
    next request, and is cut off there.
    """
    seconds = 1.5  # long enough for a busy machine to see the pause and send no more
    server = start_server(replace(QUICK_END, write_seconds=seconds, connections=1))

    seen = False

    def paused() -> bool:
        nonlocal seen
        seen = seen or any(connection.writing_paused for connection in connections(server))
        return seen

    def answers() -> float:
        return server.metric("review_duration_seconds_count", path="/validate")

    def cut_off_once_paused() -> bool:
        """Whether the pause was seen before that, which it may not on a machine that stands still."""
        requests = answers()

        def written() -> bool:
            return answers() == requests and all(connection.quiet for connection in connections(server))

        with server.connect() as client:
            eventually(lambda: server.listener.connections == 1)
            with suppress(OSError):
                while server.listener.connections and not paused():
                    client.send(post(WORDY))
                    requests += 1
                    eventually(lambda: paused() or written() or not server.listener.connections)
            eventually(lambda: not server.listener.connections)
        return seen

    assert any(cut_off_once_paused() for _ in range(5))


def _all_taken(client: ssl.SSLSocket, request: bytes, times: int) -> bool:
    """Whether the server takes so many requests; false once it stops reading (the timeout) or hangs up."""
    try:
        for _ in range(times // 100):
            client.sendall(request * 100)
    except OSError:
        return False
    return True


def test_connection_too_many_closes_the_one_that_has_waited_longest_for_its_client(start_server: StartServer) -> None:
    """F12: a client could open as many as it liked, each of which takes memory."""
    server = start_server(replace(QUICK_END, connections=3))
    with server.connect() as unused, server.connect() as half, server.connect() as used:
        half.send(post(REVIEW).removesuffix(REVIEW))
        # Read before the next request comes in: a busy loop may read its sockets in another order.
        eventually(lambda: sorted(each.quiet for each in connections(server)) == [False, True, True])
        assert used.ask(post(REVIEW)) == ALLOWED
        eventually(lambda: len(connections(server)) == 3)
        with server.connect() as fourth, server.connect() as fifth:
            assert unused.closed()
            assert half.closed()
            for client in (used, fourth, fifth):
                assert client.ask(post(REVIEW)) == ALLOWED


def test_connection_that_waits_for_its_answer_is_not_closed_for_another(start_server: StartServer) -> None:
    server = start_server(replace(QUICK_END, connections=1))
    names = server.state.names = SlowNames()
    server.state.policies.use(judge_of(make_entry("warns", "warn"), documentedRules="off"))
    with server.connect() as waiting:
        waiting.send(post(large(0), "/validate?timeout=30s"))
        assert names.asked.wait(SECONDS)
        with server.connect() as new:
            assert new.closed()
        names.told.set()
        assert response_in(waiting.answer())["allowed"] is True
