"""AdmissionReview out: a decision to bytes. One encoder makes every answer.

Source: admission.k8s.io/v1; `status` is what kubectl shows, and for `Invalid` it shows the causes only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from webhook.admission.decision import ALLOWED
from webhook.admission.review import API_VERSION

if TYPE_CHECKING:
    from webhook.admission.decision import Decision
    from webhook.admission.review import AdmissionRequest
    from webhook.api.field import Finding

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
