"""R3: large bodies are received one at a time, and one that stalls keeps none of the others waiting."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import StreamReader
from aiohttp.base_protocol import BaseProtocol

from tests.builders import encoded, make_claim, make_meta, make_review
from webhook.admission.review import decode_review
from webhook.server.bodies import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), timeout=60))


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


def test_body_that_stalls_lets_the_next_one_in_and_needs_no_turn_until_it_comes_in_earnest() -> None:
    """F12: a byte now and then kept the turn for as long as a body may take."""

    async def scenario() -> None:
        turns = asyncio.Lock()
        slow, other = content(), content()
        slow_turn, other_turn = Turn(turns), Turn(turns)
        stalled = asyncio.ensure_future(slow_turn.chunk(slow))
        await settled()
        other.feed_data(b"b")
        assert await other_turn.chunk(other) == b"b", "it has stalled"
        assert not stalled.done()
        slow.feed_data(b"late")
        assert await stalled == b"late"
        for byte in b"later":
            slow.feed_data(bytes([byte]))
            assert await slow_turn.chunk(slow) == bytes([byte])
        slow.feed_data(b"x" * 10_000)
        assert len(await slow_turn.chunk(slow)) == 10_000
        slow.feed_data(b"y" * 10_000)
        waiting = asyncio.ensure_future(slow_turn.chunk(slow))
        await settled()
        assert not waiting.done(), "it stands in the queue again"
        other_turn.end()
        assert len(await waiting) == 10_000

    run(scenario)


def test_turn_ends_though_bytes_keep_arriving() -> None:
    """F12: who sends a byte within each ten milliseconds does not stall."""

    async def scenario() -> None:
        turns = asyncio.Lock()
        steady, other = content(), content()
        steady_turn, other_turn = Turn(turns), Turn(turns)
        steady.feed_data(b"a")
        assert await steady_turn.chunk(steady) == b"a"
        other.feed_data(b"b")
        waiting = asyncio.ensure_future(other_turn.chunk(other))
        while not waiting.done():
            steady.feed_data(b"a")
            reading = asyncio.ensure_future(steady_turn.chunk(steady))
            await asyncio.wait((reading, waiting), return_when=asyncio.FIRST_COMPLETED)
        assert await waiting == b"b"
        other_turn.end()
        await reading

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
