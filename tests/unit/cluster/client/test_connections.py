"""The connections under requests: which way they go, how they are kept, and what is said of one that fails."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from typing import TYPE_CHECKING, Self

import pytest

from tests.https.serving import DAY, now, write_pair
from tests.unit.cluster.peer import Answer, Fixed, Peer, cluster_of, run, until
from webhook.certificates.authority import Authority
from webhook.cluster.client.connections import Proxy
from webhook.cluster.client.credentials import Access
from webhook.cluster.client.errors import NoCredentials, Unavailable
from webhook.cluster.client.rest import Cluster
from webhook.cluster.settings import RequestSettings

if TYPE_CHECKING:
    from pathlib import Path

PROXY = "http://proxy.test:3128"


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="options have other names here")
async def test_connections_are_probed_when_nothing_is_said() -> None:
    async with Peer() as peer, cluster_of(peer) as cluster:
        watch = cluster.watch("/w", {}, watch_seconds=5, silence_seconds=5)
        await anext(watch)
        assert cluster._session is not None
        connector = cluster._session.connector
        assert connector is not None
        [protocol] = connector._acquired
        assert protocol.transport is not None
        open_socket = protocol.transport.get_extra_info("socket")
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [open_socket.getsockopt(socket.IPPROTO_TCP, option) for option in options] == [10, 5, 3]
        assert open_socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        await watch.aclose()


@pytest.mark.parametrize(
    ("named", "environment", "expected"),
    [
        (None, {}, (None, None)),
        (None, {"https_proxy": PROXY}, (PROXY, None)),
        (None, {"https_proxy": PROXY, "NO_PROXY": "server.test:6443"}, (None, None)),
        ("http://own.test:1", {"https_proxy": PROXY}, ("http://own.test:1", None)),
        ("", {"https_proxy": PROXY}, (None, None)),
        (
            None,
            {"https_proxy": "http://me:secret@proxy.test:3128"},
            (PROXY, {"Proxy-Authorization": "Basic bWU6c2VjcmV0"}),
        ),
    ],
)
def test_proxy_is_that_of_the_credentials_or_the_environment(
    named: str | None, environment: dict[str, str], expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    url, headers = Proxy.of(Access("https://server.test:6443", proxy=named))
    assert (str(url) if url else None, headers) == expected


@pytest.mark.parametrize("proxy", ["socks5://proxy.test", None])
def test_proxy_that_cannot_be_used_is_named_before_anything_is_asked(
    proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "socks5://proxy.test")
    with pytest.raises(NoCredentials, match="must be the URL of an HTTP proxy, and its scheme is 'socks5'"):
        asyncio.run(Cluster(Fixed(Access("https://server.test:6443", proxy=proxy))).open())


async def told(url: str, **limits: float) -> str:
    """What is said of a request that gets no answer: one line without what Python calls its objects."""
    tls = ssl.create_default_context() if url.startswith("https") else None
    async with Cluster(Fixed(Access(url, tls)), RequestSettings(**limits)) as cluster:
        with pytest.raises(Unavailable) as raised:
            await cluster.get_page("/version", {})
    text = str(raised.value)
    assert not [word for word in ("\n", "0x", "Error") if word in text]
    return text.removeprefix("GET /version: ")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_b5_a_refused_connection_is_told_by_its_address(scheme: str) -> None:
    with socket.socket() as taken:  # bound and not listening: nothing answers there
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert await told(f"{scheme}://127.0.0.1:{port}") == f"127.0.0.1:{port}: connection refused"


async def test_b5_an_unknown_host_is_told_by_its_name() -> None:
    assert (await told("http://no-such-host.invalid:80")).startswith("no-such-host.invalid:80: no such host")


async def test_b5_tls_that_fails_is_told_with_the_reason(tmp_path: Path) -> None:
    """L1: aiohttp would add `ssl:<ssl.SSLContext object at 0x7f...>`."""

    async def plainly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    write_pair(tmp_path, Authority.create("test", now=now(), lifetime=DAY), "127.0.0.1")
    unknown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    unknown.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    for tls, reason in ((unknown, "the server's certificate is not valid: "), (None, "no TLS: wrong ver")):
        async with await asyncio.start_server(plainly, "127.0.0.1", 0, ssl=tls) as server:
            port = server.sockets[0].getsockname()[1]
            assert (await told(f"https://127.0.0.1:{port}")).startswith(f"127.0.0.1:{port}: {reason}")


async def test_server_that_never_completes_its_handshake_is_told_by_the_limit_for_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = await told(f"https://127.0.0.1:{silent.getsockname()[1]}", timeout_seconds=0.2)
    assert text == "no connection within 0.2 s per address"


async def test_no_thread_is_asked_for_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """What aiohttp would ask for in threads, netrc and the environment, costs more than the request."""
    async with Peer() as peer, cluster_of(peer) as cluster:
        peer.otherwise = lambda _: Answer(b"{}")
        await cluster.get("/a")
        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", None)
        await cluster.get("/b")


async def test_nobody_waits_for_the_connection_of_another() -> None:
    """However many requests have no answer yet: the number that evictions may have is set by a flag."""
    async with Peer() as peer, cluster_of(peer) as cluster:
        watches = [cluster.watch("/w", {}, watch_seconds=60, silence_seconds=60) for _ in range(100)]
        for watch in watches:
            await anext(watch)
        peer.answers.append(Answer(b"{}"))
        assert await cluster.get("/x", timeout_seconds=20) == b"{}"
        for watch in watches:
            await watch.aclose()


class _Stuck:
    """A TLS server in a thread that stops half-way, and does not answer the end of TLS either."""

    def __init__(self, folder: Path, answer: bytes) -> None:
        authority = Authority.create("test", now=now(), lifetime=DAY)
        write_pair(folder, authority, "127.0.0.1")
        self.trusting = ssl.create_default_context(cadata=authority.certificate.decode())
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.asked, self.over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        plain, _ = self._listener.accept()
        with self._context.wrap_socket(plain, server_side=True) as connection:
            connection.recv(65536)
            connection.sendall(self._answer)
            self.asked.set()
            self.over.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._thread.join()
        self._listener.close()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 10_000])
def test_connection_of_a_cancelled_request_is_closed_with_the_cluster(answer: bytes, tmp_path: Path) -> None:
    """Else the loop is closed while uvloop still waits for the end of TLS, and the process ends with EBUSY."""

    async def test() -> None:
        access = Access(f"https://127.0.0.1:{server.port}", server.trusting)
        async with Cluster(Fixed(access)) as cluster:
            request = asyncio.ensure_future(cluster.get("/x"))
            await until(server.asked.is_set, "the request")
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
            sockets = list(cluster._connections._sockets)
        closed = [each.fileno() for each in sockets] == [-1]
        server.over.set()  # or a loop with this connection open would never be closed
        await until(lambda: sockets[0].fileno() == -1, "the end of the connection")
        assert closed

    with _Stuck(tmp_path, answer) as server:
        run(test())
