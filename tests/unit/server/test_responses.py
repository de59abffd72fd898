"""Answers as bytes, for requests that are only as real as they need to be."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.https.serving import reply, status_reply, undated
from tests.unit.server.doubles import Transport
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
