"""Shares of a total that come to a whole number."""

from __future__ import annotations

from tests.tables import table
from webhook.policy.limits import resolve_limit
from webhook.policy.model import Share


@table(
    "percent, total, expected",
    {"65.6 %": (65.6, 375, 246), "36.48 %": (36.48, 625, 228), "a hair less": (65.59, 375, 245), "all": (100, 7, 7)},
)
def test_a_share_is_rounded_down_only_if_it_is_no_whole_number(percent: float, total: int, expected: int) -> None:
    assert resolve_limit(Share(percent), total) == expected
