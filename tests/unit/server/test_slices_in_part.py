"""Which reviews of slices are read in part, and which whole."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from tests.builders import encoded, make_device, make_review, make_slice
from webhook.admission.review import decode_slice_review
from webhook.server.http import Reviews
from webhook.server.settings import ReviewSettings
from webhook.telemetry.metrics import Metrics


@pytest.fixture
def reviews() -> Reviews:
    return Reviews(ReviewSettings(), Metrics(version="0", resources=()))


def a_large_slice() -> Any:
    return make_slice([make_device(f"gpu-{number}", attributes={"a": {"string": "x" * 300}}) for number in range(64)])


def read_at_once(reviews: Reviews, target: str, review: Any) -> Any:
    route = reviews._route_to(target)
    assert route is not None
    request = reviews._read_at_once(route, encoded(review))
    return None if request is None else request.object


def test_slice_of_some_size_is_read_in_part_where_it_is_only_judged(reviews: Reviews) -> None:
    in_part = read_at_once(reviews, "/validate", make_review(a_large_slice()))
    assert in_part["spec"]["devices"][0]["attributes"].__class__ is Raw
    assert read_at_once(reviews, "/mutate", make_review(a_large_slice())) == a_large_slice()


def test_slice_of_another_shape_than_servers_write_is_read_whole(reviews: Reviews) -> None:
    strange = {**a_large_slice(), "spec": {"devices": [1, *a_large_slice()["spec"]["devices"]]}}
    assert read_at_once(reviews, "/validate", make_review(strange)) == strange


def test_review_that_begins_like_one_of_a_slice_and_is_of_a_claim_is_read_whole(reviews: Reviews) -> None:
    """The last of equal names counts: a part of a claim that is not read would not be judged."""
    body = encoded(make_review(a_large_slice()))
    claims = b'"resource":{"group":"resource.k8s.io","version":"v1","resource":"resourceclaims"},"operation"'
    twice = body.replace(b'"operation"', claims, 1)
    route = reviews._route_to("/validate")
    assert route is not None
    assert decode_slice_review(twice) is None
    assert reviews._read_at_once(route, twice) is None  # which leaves it to the lane, as all claims of that size


@pytest.mark.parametrize(
    ("changes", "in_part"),
    [
        pytest.param({}, True, id="an update"),
        pytest.param({"oldObject": None}, True, id="nothing that was there before"),
        pytest.param({"object": None}, False, id="no object"),
        pytest.param({"oldObject": {"metadata": {"deletionTimestamp": "2026-06-01T12:00:00Z"}}}, False, id="deletion"),
        pytest.param({"oldObject": {"spec": {"devices": [{}] * 129}}}, False, id="an old slice that is too large"),
        pytest.param({"object": {"spec": {"devices": [{}] * 129}}}, False, id="a slice that is too large"),
    ],
)
def test_slice_is_read_in_part_unless_more_of_it_may_matter(changes: dict[str, Any], *, in_part: bool) -> None:
    review = make_review(a_large_slice(), a_large_slice(), **changes)
    assert (decode_slice_review(encoded(review)) is not None) is in_part
