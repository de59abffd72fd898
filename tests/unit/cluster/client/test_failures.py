"""What is told of requests that got no answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from webhook.certificates.authority import Authority
from webhook.cluster.client.credentials import Access
from webhook.cluster.client.errors import Unavailable
from webhook.cluster.client.rest import Cluster
from webhook.cluster.settings import RequestSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NO_PROXY = "http://127.0.0.1:9"


class Fixed:
    """Credentials that lead to one server."""

    rotates = False

    def __init__(self, server: str) -> None:
        self._server = server

    async def load(self) -> Access:
        return Access(self._server, ssl.create_default_context() if self._server.startswith("https") else None)


def told(server: str) -> str:
    async def ask() -> None:
        async with Cluster(Fixed(server)) as cluster:
            await cluster.get("/version")

    with pytest.raises(Unavailable) as error:
        asyncio.run(ask())
    return str(error.value)


@contextlib.contextmanager
def listening(certificate: Path | None = None) -> Iterator[int]:
    """A port that is listened on: with TLS if there is a certificate, else by something that closes at once."""

    async def closes(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    import threading  # noqa: PLC0415 -- for this server only

    ready, port = threading.Event(), 0
    loop = asyncio.new_event_loop()

    def serve() -> None:
        nonlocal port
        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
        server = loop.run_until_complete(asyncio.start_server(closes, "127.0.0.1", 0, ssl=context))
        port = server.sockets[0].getsockname()[1]
        ready.set()
        loop.run_forever()
        server.close()
        loop.run_until_complete(server.wait_closed())
        loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert ready.wait(20)
        yield port
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_b5_a_refused_connection_is_told_by_its_address_and_nothing_of_python(scheme: str) -> None:
    with socket.socket() as taken:  # bound and not listening: nothing answers there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert told(f"{scheme}://127.0.0.1:{port}") == f"GET /version: 127.0.0.1:{port}: connection refused"


def test_b5_an_unknown_certificate_is_told_with_the_reason(tmp_path: Path) -> None:
    now = datetime.now(UTC)  # noqa: TID251 -- TLS asks
    authority = Authority.create("test CA", now=now, lifetime=timedelta(days=1))
    pair = authority.serving_pair(["127.0.0.1"], now=now, lifetime=timedelta(hours=1))
    path = tmp_path / "pair.pem"
    path.write_bytes(pair.key + pair.certificate)
    with listening(path) as port:
        text = told(f"https://127.0.0.1:{port}")
    assert text.startswith(f"GET /version: 127.0.0.1:{port}: the server's certificate is not valid: ")
    assert "0x" not in text


def test_b5_a_server_without_tls_is_told_in_one_line() -> None:
    with listening() as port:
        text = told(f"https://127.0.0.1:{port}")
    assert text.startswith("GET /version: ")
    assert "0x" not in text
    assert "Error" not in text
    assert "\n" not in text


def test_b5_an_unknown_host_is_told_by_its_name() -> None:
    text = told("http://no-such-host.invalid:80")
    assert text.startswith("GET /version: no-such-host.invalid:80: no such host")


def test_a_server_that_never_completes_its_handshake_is_told_by_the_limit_for_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        credentials = Fixed(f"https://127.0.0.1:{silent.getsockname()[1]}")

        async def ask() -> None:
            async with Cluster(credentials, RequestSettings(timeout_seconds=0.2)) as cluster:
                await cluster.get_page("/version", {})

        with pytest.raises(Unavailable, match=r"^GET /version: no connection within 0\.2 s per address$"):
            asyncio.run(ask())
