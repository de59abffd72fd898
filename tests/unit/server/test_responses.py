"""Answers as bytes, for requests that are only as real as they need to be."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.server.transports import Transport
from webhook.server.responses import Answer, WriteQueue, failure


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
    head, _, body = transport.written.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 503 Service Unavailable"
    assert lines[1].startswith(b"Date: ")
    assert lines[2:] == [b"Content-Type: text/plain", b"Content-Length: 2"]
    assert body == b"ok"


def test_last_answer_says_so() -> None:
    transport = Transport()
    answer = Answer(b"ok")
    answer.keep_alive = False
    write(answer, transport)
    assert b"\r\nConnection: close\r\n\r\n" in transport.written


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
    head, _, body = transport.written.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"\r\nAllow: POST" in head
    assert json.loads(body) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'use "POST"',
        "reason": "MethodNotAllowed",
        "code": 405,
    }
