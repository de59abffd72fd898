"""Answers as bytes, and those that are written together, for transports that only remember what came."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.https.serving import post, reply, status_reply, undated
from tests.unit.server.doubles import Clock, Transport
from webhook.server.listener import Listener, _Server
from webhook.server.responses import QUEUED_ANSWER_BYTES, Answer, WriteQueue, failure
from webhook.server.settings import Address, ListenerSettings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp import web

    from webhook.server.listener import Connection


def put(queue: WriteQueue, transport: Transport, answer: bytes) -> None:
    queue.put(cast("Any", transport), answer)


def busy_queue() -> WriteQueue:
    """One that has just written something, and has many requests before it."""
    queue = WriteQueue(Clock())
    queue.expect(1000)
    put(queue, Transport(), b"")
    return queue


def test_answers_that_follow_each_other_quickly_are_written_in_the_next_iteration_in_order() -> None:
    one, other = Transport(), Transport()

    async def scenario() -> None:
        queue = busy_queue()
        for transport, answer in ((one, b"1"), (other, b"2"), (one, b"3")):
            put(queue, transport, answer)
        assert one.written == other.written == b""
        await asyncio.sleep(0)
        assert (one.written, other.written) == (b"13", b"2")
        put(queue, other, b"4")
        await asyncio.sleep(0)
        assert other.written == b"24"

    asyncio.run(scenario())


def test_answers_are_written_with_that_of_the_last_request() -> None:
    transport = Transport()

    async def scenario() -> None:
        queue = WriteQueue(Clock())
        put(queue, transport, b"1")
        assert transport.written == b"1"  # the only one
        queue.expect(4)
        queue.handled()
        put(queue, transport, b"2")  # the first for a while
        assert transport.written == b"12"
        for answer in (b"3", b"4"):
            queue.handled()
            put(queue, transport, answer)
            assert transport.written == b"12"
        queue.handled()
        put(queue, transport, b"5")
        assert transport.written == b"12345"

    asyncio.run(scenario())


def test_answer_waits_for_no_more_than_one_review_that_takes_long() -> None:
    """Found by review: the first of eight answers, 50 ms of work each, waited for the other seven."""
    transport, clock = Transport(), Clock()

    async def scenario() -> None:
        queue = WriteQueue(clock)
        queue.expect(10)
        put(queue, transport, b"1")
        assert transport.written == b"1"
        put(queue, transport, b"2")  # at once after the first
        assert transport.written == b"1"
        for written, answer in ((b"123", b"3"), (b"1234", b"4")):
            clock.seconds += 0.05
            put(queue, transport, answer)
            assert transport.written == written

    asyncio.run(scenario())


def test_answers_of_a_client_that_sends_without_reading_do_not_pile_up() -> None:
    transport = Transport()
    answer = bytes(QUEUED_ANSWER_BYTES)

    async def scenario() -> None:
        queue = busy_queue()
        for count in range(1, 101):
            put(queue, transport, answer)
            assert count * len(answer) - len(transport.written) <= 256 * 1024

    asyncio.run(scenario())


def test_transport_that_closes_or_fails_keeps_no_other_from_its_answer(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Transport):
        def write(self, data: bytes) -> None:
            raise RuntimeError(data)

    closing, broken, fine = Transport(closing=True), Broken(), Transport()

    async def scenario() -> None:
        queue = busy_queue()
        for transport in (closing, broken, fine):
            put(queue, transport, b"answer")
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert (closing.written, fine.written) == (b"", b"answer")
    assert broken.aborted
    assert [record.message for record in caplog.records] == ["answer not written"]


async def say(request: web.BaseRequest) -> Answer:
    """An answer as long as the path says; `/never` gets none."""
    if request.raw_path == "/never":
        await asyncio.Event().wait()
    return Answer(b"x" * int(request.raw_path[1:]))


def connected(
    then: Callable[[Connection, Transport], Awaitable[None]], settings: ListenerSettings | None = None
) -> Transport:
    """What a connection has written after `then`, whose listener has just written something."""
    transport = Transport()

    async def scenario() -> None:
        listener = Listener("reviews", Address(), say, settings or ListenerSettings())
        listener.write_queue = busy_queue()
        listener._server = _Server(listener, listener._handle)
        connection = listener._server()
        connection.connection_made(cast("Any", transport))
        await then(connection, transport)

    asyncio.run(scenario())
    return transport


def answer(size: int) -> bytes:
    return (
        f"HTTP/1.1 200 OK\r\nDate: -\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n".encode()
        + b"x" * size
    )


async def until(holds: Callable[[], object]) -> None:
    """Returns in the iteration in which it holds."""
    while not holds():  # noqa: ASYNC110 -- iterations are what is counted
        await asyncio.sleep(0)


@pytest.mark.parametrize(("end", "closes"), [("force_close", True), ("eof_received", False)])
def test_answer_that_waits_is_written_before_its_connection_ends(end: str, *, closes: bool) -> None:
    async def then(connection: Connection, transport: Transport) -> None:
        connection.data_received(post(b"", "/1"))
        await until(lambda: connection.listener.write_queue._waiting)
        getattr(connection, end)()
        assert transport.closing is closes
        transport.closing = True  # after the end of the client's side asyncio closes it

    assert undated(connected(then).written) == answer(1)


def written_by(answer: Answer) -> bytes:
    """What is written in the same iteration of the loop, with an earlier answer in the queue."""
    transport = Transport()
    protocol = SimpleNamespace(writing_paused=False)
    request = SimpleNamespace(method="POST", transport=transport, protocol=protocol)

    async def scenario() -> bytes:
        answer.write_queue = busy_queue()
        put(answer.write_queue, transport, b"earlier, ")
        await answer.prepare(cast("Any", request))
        await answer.write_eof()  # which does not wait
        return transport.written

    return undated(asyncio.run(scenario()))


LAST = Answer(b"xx")
LAST.keep_alive = False


@pytest.mark.parametrize(
    ("given", "written"),
    [
        pytest.param(Answer(b"x"), b"", id="small"),
        pytest.param(
            Answer(b"x" * QUEUED_ANSWER_BYTES),
            b"earlier, " + answer(QUEUED_ANSWER_BYTES),
            id="large: after earlier ones",
        ),
        pytest.param(
            LAST,
            b"earlier, " + answer(2).replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
            id="last of its connection, after others",
        ),
    ],
)
def test_only_a_small_answer_waits(given: Answer, written: bytes) -> None:
    assert written_by(given) == written


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        pytest.param(post(b"", "/1") * 40, 40, id="many at once"),
        pytest.param(post(b"", "/1") + b"no request\r\n\r\n", 2, id="no HTTP"),
        pytest.param(post(b"", "/none"), 1, id="a handler that fails"),
        pytest.param(post(b"", "/1").replace(b"HTTP/1.1", b"HTTP/1.2"), 1, id="no such version"),
        pytest.param(post(b"", "/1", Connection="Upgrade", Upgrade="websocket") + post(b"", "/1"), 1, id="an upgrade"),
        pytest.param(post(b"", "/1", Connection="close") + post(b"", "/1") * 3, 1, id="some behind the last one"),
        pytest.param(post(b"", "/never") + post(b"", "/1") * 3, 0, id="a client that leaves"),
    ],
)
def test_each_request_is_counted_once_whatever_becomes_of_it(sent: bytes, answers: int) -> None:
    queue = WriteQueue()

    async def then(connection: Connection, transport: Transport) -> None:
        connection.listener.write_queue = queue
        connection.data_received(sent)
        await until(lambda: transport.written.count(b"HTTP/1.1 ") >= answers)
        await asyncio.sleep(0.01)
        connection.connection_lost(None)

    connected(then)
    assert queue._requests == 0


SLOW_CLIENT = ListenerSettings(write_seconds=0.05)


@pytest.mark.parametrize(
    ("end", "cut_off"),
    [
        pytest.param(lambda _: None, True, id="never reads"),
        pytest.param(lambda connection: connection.resume_writing(), False, id="reads again"),
        pytest.param(lambda connection: connection.connection_lost(None), False, id="is gone"),
    ],
)
def test_client_that_does_not_read_is_cut_off(end: Callable[[Connection], None], *, cut_off: bool) -> None:
    async def then(connection: Connection, _transport: Transport) -> None:
        connection.pause_writing()
        end(connection)
        await asyncio.sleep(4 * SLOW_CLIENT.write_seconds)

    assert connected(then, SLOW_CLIENT).aborted is cut_off


async def at_once() -> None: ...


def write(answer: Answer, transport: Transport | None, *, paused: bool = False) -> None:
    request = SimpleNamespace(
        method="POST",
        transport=transport,
        protocol=SimpleNamespace(writing_paused=paused),
        writer=SimpleNamespace(drain=at_once),
    )

    async def scenario() -> None:
        answer.write_queue = WriteQueue()
        await answer.prepare(cast("Any", request))
        await answer.write_eof()
        await asyncio.sleep(0)

    asyncio.run(scenario())


def test_answer_has_three_headers() -> None:
    transport = Transport()
    write(Answer(b"ok", status=503, content_type="text/plain"), transport)
    assert undated(transport.written) == reply(b"ok", "503 Service Unavailable", content_type="text/plain")


@pytest.mark.parametrize("transport", [None, Transport(closing=True)], ids=["gone", "closing"])
def test_client_that_is_gone_is_a_reset(transport: Transport | None) -> None:
    with pytest.raises(ConnectionResetError):
        write(Answer(b"ok"), transport)


def test_client_that_reads_again_gets_the_rest() -> None:
    transport = Transport()
    write(Answer(b"ok"), transport, paused=True)
    assert not transport.aborted
    assert transport.written.endswith(b"\r\n\r\nok")


def test_failure_is_a_status_that_says_what_to_do() -> None:
    transport = Transport()
    write(failure(405, 'use "POST"', allow="POST"), transport)
    told = status_reply("405 Method Not Allowed", "MethodNotAllowed", 'use "POST"', extra="Allow: POST\r\n")
    assert undated(transport.written) == told
