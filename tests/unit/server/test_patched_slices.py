"""Reviews of slices into which patches are put: where they are decided, and what is answered if that fails."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from typing import Any

import pytest

from tests.builders import DRIVER, make_claim, make_device, make_patch, make_review, make_slice, make_toleration
from tests.unit.server.test_http import reviewed
from webhook.api.decode import Reader
from webhook.api.patches import decode_patch
from webhook.patches.slice_patches import SlicePatches
from webhook.server.state import ReviewState

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
