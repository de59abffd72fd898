"""One log line for a review: what happened, references, never bodies."""

from __future__ import annotations

import logging
import re
from enum import StrEnum
from typing import Final, NamedTuple

from webhook.admission.decision import Decision
from webhook.admission.review import AdmissionRequest
from webhook.api.field import Severity

_ALLOWED: Final = "review allowed"
_LOGGED_ENTRIES: Final = 16
_LOGGED_RULES: Final = 64
_OF_BROKEN_GLASS: Final = frozenset(
    {"requestUID", "operation", "object", "user", "impact", "rules", "dryRun", "trace_id", "span_id", "trace_flags"}
)


class Unjudged(StrEnum):
    """Why a review was answered without having been judged."""

    FAULT = "fault"
    DEADLINE = "deadline"
    CROWDED = "crowded"
    OVERSIZE = "oversize"


class Outcome(NamedTuple):
    """A review that was answered. Without a decision, time ran out or there was an internal error."""

    path: str
    request: AdmissionRequest
    decision: Decision | None
    code: int
    reply: bytes
    fault: Exception | None = None
    shed: str = ""
    """Why it was refused without being read."""
    unjudged: Unjudged | None = None
    """Why /validate has no decision."""
    passed: bool = False
    """Whether the object passes without a decision."""


def log_review(log: logging.Logger, outcome: Outcome, seconds: float, traceparent: str = "") -> None:
    """Write one line: at debug without findings, else at info or above. `traceparent` is the API server's, or empty."""
    message, level = _headline(outcome)
    request, decision = outcome.request, outcome.decision
    fields: dict[str, object] = {
        "path": outcome.path,
        "requestUID": request.uid,
        "resource": str(request.resource),
        "operation": request.operation,
        "object": request.reference,
        "user": request.username,
        "allowed": outcome.passed if decision is None else decision.allowed,
        "code": outcome.code,
        "durationSeconds": round(seconds, 6),
        **trace_fields(traceparent),
    }
    if outcome.shed:
        fields["reason"] = outcome.shed
    if request.sub_resource:
        fields["subResource"] = request.sub_resource
    if request.dry_run:
        fields["dryRun"] = True
    if decision is not None:
        fields.update(_about(decision))
    log.log(level, message, extra=fields, exc_info=outcome.fault)
    if decision is not None and decision.broke_glass:
        # A line of its own, so that an alert can be set on it.
        about = {name: value for name, value in fields.items() if name in _OF_BROKEN_GLASS}
        log.warning("impact limits bypassed by a member of a break-glass group", extra=about)


def _headline(outcome: Outcome) -> tuple[str, int]:
    decision = outcome.decision
    if outcome.fault is not None:
        return "review failed", logging.ERROR
    if outcome.shed:
        return "review shed", logging.WARNING
    if decision is None:
        return "review not decided in time", logging.WARNING
    message = _headline_of(decision)
    return message, logging.DEBUG if message == _ALLOWED else logging.INFO


def _headline_of(decision: Decision) -> str:
    if not decision.allowed:
        return "review refused"
    if decision.patch:
        return "review answered with a patch"
    if any(finding.severity is Severity.WARN for finding in decision.findings):
        return "review answered with warnings"
    if decision.findings:
        return "review noted for audit"
    return "review that the candidate policy would answer differently" if decision.differences else _ALLOWED


def _about(decision: Decision) -> dict[str, object]:
    """List what was found, without values of the object: they may be confidential."""
    about: dict[str, object] = {}
    causes = [f"{finding.error.field}: {finding.error.type.value}" for finding in decision.findings[:_LOGGED_ENTRIES]]
    if causes:
        about["causes"] = causes
    if decision.problem is not None:
        about["error"] = decision.problem
    if decision.patch:
        about["patched"] = [str(edit.get("path", "")) for edit in decision.patch[:_LOGGED_ENTRIES]]
    if decision.names:
        about["rules"] = list(decision.names[:_LOGGED_RULES])
    if "impact" in decision.annotations:
        about["impact"] = decision.annotations["impact"]
    if decision.turned_down:
        about["turnedDown"] = True
    if decision.differences:
        about["candidate"] = [
            f"{each.path}: {each.change} by {each.rule}" for each in decision.differences[:_LOGGED_ENTRIES]
        ]
    return about


# API servers send the header as W3C Trace Context defines it (https://www.w3.org/TR/trace-context/#traceparent-header);
# the fields have the names that OpenTelemetry gives them in logs
# (https://opentelemetry.io/docs/specs/otel/compatibility/logging_trace_context/).

TRACEPARENT: Final = "traceparent"
_VERSION_0: Final = "00"
# Later versions may add fields behind a dash; version ff is not one.
_HEADER: Final = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


def trace_fields(header: str) -> dict[str, str]:
    """Return trace_id, span_id and trace_flags, in lower-case hexadecimal; {} if the header is not valid."""
    found = _HEADER.fullmatch(header.strip(" \t"))
    if found is None or (found[1] == _VERSION_0 and found[5]):
        return {}
    return {"trace_id": found[2], "span_id": found[3], "trace_flags": found[4]}
