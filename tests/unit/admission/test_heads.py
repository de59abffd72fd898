"""What the beginning of a review tells, and what must not be taken for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import UID, encoded, make_claim, make_review
from webhook.admission.review import request_in
from webhook.api.meta import GroupVersionResource

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
