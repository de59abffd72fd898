"""A server on a loop in a thread, and a client that sends and receives bytes.

The server is the product's own listener with settings of a test's choosing; what only a process can show (signals,
memory, start-up) is tested with tests.controlplane.webhook_process.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Self

import uvloop

from webhook.certificates.authority import Authority
from webhook.certificates.contexts import HandshakeFailures, listening_context
from webhook.certificates.settings import FileSettings, TLSVersion
from webhook.certificates.source import FileSource
from webhook.server.http import Reviews
from webhook.server.listener import Listener
from webhook.server.settings import Address, ListenerSettings, ReviewSettings
from webhook.server.state import ReviewState
from webhook.telemetry.metrics import Metrics

HOST: Final = "127.0.0.1"
CLIENT: Final = "kube-apiserver"
SECONDS: Final = 60.0
"""How long a test waits for what must happen. Reaching it is always a failure."""
_DATE: Final = re.compile(rb"\r\nDate: [A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT\r\n")
DAY: Final = timedelta(days=1)
RESOURCES: Final = frozenset({"resourceclaims", "resourceslices", "devicetaintrules"})


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 -- certificates of tests are valid today


def write_pair(folder: Path, authority: Authority, *names: str) -> None:
    """tls.crt and tls.key, each replaced at once, one after the other: between them they do not match."""
    pair = authority.serving_pair(names or (HOST, "localhost"), now=now(), lifetime=DAY)
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        fresh = folder / f"{name}.new"
        fresh.write_bytes(content)
        fresh.replace(folder / name)


def eventually(holds: Callable[[], bool]) -> None:
    """Waits for what must come true."""
    end, pause = time.monotonic() + SECONDS, threading.Event()
    while not holds():
        assert time.monotonic() < end, "it never came true"
        pause.wait(0.005)


@dataclass
class Loop:
    """An event loop in a thread of its own."""

    loop: asyncio.AbstractEventLoop

    @classmethod
    @contextmanager
    def running(cls) -> Iterator[Self]:
        loop = uvloop.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="server")
        thread.start()
        try:
            yield cls(loop)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(SECONDS)
            assert not thread.is_alive()
            loop.close()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(SECONDS)


class Server:
    """The admission port, listening on a free port with a certificate that `authority` signed."""

    def __init__(self, folder: Path, loop: Loop, listener: ListenerSettings, reviews: ReviewSettings) -> None:
        self.loop = loop
        self.folder = folder
        self.authority = Authority.create("test CA", now=now(), lifetime=DAY)
        self.metrics = Metrics(version="0", resources=RESOURCES)
        self.files = FileSettings(
            certificate_file=folder / "tls.crt", key_file=folder / "tls.key", poll_seconds=0.01, first_poll_seconds=0.01
        )
        self.settings = listener
        self.reviews = reviews
        self.state = ReviewState()
        self.client_ca: Authority | None = None
        self.oldest_version = TLSVersion.TLS12
        self.cipher_suites: tuple[str, ...] = ()
        self.client_names: tuple[str, ...] = ()

    @contextmanager
    def listening(self) -> Iterator[Self]:
        write_pair(self.folder, self.authority)
        if self.client_ca is not None:
            (self.folder / "clients.crt").write_bytes(self.client_ca.certificate)
            self.files = replace(self.files, client_ca_file=self.folder / "clients.crt")
            self.client_names = (CLIENT,)
        self.files = replace(self.files, cipher_suites=self.cipher_suites)
        self.source = FileSource(self.files, now=now, metrics=self.metrics)
        tls = listening_context(
            lambda: self.source.context,
            client_certificates=self.client_ca is not None,
            oldest_version=self.oldest_version,
            tell_failure=HandshakeFailures(self.metrics).tell,
            handshake_seconds=self.settings.handshake_seconds,
            most_handshakes=self.settings.handshakes,
        )
        self.handler = Reviews(self.reviews, self.metrics, self.state, self.client_names)
        self.listener = Listener(
            "reviews",
            Address(host=HOST),
            self.handler,
            self.settings,
            tls=tls,
            count_bad_request=self.metrics.count_bad_request,
        )
        polling = asyncio.run_coroutine_threadsafe(self.source.run(), self.loop.loop)
        try:
            self.loop.run(self.source.loaded())
            self.loop.run(self.listener.start())
            yield self
        finally:
            self.loop.run(self.listener.stop())
            polling.cancel()

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.listener.port

    def trusting(self) -> ssl.SSLContext:
        """A client's context that knows the server's CA."""
        return ssl.create_default_context(cadata=self.authority.certificate.decode())

    def connect(self, context: ssl.SSLContext | None = None, name: str | None = HOST) -> Client:
        return Client.connect(self.address, context or self.trusting(), name)

    def ask(self, request: bytes) -> bytes:
        """One request on a connection of its own, and its whole answer."""
        with self.connect() as client:
            return client.ask(request)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"device_taint_webhook_{name}", labels) or 0.0


class Client:
    """One TLS connection. An `answer` is one whole HTTP answer as bytes, its date replaced by `-`."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self.socket = connection
        self._received = b""

    @classmethod
    def connect(cls, address: tuple[str, int], context: ssl.SSLContext, name: str | None = HOST) -> Self:
        plain = socket.create_connection(address, timeout=SECONDS)
        try:
            return cls(context.wrap_socket(plain, server_hostname=name))
        except BaseException:
            plain.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def ask(self, request: bytes) -> bytes:
        self.send(request)
        return self.answer()

    def answer(self) -> bytes:
        """The next answer. Raises EOFError if the server closed before one was complete."""
        while b"\r\n\r\n" not in self._received:
            self._more()
        head, _, _ = self._received.partition(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 100 "):
            length = 0
        else:
            found = re.search(rb"\r\nContent-Length: ([0-9]+)", head)
            assert found, head
            length = int(found[1])
        end = len(head) + 4 + length
        while len(self._received) < end:
            self._more()
        answer, self._received = self._received[:end], self._received[end:]
        return undated(answer)

    def closed(self) -> bool:
        """Waits until the server ends the connection; false if it sends something instead."""
        try:
            return not self._received and self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _more(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise EOFError(self._received)
        self._received += data


def undated(answer: bytes) -> bytes:
    return _DATE.sub(b"\r\nDate: -\r\n", answer)


def post(body: bytes, path: str = "/validate", **headers: str) -> bytes:
    """A request as an API server sends it; a header given as "" is left out."""
    fields = {
        "Host": "webhook.test",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def reply(body: bytes, status: str = "200 OK", *, extra: str = "", content_type: str = "application/json") -> bytes:
    """The whole answer that is expected; `extra` are header lines after the length."""
    head = f"HTTP/1.1 {status}\r\nDate: -\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


def status_reply(status: str, reason: str, message: str, *, extra: str = "") -> bytes:
    """The answer with the Status of a request that was no review."""
    quoted = message.replace("\\", "\\\\").replace('"', '\\"')
    body = (
        '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        f'"message":"{quoted}","reason":"{reason}","code":{status[:3]}}}'
    )
    return reply(body.encode(), status, extra=extra)


CLOSE: Final = "Connection: close\r\n"
INFORMED: Final = "[+]certificate renewal ok\n"
"""What `/readyz?verbose` informs of in a process with good files."""
