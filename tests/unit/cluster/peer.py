"""A peer that says what a script says, byte for byte: pages, lines cut in the middle, silence, refusals.

It knows nothing of Kubernetes beyond HTTP/1.1; what an API server does is tested on a real one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

import uvloop

from webhook.cluster.client.credentials import Access
from webhook.cluster.client.rest import Cluster
from webhook.cluster.settings import RequestSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

DEADLINE_SECONDS = 30.0
TEST_SECONDS = 120.0


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """A status and a body in one piece."""

    body: Any = None
    code: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Slow:
    """Status 200 and a body that comes in pieces, with a pause before each."""

    pieces: list[bytes]
    pause_seconds: float


@dataclass
class Lines:
    """A watch: these lines, then what `then` says."""

    lines: list[bytes] = field(default_factory=list)
    then: str = "hold"
    """hold: nothing more comes. end: orderly. cut: the connection breaks."""


@dataclass
class Silence:
    """No answer at all."""


@dataclass
class Drop:
    """The connection is closed instead of an answer."""


Reply = Answer | Slow | Lines | Silence | Drop


class Peer:
    """Answers in the order of the script, one for lists and other requests, one for watches.

    When a script has run out, `otherwise` is asked, and a watch is held open.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: deque[Reply] = deque()
        self.watches: deque[Reply] = deque()
        self.otherwise: Callable[[Request], Reply] = lambda _: Answer(status(404, "not in the script"), 404)
        self.port = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self._open_watch: asyncio.StreamWriter | None = None
        self._open_watches: dict[str, asyncio.StreamWriter] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def lists(self) -> list[Request]:
        return [request for request in self.requests if not request.is_watch]

    @property
    def watched(self) -> list[Request]:
        return [request for request in self.requests if request.is_watch]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listens, on the same port as before if it did before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Breaks all connections, and refuses new ones."""
        assert self._server is not None
        self._server.close()
        for writer in self._connections:
            writer.transport.abort()
        await self._server.wait_closed()

    async def say(self, *lines: bytes) -> None:
        """More lines on the watch that was opened last."""
        await until(lambda: self._open_watch is not None, "a watch")
        assert self._open_watch is not None
        for line in lines:
            self._open_watch.write(chunk(line))
        await self._open_watch.drain()

    async def until_watched(self, path: str) -> None:
        """Returns once that path is watched. A change that comes sooner is part of a list, and of no watch after it."""
        await until(lambda: path in self._open_watches, f"a watch of {path}")

    async def say_on(self, path: str, *lines: bytes, cut: bool = False) -> None:
        """More lines on the watch of that path, after which the connection may break."""
        await self.until_watched(path)
        writer = self._open_watches[path]
        for line in lines:
            writer.write(chunk(line))
        await writer.drain()
        if cut:
            del self._open_watches[path]
            writer.transport.close()  # once what was written is on its way

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    request = await _read(reader)
                    self.requests.append(request)
                    await self._reply(self._next(request), writer, request.path)
        except _Hold:
            await reader.read()  # until the client goes
        finally:
            self._connections.discard(writer)
            if self._open_watch is writer:
                self._open_watch = None
            self._open_watches = {path: each for path, each in self._open_watches.items() if each is not writer}
            writer.close()

    def _next(self, request: Request) -> Reply:
        script = self.watches if request.is_watch else self.answers
        if script:
            return script.popleft()
        return Lines() if request.is_watch else self.otherwise(request)

    async def _reply(self, reply: Reply, writer: asyncio.StreamWriter, path: str) -> None:
        match reply:
            case Answer(body, code, headers):
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                wished = {"Connection": "close"} if self.requests[-1].headers.get("connection") == "close" else {}
                head = "".join(f"{name}: {value}\r\n" for name, value in (wished | headers).items())
                writer.write(f"HTTP/1.1 {code} X\r\nContent-Length: {len(data)}\r\n{head}\r\n".encode() + data)
                await writer.drain()
            case Slow(pieces, pause_seconds):
                await _write_slowly(writer, pieces, pause_seconds)
            case Lines(lines, then):
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                for line in lines:
                    writer.write(chunk(line))
                if then == "end":
                    writer.write(b"0\r\n\r\n")
                await writer.drain()
                if then == "cut":
                    raise ConnectionError
                if then == "hold":
                    self._open_watch = self._open_watches[path] = writer
                    raise _Hold
            case Silence():
                raise _Hold
            case Drop():
                raise ConnectionError


class _Hold(Exception):  # noqa: N818 -- a signal to ourselves
    """Nothing more is said on this connection."""


async def _write_slowly(writer: asyncio.StreamWriter, pieces: list[bytes], pause_seconds: float) -> None:
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {sum(map(len, pieces))}\r\n\r\n".encode())
    for piece in pieces:
        await asyncio.sleep(pause_seconds)
        writer.write(piece)
        await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    method, target, _ = head[0].split(" ")
    headers: dict[str, str] = {}
    for name, _, value in (line.partition(":") for line in head[1:] if line):
        known = headers.get(name.lower())
        headers[name.lower()] = value.strip() if known is None else f"{known}, {value.strip()}"
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    url = urlsplit(target)
    return Request(method, unquote(url.path), dict(parse_qsl(url.query)), headers, body)


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def status(code: int, message: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code, **fields}


class Fixed:
    """Credentials that are what they are."""

    rotates = False

    def __init__(self, access: Access) -> None:
        self.access = access

    async def load(self) -> Access:
        return self.access


def cluster_of(peer: Peer, timeout_seconds: float = 30.0, **settings: float) -> Cluster:
    return Cluster(Fixed(Access(peer.url)), RequestSettings(timeout_seconds=timeout_seconds, **settings))


async def until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE_SECONDS) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 -- any state, also one that no event announces
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


def run(test: Coroutine[Any, Any, None], seconds: float = TEST_SECONDS) -> None:
    """Runs a test on the loop that the product runs on, and fails it if it hangs."""

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await test

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())
