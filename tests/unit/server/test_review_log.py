"""The one line that is logged for a review."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import make_admission_request, make_claim, make_context, make_rule, make_taint, make_toleration
from tests.unit.policy.documents import make_entry, policy_of
from webhook.admission.chain import mutate, validate
from webhook.policy.decide import Judge
from webhook.server.review_log import Outcome, log_review, trace_fields

if TYPE_CHECKING:
    from webhook.admission.context import AdmissionContext
    from webhook.admission.review import AdmissionRequest

LOG = logging.getLogger("webhook.server.http")
TRIED = make_rule(taint=make_taint(effect="Evict"))


REFUSED = make_admission_request(TRIED)
PATCHED = make_admission_request(make_rule(taint=make_taint(time_added=None)), dryRun=True)
WARNED = make_admission_request(make_claim([make_toleration(key=None, effect=None)]))
SENSELESS = make_admission_request(make_rule(), kind="x", subResource="status")
FINE = make_admission_request(make_rule())
CLAIM = make_admission_request(make_claim([make_toleration()]))
STRICTER = make_context(candidate=Judge(policy_of(rules=[make_entry("stricter", "deny")])))


def ruling(action: str) -> AdmissionContext:
    rules = [make_entry("spoken", action), make_entry("silent", "allow")]
    return make_context(judge=Judge(policy_of(rules=rules)))


TOLERATION = "spec.devices.requests[0].exactly.tolerations[0]"
SPOKEN = {"causes": [f"{TOLERATION}: FieldValueForbidden"], "rules": ["spoken"]}
LINT = {"causes": [f"{TOLERATION}.effect: FieldValueInvalid"], "rules": ["DT001"]}
CAUSE = "spec.taint.effect: FieldValueNotSupported"


def outcome(request: AdmissionRequest, code: int, context: AdmissionContext | None = None, path: str = "") -> Outcome:
    decided = (mutate if path == "/mutate" else validate)(request, context or make_context())
    return Outcome(path or "/validate", request, decided, code, b"")


@pytest.mark.parametrize(
    ("given", "headline", "said"),
    [
        (outcome(REFUSED, 422), "INFO review refused", {"causes": [CAUSE], "rules": ["field"]}),
        (
            outcome(PATCHED, 200, path="/mutate"),
            "INFO review answered with a patch",
            {"patched": ["/spec/taint/timeAdded"], "dryRun": True},
        ),
        (outcome(WARNED, 200), "INFO review answered with warnings", LINT),
        (
            outcome(SENSELESS, 400),
            "INFO review refused",
            {"subResource": "status", "error": "request.kind: Invalid value: must be an object"},
        ),
        (outcome(FINE, 200), "DEBUG review allowed", {}),
        (Outcome("/validate", FINE, None, 504, b""), "WARNING review not decided in time", {}),
        (outcome(CLAIM, 403, ruling("deny")), "INFO review refused", SPOKEN),
        (outcome(CLAIM, 200, ruling("warn")), "INFO review answered with warnings", SPOKEN),
        (outcome(CLAIM, 200, ruling("audit")), "INFO review noted for audit", SPOKEN),
        (
            outcome(CLAIM, 200, STRICTER),
            "INFO review that the candidate policy would answer differently",
            {"candidate": [f"{TOLERATION}: denied by stricter"]},
        ),
    ],
)
def test_review_is_one_line(
    caplog: pytest.LogCaptureFixture, given: Outcome, headline: str, said: dict[str, Any]
) -> None:
    request, decision = given.request, given.decision
    assert decision is None or decision.code == given.code
    with caplog.at_level(logging.DEBUG, logger="webhook.server.http"):
        log_review(LOG, given, 0.0001234)
    [record] = caplog.records
    plain = logging.makeLogRecord({}).__dict__
    fields = {name: value for name, value in vars(record).items() if name not in plain and name != "message"}
    assert f"{record.levelname} {record.getMessage()}" == headline
    common = {
        "path": given.path,
        "requestUID": request.uid,
        "resource": str(request.resource),
        "operation": "CREATE",
        "object": request.reference,
        "user": "jane@example.com",
        "durationSeconds": 0.000123,
        "allowed": given.code == 200,
        "code": given.code,
    }
    assert fields == common | said
    assert "Evict" not in str(fields), "no values"


def test_plain_pass_is_logged_for_the_verbose_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="webhook.server.http"):
        log_review(LOG, outcome(FINE, 200), 0.0001234)
    assert caplog.records == []


def test_fault_of_ours_is_an_error_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    fault = ValueError("broken")
    log_review(LOG, Outcome("/validate", FINE, None, 500, b"", fault), 0.1)
    [record] = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "review failed")
    assert record.exc_info is not None
    assert record.exc_info[1] is fault


TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
FIELDS = {"trace_id": TRACE, "span_id": SPAN, "trace_flags": "01"}


def test_line_of_a_review_names_the_trace_of_its_call(caplog: pytest.LogCaptureFixture) -> None:
    decision = validate(REFUSED, make_context())
    with caplog.at_level(logging.INFO, logger="webhook.server.http"):
        for broken in (False, True):
            given = Outcome("/validate", REFUSED, replace(decision, broke_glass=broken), 422, b"")
            log_review(LOG, given, 0.1, f"00-{TRACE}-{SPAN}-01")
        log_review(LOG, Outcome("/validate", REFUSED, decision, 422, b""), 0.1)
    *traced, untraced = [vars(record) for record in caplog.records]
    assert len(traced) == 3, "broken glass has a line of its own"
    assert all(fields.items() >= FIELDS.items() for fields in traced)
    assert not FIELDS.keys() & untraced.keys()


# The rows come from the W3C's specification.
@pytest.mark.parametrize(
    ("header", "flags"),
    [
        (f"00-{TRACE}-{SPAN}-01", "01"),
        (f" 00-{TRACE}-{SPAN}-01\t", "01"),
        (f"cc-{TRACE}-{SPAN}-01", "01"),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-will-be-like", "01"),
        (f"00-{TRACE}-{SPAN}-00", "00"),
        ("", None),
        ("00", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-1", None),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"cc-{TRACE}-{SPAN}-01more", None),
        (f"00-{TRACE[:-1]}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-01\n", None),
        (f"0\N{ARABIC-INDIC DIGIT ZERO}-{TRACE}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}-01-{'x' * 100_000}", None),
    ],
)
def test_header_of_a_trace_has_three_fields_and_a_malformed_one_is_ignored(header: str, flags: str | None) -> None:
    assert trace_fields(header) == ({} if flags is None else FIELDS | {"trace_flags": flags})
