"""Advice on dates and windows: what it says is so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.builders import NOW
from tests.tables import table
from tests.unit.policy.documents import make_entry, make_exception, policy_of, warnings_in
from webhook.api.meta import format_time
from webhook.policy.lint import expiring

NIGHT = {"schedule": "0 22 * * *", "duration": "8h"}


@table(
    "windows, told",
    {
        "one a day": ([NIGHT], True),
        "one on some days": ([{"schedule": "30 6 * * 1-5", "duration": "8h"}], True),
        "one after the other": ([NIGHT, {"schedule": "0 6 * * *", "duration": "8h"}], False),
        "every five minutes": ([{"schedule": "*/5 * * * *", "duration": "5m"}], False),
        "several a day": ([{"schedule": "0 0,8,16 * * *", "duration": "8h"}], False),
        "all day": ([{"schedule": "0 0 * * *", "duration": "24h"}], False),
    },
)
def test_a_deadline_is_out_of_reach_where_no_windows_can_meet(windows: Any, *, told: bool) -> None:
    profile = {"windows": windows, "deadline": "24h", "afterDeadline": "delete"}
    found = warnings_in(eviction=[profile])
    assert [each.partition(" ")[0] for each in found] == (["DT122"] if told else [])


@table(
    "begins, ends, expected",
    {
        "long ago, and soon": (-800, 3, ["DT108"]),
        "long ago, and in a month": (-800, 30, []),
        "long ago, and in two years": (-800, 800, ["DT109"]),
        "in a year, and a month later": (400, 430, []),
        "in a year, and two years later": (400, 1200, ["DT109"]),
    },
)
def test_an_exception_is_long_by_what_is_left_of_it(begins: int, ends: int, expected: list[str]) -> None:
    dates = {
        "notBefore": format_time(NOW + timedelta(days=begins)),
        "expiresAt": format_time(NOW + timedelta(days=ends)),
    }
    exception = {**make_exception("e", ["r"]), **dates}
    policy = policy_of(rules=[make_entry("r", match={"tolerations": {"keys": ["a/*"]}})], exceptions=[exception])
    assert [each.code for each in expiring(policy, NOW)] == expected
