"""R3: a body that is decoded in steps comes to what one call of the decoder makes of it."""

from __future__ import annotations

import json
from random import Random

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.properties.strategies import any_json, mutated_bodies, reviews
from webhook.admission.review import BadReview, decode_review, decode_stepwise


def outcome(body: bytes, step_bytes: int | None) -> object:
    """What a body comes to: its value, or the error's kind and text."""
    try:
        if step_bytes is None:
            return msgspec.json.decode(body)
        return decode_stepwise(body, step_bytes=step_bytes)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return type(error), str(error)


@given(any_json, st.integers(1, 64), st.sampled_from([None, 1]))
def test_steps_come_to_the_same_value_as_one_call(value: object, step_bytes: int, indent: int | None) -> None:
    body = json.dumps(value, indent=indent).encode()
    assert outcome(body, step_bytes) == outcome(body, None)


@given(any_json, st.integers(1, 64), st.integers(0, 200), st.binary(max_size=3))
def test_spoilt_body_fails_in_steps_as_it_does_in_one_call(value: object, step: int, at: int, spoilt: bytes) -> None:
    body = json.dumps(value).encode()
    at %= len(body)
    broken = body[:at] + spoilt + body[at + 1 :]
    assert outcome(broken, step) == outcome(broken, None)


@pytest.mark.parametrize("text", [b'{"a":1,"a":{"b":[1,2]},"c":[]}', b' \n[1 , {"x" : [ ] } ]\n', b"[]", b"{}", b'"x"'])
def test_names_that_repeat_and_blanks_make_no_difference(text: bytes) -> None:
    assert outcome(text, 1) == outcome(text, None)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_text_that_is_nested_too_deeply_fails_alike(opening: bytes) -> None:
    text = opening * 20_000
    assert outcome(text, 1) == outcome(text, None)


def request_in(body: bytes) -> object:
    """The request, without what is known of its specs, which is asked for in small ones only."""
    try:
        return structs.replace(decode_review(body), known=None, old_known=None)
    except BadReview as error:
        return str(error).partition(":")[0]


# What is small is read in one way and what is large in another; blanks make a body large.
BLANKS = b" " * 256 * 1024


@settings(phases=[Phase.reuse, Phase.generate])
@given(reviews, st.integers(0, 2**32))
def test_small_review_is_read_as_a_large_one_is(review: object, seed: int) -> None:
    for body in [json.dumps(review).encode(), *mutated_bodies(review, Random(seed))[:8]]:
        assert request_in(body) == request_in(body + BLANKS)
