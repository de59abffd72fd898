"""Stored patches whose taints have no time, as /mutate was away: an update that gives them one adds nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.builders import DRIVER, NOW
from tests.tables import table
from tests.unit.admission.guarding import allowing
from tests.unit.admission.patch_guarding import evicting, patching, send_patch, taints_of
from webhook.api.meta import format_time

LIMIT = allowing(pods=3)
STORED = patching({"driver": DRIVER}, evicting(time_added=None))


def updated(time: str | None, **meta: Any) -> Any:
    patch = patching({"driver": DRIVER}, evicting(time_added=time))
    return {**patch, "metadata": {**patch["metadata"], **meta}}


@table("meta", {"a label": {"labels": {"team": "a"}}, "a finalizer": {"finalizers": ["devicetaint.io/x"]}})
def test_a_patch_without_a_time_may_change_beside_its_spec(meta: Any) -> None:
    mutated, judged, stored = send_patch(updated(None, **meta), STORED, impact=LIMIT)
    assert mutated.allowed
    assert judged.allowed
    assert taints_of(stored)[0][2] == format_time(NOW)


def test_a_patch_without_a_time_may_not_get_an_earlier_one() -> None:
    past = format_time(NOW - timedelta(minutes=2))
    assert not send_patch(updated(past), STORED, impact=LIMIT)[1].allowed


def test_a_patch_with_a_time_may_not_get_an_earlier_one() -> None:
    before = patching({"driver": DRIVER}, evicting())
    past = format_time(NOW - timedelta(seconds=30))
    assert not send_patch(updated(past), before, impact=LIMIT)[1].allowed


def test_a_patch_without_a_time_is_judged_if_it_is_widened() -> None:
    before = patching({"driver": DRIVER, "pool": "node-0"}, evicting(time_added=None))
    assert not send_patch(updated(None), before, impact=LIMIT)[1].allowed
