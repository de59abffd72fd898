"""The end: once it has begun, whoever has sent a request gets its answer, and is told to go elsewhere."""

from __future__ import annotations

import asyncio
import math
import signal
import ssl
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.builders import encoded, make_claim, make_review
from tests.controlplane.webhook_process import WebhookProcess, _get
from tests.https.conftest import QUICK_END, StartServer
from tests.https.serving import CLOSE, INFORMED, SECONDS, Client, Server, eventually, post
from tests.https.test_reviews import ALLOWED
from webhook.server.listener import Connection
from webhook.server.settings import ListenerSettings

REVIEW = encoded(make_review(make_claim()))
LAST = ALLOWED.replace(b"\r\n\r\n", b"\r\n" + CLOSE.encode() + b"\r\n", 1)


def begin_stop(server: Server) -> Future[Any]:
    stopping = asyncio.run_coroutine_threadsafe(server.listener.stop(), server.loop.loop)
    eventually(lambda: server.listener.problem is not None)
    return stopping


def refused(server: Server) -> bool:
    try:
        server.connect().socket.close()
    except OSError:
        return True
    return False


def connections(server: Server) -> list[Connection]:
    assert server.listener._server is not None
    return [connection for connection in server.listener._server.connections if isinstance(connection, Connection)]


def test_idle_connection_may_bring_one_more_request(start_server: StartServer) -> None:
    server = start_server(replace(QUICK_END, drain_idle_seconds=SECONDS))
    with server.connect() as client:
        assert client.ask(post(REVIEW)) == ALLOWED
        begin_stop(server)
        eventually(lambda: refused(server))
        assert client.ask(post(REVIEW)) == LAST
        assert client.closed()


def test_idle_connection_is_closed_in_the_end(start_server: StartServer) -> None:
    server = start_server(replace(QUICK_END, drain_idle_seconds=0.2))
    with server.connect() as client:
        assert client.ask(post(REVIEW)) == ALLOWED
        begin_stop(server).result(SECONDS)
        assert client.closed()


def test_request_in_flight_is_answered(start_server: StartServer) -> None:
    server = start_server()
    whole = post(REVIEW)
    with server.connect() as body_missing, server.connect() as header_missing:
        body_missing.send(whole.removesuffix(REVIEW))
        header_missing.send(whole[:30])
        eventually(lambda: [connection.quiet for connection in connections(server)] == [False, False])
        stopping = begin_stop(server)
        eventually(lambda: refused(server))
        for client, rest in ((body_missing, REVIEW), (header_missing, whole[30:])):
            assert client.ask(rest) == LAST
        stopping.result(SECONDS)


def test_request_that_never_ends_is_cut_off(start_server: StartServer, caplog: pytest.LogCaptureFixture) -> None:
    server = start_server(replace(QUICK_END, drain_seconds=0.2))
    with server.connect() as client:
        client.send(post(REVIEW).removesuffix(REVIEW))
        eventually(lambda: server.metric("reviews_in_flight") == 1)
        begin_stop(server).result(SECONDS)
        assert client.closed()
    assert "connections cut off" in [record.getMessage() for record in caplog.records]


def test_stop_waits_for_nobody_when_nobody_is_there(start_server: StartServer) -> None:
    server = start_server(replace(QUICK_END, drain_seconds=SECONDS * 2))
    begin_stop(server).result(SECONDS)
    assert server.listener.problem == "not listening"


@dataclass
class Clients:
    """Busy clients that do as they are told: a connection whose answer says close is not used again."""

    address: tuple[str, int]
    context: ssl.SSLContext
    answered: int = 0
    last: int = 0
    late: int = 0
    """Connections that brought no request for as long as the process waits for one, as this machine stood still."""
    served: set[int] = field(default_factory=set)
    """Threads that got an answer."""
    lost: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> None:
        """Until nobody can connect any more."""
        while True:
            since = time.monotonic()
            try:
                client = Client.connect(self.address, self.context)
            except OSError:
                return
            with client:
                while self._ask(client, since) == ALLOWED:
                    since = time.monotonic()

    def _ask(self, client: Client, since: float) -> bytes:
        """The answer to one more request; the connection has brought none since then."""
        sent_at = math.inf
        try:
            client.send(post(REVIEW))
            sent_at = time.monotonic()
            answer = client.answer()
        except (OSError, EOFError) as error:
            with self.lock:
                if min(sent_at, time.monotonic()) - since > ListenerSettings().drain_idle_seconds:
                    self.late += 1
                else:
                    self.lost.append(repr(error))
            return b""
        with self.lock:
            self.answered += 1
            self.served.add(threading.get_ident())
            self.last += answer == LAST
        return answer


# CPython's wrap_socket forgets a socket that was reset before it looked at it.
@pytest.mark.filterwarnings("ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("delay", ["0", "0.5"])
def test_no_request_is_lost_when_the_process_is_told_to_stop_under_load(delay: str) -> None:
    with WebhookProcess(f"--shutdown-delay={delay}") as webhook, ExitStack() as stack:
        clients = busy(webhook)
        for _ in range(8):
            thread = threading.Thread(target=clients.run)
            thread.start()
            stack.callback(thread.join, SECONDS)
        eventually(lambda: clients.answered > 500 and len(clients.served) == 8)
        assert webhook.stop() == 0
    assert clients.lost == []
    assert clients.last + clients.late >= 8, "each connection's last answer says so"
    print(f"\n{clients.answered} answered, {clients.last} of them the last on their connection, none lost")


def busy(webhook: WebhookProcess) -> Clients:
    url = urlsplit(webhook.base_url)
    assert url.hostname
    assert url.port
    return Clients((url.hostname, url.port), ssl.create_default_context(cadata=webhook.ca_pem.decode()))


def test_process_is_not_ready_but_serves_during_the_delay_and_a_second_signal_ends_it() -> None:
    with WebhookProcess("--shutdown-delay=60") as webhook:
        clients = busy(webhook)
        with Client.connect(clients.address, clients.context) as client:
            assert client.ask(post(REVIEW)) == ALLOWED
            webhook.process.terminate()
            eventually(lambda: _get(f"{webhook.health_url}/readyz")[0] == 503)
            assert _get(f"{webhook.health_url}/readyz")[1] == (
                f"[+]certificate ok\n[+]policy ok\n[-]listener failed: stopping\n{INFORMED}readyz check failed\n"
            )
            assert _get(f"{webhook.health_url}/livez") == (200, "ok")
            assert client.ask(post(REVIEW)) == LAST
        with Client.connect(clients.address, clients.context) as client:
            assert client.ask(post(REVIEW)) == LAST
        assert webhook.stop() == 0
        assert '"hurry":true' in webhook.process.tail(10)


def test_interrupt_from_a_terminal_ends_in_order_too() -> None:
    with WebhookProcess("--log-format=text") as webhook:
        webhook.process._popen.send_signal(signal.SIGINT)
        eventually(lambda: webhook.process.code is not None)
        assert webhook.process.code == 0
        assert "stopping signal=SIGINT hurry=false" in webhook.process.tail(10)
