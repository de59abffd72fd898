"""What the soak of the worker takes for right: when a pod may go, and what a process keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.apiserver.eviction.sized import lengths_of
from tests.apiserver.eviction.soak_model import Held
from tests.unit.eviction.objects import claim
from webhook.inventory.state import Inventory

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SLACK = timedelta(seconds=5)


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "could"),
    [(-1, False), (1, True), (9, True), (14, True), (16, False), (20, True), (24, True), (26, False), (39, False)],
)
def test_pod_may_go_while_an_ended_taint_or_a_new_pause_may_not_be_noticed_yet(seconds: float, could: bool) -> None:  # noqa: FBT001 -- a column
    """A pause from 9 to 19; the taint ends at 20 and another lets the pod go from 40 on."""
    pod = Held("ns", "pod", "uid", ("driver", "pool", "device"), 0, stays=False)
    pod.follow(at(0), at(0), at(0), free=True)
    pod.follow(at(0), at(9), at(9), free=False)
    pod.follow(at(0), at(19), at(19), free=True)
    pod.follow(at(40), at(20), at(20), free=True)
    assert pod.could_go(at(seconds), SLACK) is could


def test_pause_does_not_hide_that_a_taint_ended_just_before_its_end() -> None:
    pod = Held("ns", "pod", "uid", ("driver", "pool", "device"), 15, stays=False)
    pod.follow(at(0), at(0), at(0), free=True)
    pod.follow(at(0), at(10), at(10), free=False)
    pod.follow(at(35), at(18), at(18), free=False)
    pod.follow(at(35), at(19), at(19), free=True)
    assert pod.could_go(at(19.5), SLACK), "the worker may hear of the end of the pause first"
    assert not pod.could_go(at(24), SLACK)
    assert pod.could_go(at(36), SLACK)


def test_names_count_alike_whatever_there_was_before() -> None:
    """Many names under one key are a dict, and stay one until few are left."""
    soaked, fresh = Inventory(), Inventory()
    claims = [claim(f"claim-{number}") for number in range(9)]
    for each in claims:
        soaked.apply(None, each)
    for each in claims[6:]:
        soaked.apply(each, None)
    for each in claims[:6]:
        fresh.apply(None, each)
    assert lengths_of(soaked) == lengths_of(fresh)
