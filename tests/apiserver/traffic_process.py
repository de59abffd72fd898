"""Traffic in a process of its own, so that neither the tests' threads nor their lock slow it down.

A balancer is there from the start, and load while it is told so. Reads orders from stdin and answers on stdout, each
a line of JSON; ends with its stdin.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import uvloop

_HOST: Final = "127.0.0.1"
_SENDERS: Final = 8
_BEHIND_SECONDS: Final = 1.0
"""What cannot be sent for that long is not made up for: a pace, not a backlog."""


class Balancer:
    """What a Service is to API servers: one address, and each new connection goes to the next replica in the list.

    Like a Service it does not try another one: a replica that is in the list and does not listen is a failed call.
    """

    def __init__(self) -> None:
        self.ports: tuple[int, ...] = ()
        self.open = set[asyncio.Transport]()
        self._turn = 0

    async def listen(self) -> int:
        server = await asyncio.get_running_loop().create_server(lambda: _Caller(self), _HOST, 0, backlog=512)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def next_port(self) -> int | None:
        """Whose turn it is; None while there is nobody."""
        self._turn += 1
        return self.ports[self._turn % len(self.ports)] if self.ports else None


class _Side(asyncio.Protocol):
    """One of two connections whose bytes are handed to each other unread."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        other, self.other = self.other, None
        if other is not None and other.transport is not None:
            other.transport.close()  # once it has written what it was handed


class _Caller(_Side):
    """The side of the API server; the way to a replica is opened when it comes."""

    def __init__(self, balancer: Balancer) -> None:
        super().__init__()
        self._balancer = balancer
        self._opening: asyncio.Task[None] | None = None
        self._early = b""
        """What came before there was a replica to hand it to."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        caller = cast("asyncio.Transport", transport)
        self._balancer.open.add(caller)
        self._opening = asyncio.ensure_future(self._open(caller))

    def connection_lost(self, error: Exception | None) -> None:
        if self.transport is not None:
            self._balancer.open.discard(self.transport)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early += data
        else:
            super().data_received(data)

    async def _open(self, transport: asyncio.Transport) -> None:
        port = self._balancer.next_port()
        try:
            if port is None:
                raise ConnectionRefusedError
            _, replica = await asyncio.get_running_loop().create_connection(_Side, _HOST, port)
        except OSError:
            transport.abort()
            return
        self.other, replica.other = replica, self
        if transport.is_closing():
            self.connection_lost(None)
        else:
            super().data_received(self._early)


@dataclass(slots=True)
class Load:
    """Requests at a steady pace over a few connections that are kept."""

    host: str
    port: int
    context: ssl.SSLContext
    requests: list[bytes]
    """Taken in turn, whole."""
    interval_seconds: float
    sent: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    """Answers other than 201 and connections that broke."""
    latencies: list[float] = field(default_factory=list)
    _began: float = 0.0
    _due: float = 0.0
    _stopped: bool = False
    _senders: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        """Sends from now on."""
        self._began = self._due = time.monotonic()
        self._senders = [asyncio.ensure_future(self._send()) for _ in range(_SENDERS)]

    async def stop(self) -> dict[str, Any]:
        """What was sent and what came of it, once every answer is there."""
        self._stopped = True
        await asyncio.gather(*self._senders)
        latencies = sorted(self.latencies) or [0.0]
        return {
            "sent": self.sent,
            "seconds": time.monotonic() - self._began,
            "faults": self.faults,
            "p50": latencies[len(latencies) // 2],
            "p99": latencies[len(latencies) * 99 // 100],
            "slowest": latencies[-1],
        }

    async def _send(self) -> None:
        while not self._stopped:
            try:
                await self._use(*await asyncio.open_connection(self.host, self.port, ssl=self.context))
            except (OSError, EOFError) as error:
                self.faults[repr(error)] += 1
                await asyncio.sleep(self.interval_seconds)  # the other end may be gone: no frantic calls

    async def _use(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while not self._stopped:
                now = time.monotonic()
                due = self._due = max(self._due + self.interval_seconds, now - _BEHIND_SECONDS)
                request = self.requests[self.sent % len(self.requests)]
                self.sent += 1
                await asyncio.sleep(max(0.0, due - now))
                sent = time.monotonic()
                writer.write(request)
                status, body = await _answer(reader)
                self.latencies.append(time.monotonic() - sent)
                if status != 201:
                    self.faults[f"{status}: {body.decode(errors='replace')}"] += 1
        finally:
            writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body; an API server gives small answers their length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = next(line.partition(":")[2] for line in head.split("\r\n") if line.startswith("content-length:"))
    return int(head.split(" ", 2)[1]), await reader.readexactly(int(length))


def _context(ca: str, certificate: str, key: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(Path(certificate), Path(key))
    return context


async def _obey() -> None:
    balancer = Balancer()
    load: Load | None = None
    orders = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    _say({"port": await balancer.listen()})
    while line := await orders.readline():
        match json.loads(line):
            case {"ports": ports}:
                balancer.ports = tuple(ports)
                _say({})
            case {"cut": _}:
                for each in balancer.open:
                    each.close()
                _say({})
            case {"start": how}:
                context = _context(how["ca"], how["certificate"], how["key"])
                requests = [request.encode() for request in how["requests"]]
                load = Load(how["host"], how["port"], context, requests, how["interval_seconds"])
                load.start()
                _say({})
            case {"stop": _} if load is not None:
                _say(await load.stop())
                load = None
            case order:
                raise ValueError(f"not an order: {order}")


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_obey())
