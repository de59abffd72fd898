"""Which schedules open in both of the hours that clocks show twice in autumn."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.tables import table
from webhook.policy.model import EvictionWindow
from webhook.policy.windows import state_of


@table(
    "hour, second",
    {"every hour": ("*", True), "every other hour": ("*/2", False), "the same, by name": ("2-23/2", False)},
)
def test_only_a_schedule_of_every_hour_opens_again_where_clocks_go_back(hour: str, *, second: bool) -> None:
    """In Berlin two o'clock comes twice, at midnight UTC and an hour later."""
    window = EvictionWindow(f"0 {hour} * * *", 60.0, "Europe/Berlin")
    found = [state_of((window,), datetime(2026, 10, 25, each, 0, 30, tzinfo=UTC)).open for each in (0, 1)]
    assert found == [True, second]
