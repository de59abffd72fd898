"""Shares of pods or devices that may be unavailable."""

from __future__ import annotations

from tests.tables import table
from webhook.eviction.profiles import max_unavailable
from webhook.policy.model import Share


@table(
    "percent, total, expected", {"64.4 %": (64.4, 250, 161), "8.8 %": (8.8, 375, 33), "a hair more": (8.81, 375, 34)}
)
def test_a_share_is_rounded_up_only_if_it_is_no_whole_number(percent: float, total: int, expected: int) -> None:
    assert max_unavailable(Share(percent), total) == expected
