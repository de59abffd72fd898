"""Reviews of slices: how much of one is read, where patches are put into it, and what is answered if that fails."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from typing import Any

import pytest
from msgspec import Raw

from tests.builders import (
    DRIVER,
    encoded,
    make_claim,
    make_device,
    make_patch,
    make_review,
    make_slice,
    make_toleration,
)
from tests.unit.server.asking import reviewed
from webhook.admission.review import decode_slice_review
from webhook.api.decode import Reader
from webhook.api.patches import decode_patch
from webhook.patches.slice_patches import SlicePatches
from webhook.server.http import Reviews
from webhook.server.settings import ReviewSettings
from webhook.server.state import ReviewState
from webhook.telemetry.metrics import Metrics

PATCH = decode_patch(Reader.of(make_patch(attributes={f"{DRIVER}/healthy": {"bool": False}}), []))
SLICE = make_review(make_slice([make_device()]))
threads: list[bool] = []


class Watched(SlicePatches, frozen=True):
    """Notes on which thread it is asked."""

    def overrides(self, *arguments: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return super().overrides(*arguments)


class Broken(SlicePatches, frozen=True):
    """Has a fault."""

    def overrides(self, *_: Any) -> Any:
        raise ZeroDivisionError


def state_of(patches: SlicePatches | None) -> ReviewState:
    return ReviewState(slice_patches=lambda: patches)


def test_selectors_of_patches_are_evaluated_beside_the_loop() -> None:
    threads.clear()
    answer = reviewed(state_of(Watched((PATCH,))), SLICE, path="/mutate")
    assert threads == [False]
    paths = [each["path"] for each in json.loads(b64decode(answer["patch"]))]
    assert "/spec/devices/0/attributes/gpu.example.com~1healthy" in paths


@pytest.mark.parametrize("patches", [None, SlicePatches(), SlicePatches(known=False)])
def test_without_patches_nothing_is_set(patches: SlicePatches | None) -> None:
    answer = reviewed(state_of(patches), SLICE, path="/mutate")
    assert (answer["allowed"], "patch" in answer) == (True, False)


def test_state_says_whether_slices_are_changed() -> None:
    states = [None, SlicePatches(), SlicePatches((PATCH,))]
    assert [state_of(each).changes_slices for each in states] == [False, False, True]
    assert not ReviewState().changes_slices


def test_slice_passes_as_its_driver_sends_it_where_something_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    answer = reviewed(state_of(Broken((PATCH,))), SLICE, path="/mutate")
    assert (answer["allowed"], "patch" in answer) == (True, False)
    assert [record.getMessage() for record in caplog.records] == ["review failed"]


def test_other_kinds_and_verdicts_are_as_before() -> None:
    threads.clear()
    state = state_of(Watched((PATCH,)))
    assert reviewed(state, SLICE)["allowed"]
    assert reviewed(state, make_review(make_claim([make_toleration()])), path="/mutate")["allowed"]
    assert threads == []


LARGE = make_slice([make_device(f"gpu-{number}", attributes={"a": {"string": "x" * 300}}) for number in range(64)])
STRANGE = {**LARGE, "spec": {"devices": [1, *LARGE["spec"]["devices"]]}}


@pytest.mark.parametrize(
    ("target", "manifest", "in_part"),
    [
        pytest.param("/validate", LARGE, True, id="only judged"),
        pytest.param("/mutate", LARGE, False, id="to be changed"),
        pytest.param("/validate", STRANGE, False, id="of another shape than servers write"),
    ],
)
def test_slice_of_some_size_is_read_in_part_where_that_is_enough(target: str, manifest: Any, *, in_part: bool) -> None:
    reviews = Reviews(ReviewSettings(), Metrics(version="0", resources=()))
    route = reviews._route_to(target)
    assert route is not None
    request = reviews._read_at_once(route, encoded(make_review(manifest)))
    assert request is not None
    if in_part:
        assert request.object["spec"]["devices"][0]["attributes"].__class__ is Raw
    else:
        assert request.object == manifest


def test_review_that_begins_like_one_of_a_slice_and_is_of_a_claim_is_read_whole() -> None:
    """The last of equal names counts: a part of a claim that is not read would not be judged."""
    body = encoded(make_review(LARGE))
    claims = b'"resource":{"group":"resource.k8s.io","version":"v1","resource":"resourceclaims"},"operation"'
    twice = body.replace(b'"operation"', claims, 1)
    assert decode_slice_review(twice) is None
    reviews = Reviews(ReviewSettings(), Metrics(version="0", resources=()))
    route = reviews._route_to("/validate")
    assert route is not None
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
    review = make_review(LARGE, LARGE, **changes)
    assert (decode_slice_review(encoded(review)) is not None) is in_part
