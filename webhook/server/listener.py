"""One listening socket: connections with bounds on how long they may take, and an end that loses no request.

HTTP/1.1 is aiohttp's: its parser, its flow control. What a request means is the handler's.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import EMPTY_PAYLOAD, StreamReader, web
from aiohttp.http import RawRequestMessage

from webhook.flowcontrol.loop import Sampled
from webhook.server.responses import Answer, WriteQueue, failure

if TYPE_CHECKING:
    from webhook.server.settings import Address, ListenerSettings

log = logging.getLogger(__name__)

NOT_LISTENING: Final = "not listening"
"""The problem of a listener that has not been started, or was stopped."""
_BACKLOG: Final = 1024
"""Connections that may wait to be accepted: every client of a restarted API server comes at once."""
_NEWEST: Final = (1, 1)
_SPOKEN: Final = (_NEWEST, (1, 0))
"""The older one is what health checks of some load balancers still speak; the answer ends the connection."""
_UPGRADE: Final = "websocket"
_WARN_SECONDS: Final = 60.0
"""Between two warnings that there are too many connections."""
_DRAIN_STEP_SECONDS: Final = 0.05
_CUT_OFF_SECONDS: Final = 0.5
"""For aiohttp to end what did not end by itself."""


class Connection(web.RequestHandler):
    """aiohttp's connection, plus a bound for headers that trickle in, and our own words for what is no HTTP.

    It looks at aiohttp's inner state, which may change with any of its releases; tests/https fails when it does.
    """

    __slots__ = ("_header_of", "_header_timer", "_slow", "_write_timer", "body", "listener", "made_at", "received_at")

    def __init__(self, manager: web.Server, listener: Listener, **options: Any) -> None:
        super().__init__(manager, **options)
        self.listener = listener
        self._header_of = -1
        self._header_timer: asyncio.TimerHandle | None = None
        self._slow = False
        self._write_timer: asyncio.TimerHandle | None = None
        self.body: StreamReader = EMPTY_PAYLOAD
        """That of the request that was taken up last."""
        self.made_at = 0.0
        self.received_at = 0.0
        """When the last header was complete, by time.monotonic: what is handled late has waited since then."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make room for it. asyncio calls this when the handshake is done."""
        super().connection_made(transport)
        self.made_at = time.monotonic()
        self.listener.make_room(self)

    def data_received(self, data: bytes) -> None:
        """Take what came in; then a request is complete up to its body, or the clock of its header runs."""
        count, body = self._request_count, self.body
        late = not body.is_eof()
        super().data_received(data)
        if late and body.is_eof() and self._parser is not None:
            # For aiohttp it is now one of the requests that wait, and with 32 of them it parses no further.
            self._parser.message_consumed()
            super().data_received(b"")
        if self._request_count != count:
            self.received_at = time.monotonic()
            self.listener.write_queue.expect(self._request_count - count)
        if self._messages and self._current_request is not None:
            content = self._current_request.content
            if not content.is_eof() and content.exception() is None:
                # After a parser error, no more of it can arrive: the handler must not wait for that.
                content.set_exception(web.RequestPayloadError())
        elif data and self._header_of != self._request_count and self._idle:
            _stop(self._header_timer)
            self._header_of = self._request_count
            seconds = self.listener.settings.header_seconds
            self._header_timer = self._loop.call_later(seconds, self._header_overdue, self._request_count)

    def pause_reading(self) -> None:
        """Note that a body is read more slowly than it comes. The parser may then stop in the next one, too."""
        super().pause_reading()
        self._slow = True

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 -- aiohttp's signature
        """Resume what was paused. Called for each body; to resume what runs costs as much as parsing it."""
        if self._slow:
            super().resume_reading(resume_parser)

    def write(self, data: bytes) -> None:
        """Write at once, after the answers that are queued."""
        self.listener.write_queue.flush()
        if self.transport is not None:
            self.transport.write(data)

    def force_close(self) -> None:
        """Close once the answers that are queued are written. aiohttp calls it, too."""
        self.listener.write_queue.flush()
        super().force_close()

    def pause_writing(self) -> None:
        """Give a client that takes less than it is sent its time for that, too. Called by asyncio."""
        super().pause_writing()
        if self.transport is not None:
            seconds = self.listener.settings.write_seconds
            self._write_timer = self._loop.call_later(seconds, self._write_overdue, self.transport)

    def resume_writing(self) -> None:
        """Stop that time. asyncio calls this when the client has taken most of it."""
        _stop(self._write_timer)
        super().resume_writing()

    @staticmethod
    def _write_overdue(transport: asyncio.Transport) -> None:
        log.debug("connection closed", extra={"error": "the client does not read"})
        transport.abort()

    def eof_received(self) -> None:
        """Write what is queued: the client has ended its side, and the transport closes itself next."""
        self.listener.write_queue.flush()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timers. asyncio calls this when either side has closed the connection."""
        _stop(self._header_timer)
        _stop(self._write_timer)
        self.listener.write_queue.handled(len(self._messages))
        super().connection_lost(exc)

    @property
    def _idle(self) -> bool:
        """Whether nothing is left to answer. Before the first request aiohttp may not have begun to wait for one."""
        return not self._request_count or (self._waiter is not None and not self._waiter.done())

    @property
    def awaits_client(self) -> bool:
        """Whether it is the client's turn: there is no whole request that waits for its answer."""
        request = self._current_request
        return not self._messages and (request is None or not request.content.is_eof())

    @property
    def waiting_since(self) -> float:
        """When the last header was complete; before the first one, when the connection was made."""
        return self.received_at or self.made_at

    @property
    def quiet(self) -> bool:
        """Whether nothing of a next request has come yet."""
        return self._idle and self._header_of != self._request_count

    def _header_overdue(self, count: int) -> None:
        if self._request_count == count and self._idle:
            log.debug("connection closed", extra={"error": "the header took too long"})
            self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 -- aiohttp's signature
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP, or a handler that failed; the connection ends with it."""
        listener = self.listener
        if status == 400:
            listener.write_queue.handled()
            listener.count_bad_request(400)
            # To the log only: its words are aiohttp's and the client's.
            log.debug("malformed request", extra={"server": listener.name, "error": message or ""})
            answer = failure(400, "not an HTTP/1.1 request; with -v, the webhook logs the reason")
        else:
            listener.count_bad_request(500)
            log.error("request failed", extra={"server": listener.name}, exc_info=exc)
            answer = failure(500, "internal error: the server's log has the traceback")
        answer.keep_alive = False
        answer.write_queue = listener.write_queue
        return cast("web.StreamResponse", answer)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class _Server(web.Server):
    """aiohttp's server with our connections."""

    def __init__(self, listener: Listener, handler: Callable[[web.BaseRequest], Awaitable[Any]]) -> None:
        super().__init__(handler, request_factory=self._take_up)
        self._listener = listener
        self.last_accepted = 0.0

    def _take_up(
        self, message: RawRequestMessage, body: StreamReader, connection: Any, writer: Any, task: Any
    ) -> web.BaseRequest:
        """Make the request whose turn has come; aiohttp calls this."""
        connection.body = body
        return web.BaseRequest(message, body, connection, writer, task, self._loop)

    def __call__(self) -> Connection:
        """Make the connection for a socket just accepted; its TLS handshake is still to come."""
        settings = self._listener.settings
        self.last_accepted = self._loop.time()
        return Connection(
            self,
            self._listener,
            loop=self._loop,
            keepalive_timeout=settings.idle_seconds,
            lingering_time=settings.lingering_seconds,
            auto_decompress=False,
            access_log=None,
        )


class Listener:
    """A socket, its connections, and the handler that answers their requests.

    Shutdown has two steps, with time between them: from `drain` on, each answer closes its connection, so that the
    client connects elsewhere next time; `stop` closes the socket and waits for requests in flight.
    """

    def __init__(
        self,
        name: str,
        address: Address,
        handler: Callable[[web.BaseRequest], Awaitable[Answer]],
        settings: ListenerSettings,
        *,
        tls: ssl.SSLContext | None = None,
        count_bad_request: Callable[[int], None] = lambda _code: None,
    ) -> None:
        self.name = name
        self.settings = settings
        self.port = address.port
        self.write_queue = WriteQueue()
        self._address = address
        self._handler = handler
        self._tls = tls
        self.count_bad_request = count_bad_request
        self._draining = False
        self._crowded = Sampled(_WARN_SECONDS)
        self._server: _Server | None = None
        self._socket: asyncio.Server | None = None

    @property
    def problem(self) -> str | None:
        """Why clients cannot connect, or None."""
        if self._socket is None:
            return NOT_LISTENING
        return "stopping" if self._draining else None

    @property
    def connections(self) -> int:
        """How many connections there are whose handshake is done."""
        return len(self._server.connections) if self._server else 0

    async def start(self) -> None:
        """Listen. Raises OSError if the address is taken or not ours."""
        self._server = _Server(self, self._handle)
        try:
            self._socket = await self._listen(self._server)
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(error.errno, f"cannot listen on {self._address} for {self.name}: {reason}") from None
        self.port = self._socket.sockets[0].getsockname()[1]
        log.info("listening", extra={"server": self.name, "host": self._address.host, "port": self.port})

    async def _listen(self, server: _Server) -> asyncio.Server:
        tls: dict[str, Any] = {}
        if self._tls is not None:
            tls["ssl"] = self._tls
            tls["ssl_handshake_timeout"] = self.settings.handshake_seconds
            tls["ssl_shutdown_timeout"] = self.settings.close_seconds
        host, port = self._address.host, self._address.port
        loop = asyncio.get_running_loop()
        if not host and socket.has_dualstack_ipv6():
            # one socket for IPv6 and IPv4, so that there is one port too when any is asked for
            both = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
            return await loop.create_server(server, sock=both, backlog=_BACKLOG, **tls)
        return await loop.create_server(server, host or None, port, backlog=_BACKLOG, **tls)

    async def _handle(self, request: web.BaseRequest) -> Answer:
        """Answer a request by the handler, with `Connection: close` while the listener drains."""
        self.write_queue.handled()
        version = request.version
        if version not in _SPOKEN:
            self.count_bad_request(505)
            answer = failure(505, "requests must be of HTTP/1.1")
        else:
            answer = await self._handler(request)
        answer.write_queue = self.write_queue
        # aiohttp drops what came with a request for a protocol that it does not know.
        lost = request.headers.get("Upgrade", _UPGRADE).lower() != _UPGRADE
        if self._draining or lost or not request.keep_alive or not request.content.is_eof() or version != _NEWEST:
            answer.keep_alive = False
        return answer

    def make_room(self, new: Connection) -> None:
        """Close the one that has waited for its client longest, if `new` is one too many; `new` if all are busy."""
        if self._server is None or self.connections <= self.settings.connections:
            return
        # What is being closed has no transport any more.
        open_ones = [each for each in self._server.connections if isinstance(each, Connection) and each.transport]
        if len(open_ones) <= self.settings.connections:
            return
        waiting = [each for each in open_ones if each is not new and each.awaits_client]
        min(waiting, key=lambda each: each.waiting_since, default=new).force_close()
        if self._crowded.take():
            log.warning(
                "too many connections, the oldest are closed",
                extra={"server": self.name, "connections": self.settings.connections},
            )

    def drain(self) -> None:
        """End each connection with its next answer."""
        self._draining = True

    async def stop(self) -> None:
        """Close the socket, let requests in flight finish and idle connections bring a last one, then close."""
        self.drain()
        if self._socket is None or self._server is None:
            return
        self._socket.close()
        self._socket = None
        server, now = self._server, asyncio.get_running_loop().time
        # A socket accepted a moment ago is no connection yet: its handshake is under way.
        idle_until = now() + self.settings.drain_idle_seconds
        young_until = server.last_accepted + self.settings.drain_idle_seconds
        until = now() + self.settings.drain_seconds
        while (self.connections or now() < young_until) and now() < until:
            if now() >= idle_until:
                for connection in server.connections:
                    if isinstance(connection, Connection) and connection.quiet:
                        connection.force_close()
            await asyncio.sleep(_DRAIN_STEP_SECONDS)
        if self.connections:
            log.warning("connections cut off", extra={"server": self.name, "connections": self.connections})
        await server.shutdown(timeout=_CUT_OFF_SECONDS)
