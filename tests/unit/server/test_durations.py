"""Time-outs as API servers write them."""

from __future__ import annotations

import pytest

from webhook.server.http import duration_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10.0),
        ("1m30s", 90.0),
        ("1h0m0s", 3600.0),
        ("1.5s", 1.5),
        ("500ms", 0.5),
        ("1m0.25s", 60.25),
        ("7µs", 7e-6),
        ("0s", None),
        ("", None),
        ("10", None),
        ("s", None),
        ("-1s", None),
        ("1s ", None),
        ("٣s", None),
        ("9" * 33 + "s", None),
    ],
)
def test_timeouts_are_read_as_go_writes_them(text: str, seconds: float | None) -> None:
    assert duration_seconds(text) == pytest.approx(seconds)
