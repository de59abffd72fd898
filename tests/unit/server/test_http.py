"""What of the admission port can be judged without a connection; the rest is in tests/https."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.builders import (
    make_admission_request,
    make_claim,
    make_context,
    make_rule,
    make_taint,
    make_toleration,
)
from webhook.admission.chain import mutate, validate
from webhook.server.http import Reviews, _duration_seconds, _log_review, _Outcome
from webhook.server.settings import ReviewSettings
from webhook.telemetry.metrics import Metrics

TRIED = make_rule(taint=make_taint(effect="Evict"))


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
    assert _duration_seconds(text) == pytest.approx(seconds)


@pytest.fixture
def reviews() -> Reviews:
    return Reviews(ReviewSettings(), Metrics(version="0", resources=()))


@pytest.mark.parametrize(
    ("target", "path", "seconds"),
    [
        ("/validate", "/validate", 8.0),
        ("/validate?timeout=5s", "/validate", 4.0),
        ("/validate?timeout=1h", "/validate", 24.0),
        ("/mutate?dryRun=x&timeout=5s&timeout=9s", "/mutate", 4.0),
        ("/mutate?timeouts=5s", "/mutate", 8.0),
    ],
)
def test_target_leads_to_a_route_with_four_fifths_of_the_callers_patience(
    reviews: Reviews, target: str, path: str, seconds: float
) -> None:
    route = reviews._route_to(target)
    assert route is not None
    assert (route.path, route.seconds) == (path, seconds)


@pytest.mark.parametrize("target", ["/", "/Validate", "/validate/", "//validate", "*", ""])
def test_other_targets_lead_nowhere(reviews: Reviews, target: str) -> None:
    assert reviews._route_to(target) is None


def logged(caplog: pytest.LogCaptureFixture, level: int, *arguments: Any) -> tuple[str, str, dict[str, Any]]:
    """The one line for a review: level, message, and the fields that the record got from us."""
    with caplog.at_level(level, logger="webhook.server.http"):
        _log_review(_Outcome(*arguments))
    [record] = caplog.records
    plain = logging.makeLogRecord({}).__dict__
    fields = {name: value for name, value in record.__dict__.items() if name not in plain and name != "message"}
    return record.levelname, record.getMessage(), fields


def expected(request: Any, **fields: Any) -> dict[str, Any]:
    return {
        "path": "/validate",
        "requestUID": request.uid,
        "resource": "devicetaintrules.v1.resource.k8s.io",
        "operation": "CREATE",
        "object": request.reference,
        "user": "jane@example.com",
        "durationSeconds": 0.000123,
        **fields,
    }


def test_refusal_is_logged_with_its_causes_and_without_values(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(TRIED)
    decision = validate(request, make_context())
    line = logged(caplog, logging.INFO, "/validate", request, decision, 422, 0.0001234)
    causes = ["spec.taint.effect: FieldValueNotSupported"]
    assert line == ("INFO", "review refused", expected(request, allowed=False, code=422, causes=causes))


def test_patch_is_logged_with_its_paths(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(make_rule(taint=make_taint(time_added=None)), dryRun=True)
    decision = mutate(request, make_context())
    line = logged(caplog, logging.INFO, "/mutate", request, decision, 200, 0.0001234)
    fields = expected(request, path="/mutate", allowed=True, code=200, patched=["/spec/taint/timeAdded"], dryRun=True)
    assert line == ("INFO", "review answered with a patch", fields)


def test_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(make_claim([make_toleration(key=None, effect=None)]))
    decision = validate(request, make_context())
    assert decision.warnings
    level, message, fields = logged(caplog, logging.INFO, "/validate", request, decision, 200, 0.0001234)
    assert (level, message, fields["allowed"]) == ("INFO", "review answered with warnings", True)


def test_senseless_request_is_logged_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(make_rule(), kind="x", subResource="status")
    decision = validate(request, make_context())
    level, message, fields = logged(caplog, logging.INFO, "/validate", request, decision, 400, 0.0001234)
    assert (level, message, fields["code"], fields["subResource"]) == ("INFO", "review refused", 400, "status")
    assert fields["error"] == "request.kind: Invalid value: must be an object"


def test_plain_pass_is_logged_for_the_verbose_only(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(make_rule())
    arguments = ("/validate", request, validate(request, make_context()), 200, 0.0001234)
    with caplog.at_level(logging.INFO, logger="webhook.server.http"):
        _log_review(_Outcome(*arguments))
    assert caplog.records == []
    assert logged(caplog, logging.DEBUG, *arguments)[:2] == ("DEBUG", "review allowed")


def test_review_that_took_too_long_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(make_rule())
    line = logged(caplog, logging.INFO, "/validate", request, None, 504, 0.0001234)
    assert line == ("WARNING", "review not decided in time", expected(request, allowed=False, code=504))
