"""The outcome of a review, and the AdmissionReview that answers it. One encoder makes every answer.

Source: admission.k8s.io/v1; `status` is what kubectl shows, and for `Invalid` it shows the causes only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from webhook.admission.review import API_VERSION, AdmissionRequest
from webhook.api.counts import counted
from webhook.api.field import JSON, FieldError, Finding, Severity
from webhook.api.rules import DeviceTaintRule
from webhook.inventory.impact import Impact
from webhook.inventory.targets import DeviceNames
from webhook.policy.model import Action

BREAK_GLASS: Final = "break-glass"
"""The name under which a refusal is reported that was waived for a member of a break-glass group."""
WARNING_MAX: Final = 256
"""Characters of one warning; the API server cuts longer ones (apiserver/pkg/endpoints/filters/warning.go)."""
WARNINGS_MAX: Final = 4096
"""Characters of all warnings of an answer."""
_ROOM_FOR_REST: Final = 40


class Change(StrEnum):
    """How the candidate policy differs."""

    DENIED = "denied"
    ALLOWED = "allowed"
    WARNED = "warned"
    SILENT = "silent"


class Assumed(NamedTuple):
    """A rule that acts (NoSchedule or more) once it is stored, or the rules that will come of a patch.

    `names` are the devices on which it begins to act; `impact` is what it hit when it was looked at.
    """

    rules: tuple[DeviceTaintRule, ...]
    names: tuple[DeviceNames, ...]
    impact: Impact


class Difference(NamedTuple):
    """One request or toleration on which the candidate policy decides differently.

    `rule` is the rule that makes the difference: the candidate's rule that matches now, else the active policy's rule
    that no longer does.
    """

    path: str
    what: str
    rule: str
    change: Change


@dataclass(frozen=True, slots=True)
class Decision:
    """Findings, and what to change. Whether the request is allowed follows from the findings."""

    findings: tuple[Finding, ...] = ()
    patch: tuple[dict[str, JSON], ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    hits: tuple[tuple[str, Action], ...] = ()
    """The policy's rules that matched, in order, with the action that took effect."""
    differences: tuple[Difference, ...] = ()
    """Where a candidate policy would have decided differently."""
    assumed: Assumed | None = None
    """What will act, unless this was a dry run: the next reviews must count it."""
    broke_glass: bool = False
    """Whether a refusal was waived for a member of a break-glass group."""
    softened: bool = False
    """Whether the patch softens a rule that was not softened before."""
    problem: str | None = None
    """Why the request itself made no sense, which refuses it with 400."""

    @property
    def allowed(self) -> bool:
        """No finding denies it."""
        return self.problem is None and not any(finding.severity is Severity.DENY for finding in self.findings)

    @property
    def turned_down(self) -> bool:
        """Whether it is allowed only because the policy turns a refusal into a warning."""
        return self.allowed and any(finding.turned_down for finding in self.findings)

    @property
    def names(self) -> tuple[str, ...]:
        """The sorted names of all findings: codes, rules of the policy that did more than allow, and names of ours."""
        names = {finding.name for finding in self.findings}
        names.update(name for name, action in self.hits if action is not Action.ALLOW)
        if self.broke_glass:
            names.add(BREAK_GLASS)
        return tuple(sorted(names))

    @property
    def denials(self) -> tuple[Finding, ...]:
        """The findings that refuse the request."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.DENY)

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """The field errors that refuse the request."""
        return tuple(finding.error for finding in self.denials)

    @property
    def code(self) -> int:
        """200; 400 for a request that makes no sense; 403 where policy refuses; 422 where the object is wrong."""
        if self.problem is not None:
            return 400
        if not self.findings:
            return 200
        denials = self.denials
        if not denials:
            return 200
        return 403 if all(finding.policy for finding in denials) else 422

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings to show, cut to what the API server lets through."""
        texts = [_warning(finding) for finding in self.findings if finding.severity is Severity.WARN]
        kept: list[str] = []
        room = WARNINGS_MAX - _ROOM_FOR_REST
        for text in texts:
            room -= len(text)
            if room < 0:
                rest = len(texts) - len(kept)
                kept.append(f"and {counted(rest, 'more warning')}")
                break
            kept.append(text)
        return tuple(kept)


ALLOWED: Final = Decision()


def _warning(finding: Finding) -> str:
    tail = f" [{finding.code}]" if finding.code else f" (rule {finding.rule})" if finding.rule else ""
    text = " ".join(str(finding).split())
    if len(text) + len(tail) > WARNING_MAX:
        text = f"{text[: WARNING_MAX - len(tail) - 3]}..."
    return text + tail


# --- as bytes -------------------------------------------------------------------------------------

_REASONS: Final = {
    400: "BadRequest",
    403: "Forbidden",
    413: "RequestEntityTooLarge",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    504: "Timeout",
}
_encoder: Final = msgspec.json.Encoder()
# Most answers are this one, so its parts are encoded once.
_ALLOWED_HEAD: Final = f'{{"apiVersion":"{API_VERSION}","kind":"AdmissionReview","response":{{"uid":'.encode()
_ALLOWED_TAIL: Final = b',"allowed":true}}'


def encode_response(request: AdmissionRequest, decision: Decision) -> bytes:
    """The whole AdmissionReview that answers a request."""
    if decision is ALLOWED or not (decision.findings or decision.patch or decision.annotations or decision.problem):
        return _ALLOWED_HEAD + _encoder.encode(request.uid) + _ALLOWED_TAIL
    response: dict[str, Any] = {"uid": request.uid, "allowed": decision.allowed}
    if decision.findings or decision.problem:
        if not response["allowed"]:
            response["status"] = status_of(request, decision)
        warnings = decision.warnings
        if warnings:
            response["warnings"] = warnings
    if decision.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = _encoder.encode(decision.patch)  # bytes are written as base64, as the API wants them
    if decision.annotations:
        response["auditAnnotations"] = decision.annotations
    return _encoder.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def encode_failure(uid: str, code: int, message: str) -> bytes:
    """An answer that refuses because of ourselves: 500 for a fault, 504 for time spent, 429 for a crowd."""
    status = {"status": "Failure", "message": message, "reason": _REASONS[code], "code": code}
    response = {"uid": uid, "allowed": False, "status": status}
    return _encoder.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def encode_unchanged(uid: str, message: str) -> bytes:
    """An answer of /mutate that lets the object pass as it is: what we could not do must not stand in its way."""
    response = {"uid": uid, "allowed": True, "warnings": [message]}
    return _encoder.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def status_of(request: AdmissionRequest, decision: Decision) -> dict[str, Any]:
    """The Status of a refusal: 422 `Invalid` with causes, 403 `Forbidden` with everything in the message too."""
    code = decision.code
    status: dict[str, Any] = {"metadata": {}, "status": "Failure", "reason": _REASONS[code], "code": code}
    if decision.problem is not None:
        return status | {"message": decision.problem}
    denials = decision.denials
    texts = [_line(finding) for finding in denials]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind = f"{request.kind.kind}.{request.kind.group}" if request.kind.group else request.kind.kind
    name = request.display_name
    verb = "is invalid" if code == 422 else "is forbidden"
    return status | {
        "message": f'{kind} "{name}" {verb}: {listed}',
        "details": {
            "name": name,
            "group": request.kind.group,
            "kind": request.kind.kind,
            "causes": [_cause(finding) for finding in denials],
        },
    }


def _line(finding: Finding) -> str:
    return f"{finding.error} (rule {finding.rule})" if finding.rule else str(finding.error)


def _cause(finding: Finding) -> dict[str, str]:
    error = finding.error
    message = f"{error.body} (rule {finding.rule})" if finding.rule else error.body
    return {"reason": error.type.value, "message": message, "field": error.field}
