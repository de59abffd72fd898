"""What `doctor` reports of a webhook whose certificate cannot be seen from where it runs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
import uvloop

from webhook.certificates.authority import Authority
from webhook.cluster.client.connections import NoHandshake, certificate_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUNDLE = Authority.create("test CA", now=datetime(2026, 1, 1, tzinfo=UTC), lifetime=timedelta(days=3650)).certificate


def closes(connection: socket.socket) -> None:
    connection.recv(4096)


def resets(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def answers_without_tls(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")


@contextlib.contextmanager
def one_connection(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port where one connection is accepted, served and closed."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        thread.join(60)


def reason_at(port: int, timeout_seconds: float = 60.0) -> str:
    with pytest.raises(NoHandshake) as error, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(certificate_end("127.0.0.1", port, "localhost", BUNDLE, timeout_seconds))
    return str(error.value)


@pytest.mark.parametrize(
    ("serve", "reason"), [(closes, "connection reset"), (resets, "connection reset"), (answers_without_tls, "no TLS: ")]
)
def test_a_handshake_that_breaks_off_has_a_reason(serve: Callable[[socket.socket], None], reason: str) -> None:
    with one_connection(serve) as port:
        text = reason_at(port)
    assert text.startswith(reason)
    assert "[" not in text  # neither a number of the system's nor one of OpenSSL's


def test_a_port_where_nothing_listens_refuses() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert reason_at(taken.getsockname()[1]) == "connection refused"


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert reason_at(silent.getsockname()[1], 0.2) == "no answer within 0.2 s"
