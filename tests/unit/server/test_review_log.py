"""The one line that is logged for a review."""

from __future__ import annotations

import logging
from dataclasses import replace
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
from tests.unit.policy.documents import make_entry, policy_of
from webhook.admission.chain import mutate, validate
from webhook.policy.decide import Judge
from webhook.server.review_log import Outcome, log_review

LOG = logging.getLogger("webhook.server.http")
TRIED = make_rule(taint=make_taint(effect="Evict"))


def logged(caplog: pytest.LogCaptureFixture, level: int, *arguments: Any) -> tuple[str, str, dict[str, Any]]:
    """The one line for a review: level, message, and the fields that the record got from us."""
    with caplog.at_level(level, logger="webhook.server.http"):
        path, request, decision, code = arguments
        log_review(LOG, Outcome(path, request, decision, code, b""), 0.0001234)
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
    line = logged(caplog, logging.INFO, "/validate", request, decision, 422)
    causes = ["spec.taint.effect: FieldValueNotSupported"]
    assert line == (
        "INFO",
        "review refused",
        expected(request, allowed=False, code=422, causes=causes, rules=["field"]),
    )


def test_patch_is_logged_with_its_paths(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(make_rule(taint=make_taint(time_added=None)), dryRun=True)
    decision = mutate(request, make_context())
    line = logged(caplog, logging.INFO, "/mutate", request, decision, 200)
    fields = expected(request, path="/mutate", allowed=True, code=200, patched=["/spec/taint/timeAdded"], dryRun=True)
    assert line == ("INFO", "review answered with a patch", fields)


def test_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(make_claim([make_toleration(key=None, effect=None)]))
    decision = validate(request, make_context())
    assert decision.warnings
    level, message, fields = logged(caplog, logging.INFO, "/validate", request, decision, 200)
    assert (level, message, fields["allowed"]) == ("INFO", "review answered with warnings", True)


def test_senseless_request_is_logged_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(make_rule(), kind="x", subResource="status")
    decision = validate(request, make_context())
    level, message, fields = logged(caplog, logging.INFO, "/validate", request, decision, 400)
    assert (level, message, fields["code"], fields["subResource"]) == ("INFO", "review refused", 400, "status")
    assert fields["error"] == "request.kind: Invalid value: must be an object"


def test_plain_pass_is_logged_for_the_verbose_only(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(make_rule())
    arguments = ("/validate", request, validate(request, make_context()), 200)
    with caplog.at_level(logging.INFO, logger="webhook.server.http"):
        path, request, decision, code = arguments
        log_review(LOG, Outcome(path, request, decision, code, b""), 0.0001234)
    assert caplog.records == []
    assert logged(caplog, logging.DEBUG, *arguments)[:2] == ("DEBUG", "review allowed")


def test_review_that_took_too_long_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(make_rule())
    line = logged(caplog, logging.INFO, "/validate", request, None, 504)
    assert line == ("WARNING", "review not decided in time", expected(request, allowed=False, code=504))


@pytest.mark.parametrize(
    ("action", "level", "message"),
    [
        ("deny", "INFO", "review refused"),
        ("warn", "INFO", "review answered with warnings"),
        ("audit", "INFO", "review noted for audit"),
    ],
)
def test_rules_that_spoke_are_named(caplog: pytest.LogCaptureFixture, action: str, level: str, message: str) -> None:
    rules = [make_entry("spoken", action), make_entry("silent", "allow")]
    request = make_admission_request(make_claim([make_toleration()]))
    decision = validate(request, make_context(judge=Judge(policy_of(rules=rules))))
    told = logged(caplog, logging.INFO, "/validate", request, decision, decision.code)
    assert (*told[:2], told[2]["rules"]) == (level, message, ["spoken"])


def test_candidate_that_would_answer_otherwise_is_told(caplog: pytest.LogCaptureFixture) -> None:
    candidate = Judge(policy_of(rules=[make_entry("stricter", "deny")]))
    request = make_admission_request(make_claim([make_toleration()]))
    decision = validate(request, make_context(candidate=candidate))
    level, message, fields = logged(caplog, logging.INFO, "/validate", request, decision, 200)
    assert (level, message) == ("INFO", "review that the candidate policy would answer differently")
    assert fields["candidate"] == ["spec.devices.requests[0].exactly.tolerations[0]: denied by stricter"]
    assert fields["allowed"] is True


def test_fault_of_ours_is_an_error_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(make_rule())
    fault = ValueError("broken")
    log_review(LOG, Outcome("/validate", request, None, 500, b"", fault), 0.1)
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "review failed")
    assert record.exc_info is not None
    assert record.exc_info[1] is fault


def test_line_of_a_review_names_the_trace_of_its_call(caplog: pytest.LogCaptureFixture) -> None:
    request = make_admission_request(TRIED)
    decision = validate(request, make_context())
    header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    with caplog.at_level(logging.INFO, logger="webhook.server.http"):
        for broken in (False, True):
            outcome = Outcome("/validate", request, replace(decision, broke_glass=broken), 422, b"")
            log_review(LOG, outcome, 0.1, header)
        log_review(LOG, Outcome("/validate", request, decision, 422, b""), 0.1)
    *traced, untraced = [vars(record) for record in caplog.records]
    assert len(traced) == 3, "broken glass has a line of its own"
    for fields in traced:
        assert fields["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736"
        assert fields["span_id"] == "00f067aa0ba902b7"
        assert fields["trace_flags"] == "01"
    assert [name for name in untraced if name.startswith(("trace_", "span_"))] == []
