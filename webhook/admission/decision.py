"""The outcome of a review, and the AdmissionReview that answers it. One encoder makes every answer.

Source: admission.k8s.io/v1; `status` is what kubectl shows, and for `Invalid` it shows the causes only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from webhook.admission.review import API_VERSION, AdmissionRequest
from webhook.api.field import JSON, FieldError, Finding, Severity
from webhook.api.messages import counted
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
    """Encode the whole AdmissionReview that answers a request."""
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
    """Encode a refusal because of ourselves: 500 for a fault, 504 for time spent, 429 for a crowd."""
    status = {"status": "Failure", "message": message, "reason": _REASONS[code], "code": code}
    response = {"uid": uid, "allowed": False, "status": status}
    return _encoder.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def encode_unchanged(uid: str, message: str) -> bytes:
    """Encode an answer of /mutate that lets the object pass: what we could not do must not stop it."""
    response = {"uid": uid, "allowed": True, "warnings": [message]}
    return _encoder.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def status_of(request: AdmissionRequest, decision: Decision) -> dict[str, Any]:
    """Return the Status of a refusal: 422 `Invalid` with causes, 403 `Forbidden` with everything in the message too."""
    code = decision.code
    status: dict[str, Any] = {"metadata": {}, "status": "Failure", "reason": _REASONS[code], "code": code}
    if decision.problem is not None:
        return status | {"message": decision.problem}
    denials = decision.denials
    texts = [f"{each.error} (rule {each.rule})" if each.rule else str(each.error) for each in denials]
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


def _cause(finding: Finding) -> dict[str, str]:
    error = finding.error
    message = f"{error.body} (rule {finding.rule})" if finding.rule else error.body
    return {"reason": error.type.value, "message": message, "field": error.field}


# --- as a JSON Patch (RFC 6902) that sets and removes values, and makes the parents they need ------

Pointer: TypeAlias = "tuple[str | int, ...]"

REMOVED: Final = object()
"""As a value: take away what the pointer shows, which must be there."""


def escape(step: str | int) -> str:
    """Return one step of a JSON Pointer (RFC 6901)."""
    return str(step).replace("~", "~0").replace("/", "~1")


def render(pointer: Pointer) -> str:
    """Return the pointer as text."""
    return "".join(f"/{escape(step)}" for step in pointer)


def patch_for(document: JSON, edits: Iterable[tuple[Pointer, JSON]]) -> tuple[dict[str, JSON], ...]:
    """Return operations that set each pointer to its value.

    Only the value itself is touched: `add` also replaces what is there. A missing object on the way is added
    first, empty, and once, however many edits need it; a null entry of a list is replaced, as `add` would insert.
    Steps through lists must exist: edits come from what was read in them. Only a list's next entry may be new.
    """
    operations: list[dict[str, JSON]] = []
    made: set[Pointer] = set()
    for pointer, value in edits:
        at = document
        for depth, step in enumerate(pointer[:-1]):
            parent = pointer[: depth + 1]
            at = at[step] if isinstance(step, int) else at.get(step)
            if at is None:
                if parent not in made:
                    made.add(parent)
                    operation = "replace" if isinstance(step, int) else "add"
                    operations.append({"op": operation, "path": render(parent), "value": {}})
                at = {}
        if value is REMOVED:
            operations.append({"op": "remove", "path": render(pointer)})
        else:
            operations.append({"op": "add", "path": render(pointer), "value": value})
    return tuple(operations)


def apply_patch(document: JSON, operations: Iterable[dict[str, JSON]]) -> JSON:
    """Carry out the operations of `patch_for` on a copy of the document."""
    for operation in operations:
        steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        document = _with(document, steps, operation.get("value", REMOVED))
    return document


def _with(document: JSON, steps: list[str], value: JSON) -> JSON:
    if not steps:
        return value
    step, rest = steps[0], steps[1:]
    if isinstance(document, list):
        copy, position = list(document), int(step)
        if position == len(copy):
            copy.append(value)
        else:
            copy[position] = _with(copy[position], rest, value)
        return copy
    if value is REMOVED and not rest:
        return {key: entry for key, entry in document.items() if key != step}
    return {**document, step: _with(document.get(step), rest, value)}
