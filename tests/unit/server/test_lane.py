"""R3: large bodies are received one at a time, and one that stalls keeps none of the others waiting."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol

from tests.builders import encoded, make_claim, make_meta, make_review
from webhook.admission.review import decode_review
from webhook.server.lane import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), timeout=10))


def content() -> StreamReader:
    protocol = BaseProtocol(asyncio.get_running_loop())
    protocol.connection_made(asyncio.Transport())
    return StreamReader(protocol, 2**16)


async def settled() -> None:
    """What can go on without a clock has gone on."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_body_waits_for_the_end_of_the_one_before_it() -> None:
    async def scenario() -> None:
        turns = asyncio.Lock()
        first, second = content(), content()
        first_turn, second_turn = Turn(turns), Turn(turns)
        first.feed_data(b"a")
        second.feed_data(b"b")
        assert await first_turn.chunk(first) == b"a"
        waiting = asyncio.ensure_future(second_turn.chunk(second))
        await settled()
        assert not waiting.done()
        first_turn.end()
        assert await waiting == b"b"

    run(scenario)


def test_body_that_stalls_lets_the_next_one_in_and_loses_nothing() -> None:
    async def scenario() -> None:
        turns = asyncio.Lock()
        slow, other = content(), content()
        slow_turn, other_turn = Turn(turns), Turn(turns)
        stalled = asyncio.ensure_future(slow_turn.chunk(slow))
        await settled()
        other.feed_data(b"b")
        assert await other_turn.chunk(other) == b"b"
        assert not stalled.done()
        slow.feed_data(b"late")
        assert await stalled == b"late"
        slow.feed_data(b"later")
        waiting = asyncio.ensure_future(slow_turn.chunk(slow))
        await settled()
        assert not waiting.done(), "it stands in the queue again"
        other_turn.end()
        assert await waiting == b"later"

    run(scenario)


@pytest.mark.parametrize("stalled", [False, True])
def test_body_that_is_given_up_lets_the_next_one_in(*, stalled: bool) -> None:
    async def scenario() -> None:
        turns = asyncio.Lock()
        reader, turn = content(), Turn(turns)
        if stalled:
            waiting = asyncio.ensure_future(turn.chunk(reader))
            await settled()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        else:
            reader.feed_eof()
            assert await turn.chunk(reader) == b""
        turn.end()
        turn.end()
        assert not turns.locked()

    run(scenario)


def test_body_that_is_given_up_while_it_waits_leaves_the_turn_to_the_one_that_has_it() -> None:
    async def scenario() -> None:
        turns = asyncio.Lock()
        reader, turn, second = content(), Turn(turns), Turn(turns)
        reader.feed_data(b"a")
        await turn.chunk(reader)
        waiting = asyncio.ensure_future(second.chunk(content()))
        await settled()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        second.end()
        assert turns.locked()
        turn.end()
        assert not turns.locked()

    run(scenario)


@pytest.mark.parametrize("kibibytes", [300, 2000])
def test_large_review_is_decoded_with_rests_and_a_small_one_without(kibibytes: int) -> None:
    def rests(review: dict[str, Any]) -> int:
        taken = 0

        def rest() -> None:
            nonlocal taken
            taken += 1

        body = encoded(review)
        assert decode_review(body, rest) == decode_review(body)
        return taken

    claim = make_claim(meta=make_meta(annotations={f"a{at}": "x" * 1000 for at in range(kibibytes)}))
    assert rests(make_review(claim)) > kibibytes / 64
    assert rests(make_review(make_claim())) == 0


def test_request_without_objects_keeps_its_names() -> None:
    review = make_review(make_claim(meta={"generateName": "train-", "annotations": {"a": "x"}}), make_claim())
    request = decode_review(encoded(review))
    bare = request.without_objects()
    assert (bare.reference, bare.uid, bare.username) == (request.reference, request.uid, request.username)
    assert bare.old_object is None
    assert "annotations" not in str(bare.object)
