"""How reviews are read: how large the steps are (a law is in tests/properties/test_stepwise.py), and the heads."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.builders import UID, encoded, make_claim, make_review
from tests.tables import table
from webhook.admission.review import decode_stepwise, request_in
from webhook.api.meta import GroupVersionResource


def rests_in(text: bytes, step_bytes: int) -> int:
    """How often other threads get their time while a text is decoded."""
    rests: list[None] = []
    decode_stepwise(text, step_bytes=step_bytes, rest=lambda: rests.append(None))
    return len(rests)


@table(
    "step_bytes, steps",
    {
        "the whole text in one": (31, 0),
        "all six items": (30, 1),
        "all six items and no more": (24, 1),
        "five items and one": (23, 2),
        "three each": (12, 2),
        "two each": (11, 3),
        "two each and no more": (8, 3),
        "one each": (7, 6),
        "less than one, which cannot be split": (3, 6),
    },
)
def test_neighbours_are_decoded_together_as_far_as_a_step_goes(step_bytes: int, steps: int) -> None:
    """Once more for the list, to find its items."""
    assert rests_in(b"[1111,2222,3333,4444,5555,6666]", step_bytes) == 1 + steps


def rests_by_default(text: bytes) -> int:
    rests: list[None] = []
    decode_stepwise(text, rest=lambda: rests.append(None))
    return len(rests)


def test_up_to_64_kib_are_decoded_in_one_step_unless_the_caller_says_otherwise() -> None:
    two = b'["' + b"x" * 32_764 + b'","' + b"y" * 32_765 + b'"]'
    assert len(two) == 64 * 1024
    assert rests_by_default(two) == 1
    assert rests_by_default(two + b" ") == 2  # its two items fit one step


def test_values_are_split_down_to_the_twelfth_level() -> None:
    """Each level reads the text again."""
    assert rests_in(b"[" * 30 + b"]" * 30, 1) == 13
    assert rests_in(b'{"a":' * 30 + b"1" + b"}" * 30, 1) == 13


def test_fault_is_reported_at_its_place_in_the_whole_text() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^Number out of range - at `\$\[\.\.\.\]\[1\]`$"):
        decode_stepwise(b'{"a":[1,1e999999]}', step_bytes=4)


# --- the beginning of a review --------------------------------------------------------------------


# The documentation and earlier policies rely on these numbers, so they are written out.
HEAD_BYTES = 4096

CLAIM: Any = make_review(make_claim())


@pytest.mark.parametrize("body", [encoded(CLAIM), json.dumps(CLAIM, indent=2).encode()], ids=["packed", "spread out"])
def test_beginning_of_a_review_tells_its_uid_and_resource(body: bytes) -> None:
    request = request_in(body[:300] if b"\n" not in body else body)
    assert request is not None
    assert (request.uid, request.resource) == (UID, GroupVersionResource("resource.k8s.io", "v1", "resourceclaims"))


def test_review_that_ends_behind_its_uid_tells_no_resource() -> None:
    body = encoded(CLAIM)
    request = request_in(body[: body.index(UID.encode()) + len(UID) + 1])
    assert request is not None
    assert (request.uid, request.resource.resource) == (UID, "")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"{}",
        b"\xff" * 100,
        encoded({"request": {"object": {"uid": UID}, "uid": UID}}),
        encoded({"object": {"request": {"uid": UID}}}),
        b'{"request":{"uid":"' + b"1" * 129 + b'"',
        b'{"request":{"uid":"a\\"b"',
        b'{"request":{"uid":""',
        b" " * HEAD_BYTES + encoded(CLAIM),
    ],
)
def test_uid_that_does_not_come_first_is_not_taken(head: bytes) -> None:
    """What stands in an object is the client's."""
    assert request_in(head) is None


def test_uid_is_within_the_first_4096_bytes() -> None:
    end = b'"request":{"uid":"u"'
    for length, found in ((HEAD_BYTES, True), (HEAD_BYTES + 1, False)):
        head = b"{" + b" " * (length - len(end) - 1) + end
        assert len(head) == length
        assert (request_in(head) is not None) is found
