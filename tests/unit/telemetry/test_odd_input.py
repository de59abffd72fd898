"""What clients and failures bring that is longer or odder than usual."""

from __future__ import annotations

import json
import logging

import pytest

from webhook.telemetry import logs
from webhook.telemetry.metrics import Metrics


@pytest.mark.parametrize("version", ["abc", "1.x", "", "1..0", "0.0.1"])
def test_metrics_are_shown_whatever_version_of_the_format_is_asked_for(version: str) -> None:
    metrics = Metrics(version="0", resources=())
    text, _ = metrics.exposition(f"application/openmetrics-text; version={version}")
    assert b"device_taint_webhook_" in text


def test_long_trace_names_what_was_raised_and_what_led_to_it() -> None:
    error = KeyError("what was raised")
    error.__cause__ = ValueError("x" * 20_000)
    record = logging.makeLogRecord({"exc_info": (KeyError, error, None)})
    trace = json.loads(logs.JSONFormatter().format(record))["trace"]
    assert "ValueError: xxx" in trace
    assert trace.endswith("KeyError: 'what was raised'")
    assert len(trace) <= 16 * 1024


def test_review_that_was_too_large_is_counted_by_its_code() -> None:
    metrics = Metrics(version="0", resources=["resourceclaims"])
    metrics.count_review("/validate", "resourceclaims", "CREATE", 413, 0.1)
    text = metrics.exposition("")[0].decode()
    assert 'code="413"' in text
