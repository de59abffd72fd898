"""One review, walked from the resource's row in the table of kinds to a decision.

Field errors end the walk: what is malformed cannot be judged further. Everything else is gathered, so that an
author sees all of it at once.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.admission.context import DocumentedRules
from webhook.admission.decision import ALLOWED, Decision
from webhook.admission.defaulting import edits_for
from webhook.admission.jsonpatch import patch_for
from webhook.admission.lint import lint
from webhook.api.decode import Reader
from webhook.api.field import FieldError, Finding, Path, Severity, forbidden, not_supported
from webhook.api.meta import GroupVersionKind
from webhook.validation.kinds import KINDS, KindRules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.admission.context import AdmissionContext
    from webhook.admission.review import AdmissionRequest

_WRITES: Final = frozenset({"CREATE", "UPDATE"})
_STATUS: Final = "status"
MAX_FINDINGS: Final = 1000
"""Findings of one kind that are looked for and told; a hostile object could have millions."""
_TOO_DEEP: Final = Decision(problem="request.object: Invalid value: is nested too deeply to be judged")


class _Subject(NamedTuple):
    """What a request is about, decoded. `errors` are wrong types in the new object."""

    row: KindRules
    new: Any
    old: Any
    errors: tuple[FieldError, ...]


def validate(request: AdmissionRequest, context: AdmissionContext) -> Decision:
    """Whether the request may pass, with everything there is to say about it. Raises OutOfTime."""
    try:
        return _validate(request, context)
    except RecursionError:
        return _TOO_DEEP


def _validate(request: AdmissionRequest, context: AdmissionContext) -> Decision:
    subject = _subject(request)
    if isinstance(subject, Decision):
        return subject
    context.budget.check("field rules")
    errors = subject.errors or tuple(islice(_field_errors(subject, request, context), MAX_FINDINGS + 1))
    if errors:
        return _decision([Finding(Severity.DENY, error) for error in _told(errors)])
    if request.sub_resource or _by_controller(request, context):
        return ALLOWED
    context.budget.check("documented rules")
    findings = list(islice(_documented(subject, context), MAX_FINDINGS))
    context.budget.check("lint")
    findings += islice(lint(subject.new, subject.old, context.now), MAX_FINDINGS)
    return _decision(findings) if findings else ALLOWED


def mutate(request: AdmissionRequest, context: AdmissionContext) -> Decision:
    """What to set in the object. Never refuses: what is malformed is left to `validate`. Raises OutOfTime."""
    try:
        subject = _subject(request)
    except RecursionError:
        return ALLOWED
    if isinstance(subject, Decision) or subject.errors or request.sub_resource:
        return ALLOWED
    context.budget.check("defaulting")
    patch = patch_for(request.object, edits_for(subject.new, subject.old, context))
    return Decision(patch=patch, annotations={"decision": "defaulted"}) if patch else ALLOWED


def _subject(request: AdmissionRequest) -> _Subject | Decision:
    """The objects of a request, or the decision where there is nothing to judge."""
    if request.problems:
        return Decision(problem="; ".join(request.problems))
    row = KINDS.get(request.resource)
    if row is None:
        return _unknown(request)
    if request.operation not in _WRITES or not _judged(request.sub_resource, row):
        return ALLOWED
    mismatch = _kind_mismatch(request, row)
    if mismatch is not None:
        return Decision(problem=mismatch)
    if _only_clean_up(request):
        return ALLOWED
    errors: list[FieldError] = []
    new = row.decode(Reader.of(request.object, errors))
    old = None
    if request.operation == "UPDATE" and isinstance(request.old_object, dict):
        old_errors: list[FieldError] = []
        old = row.decode(Reader.of(request.old_object, old_errors))
    return _Subject(row, new, old, tuple(errors))


def _judged(sub_resource: str, row: KindRules) -> bool:
    return not sub_resource or (sub_resource == _STATUS and row.status_errors is not None)


def _only_clean_up(request: AdmissionRequest) -> bool:
    """Whether an object that is being deleted loses a finalizer or the like; that must never wait for us.

    The old object says whether it is being deleted, as the new one is the requester's word. A changed spec is
    judged all the same: a rule that is kept by a finalizer goes on acting.
    """
    old, new = request.old_object, request.object
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    meta = old.get("metadata")
    deleting = isinstance(meta, dict) and meta.get("deletionTimestamp") is not None
    return deleting and new.get("spec") == old.get("spec")


def _unknown(request: AdmissionRequest) -> Decision:
    supported = sorted({resource.resource for resource in KINDS})
    error = not_supported(Path.root().child("resource"), str(request.resource), supported)
    error = replace(error, detail=f"not judged here; {error.detail}")
    return _decision([Finding(Severity.WARN, error)])


def _kind_mismatch(request: AdmissionRequest, row: KindRules) -> str | None:
    """Why the object is not of the kind that its resource says; a crafted request can make the two disagree."""
    if not isinstance(request.object, dict):
        return "request.object: Required value: must be the object that is created or updated"
    group, version, _ = request.resource
    if request.object.get("kind") == row.kind and request.object.get("apiVersion") == f"{group}/{version}":
        return None
    expected = GroupVersionKind(group, version, row.kind)
    return f"request.object: Invalid value: must be {expected}, as request.resource says"


def _field_errors(subject: _Subject, request: AdmissionRequest, context: AdmissionContext) -> Iterator[FieldError]:
    row = subject.row
    if request.sub_resource == _STATUS and row.status_errors is not None:
        return row.status_errors(subject.new, subject.old, context.release)
    return row.errors(subject.new, subject.old, context.release)


def _told(errors: tuple[FieldError, ...]) -> tuple[FieldError, ...]:
    if len(errors) <= MAX_FINDINGS:
        return errors
    rest = forbidden(Path.root(), f"has more than {MAX_FINDINGS} errors, of which only the first are listed")
    return (*errors[:MAX_FINDINGS], rest)


def _by_controller(request: AdmissionRequest, context: AdmissionContext) -> bool:
    """Whether a controller brings what its template was already judged for; it could not act on advice."""
    return request.username in context.trusted_controllers


def _documented(subject: _Subject, context: AdmissionContext) -> Iterator[Finding]:
    documented = subject.row.documented
    if documented is None or context.documented_rules is DocumentedRules.OFF:
        return
    severity = Severity.DENY if context.documented_rules is DocumentedRules.ENFORCE else Severity.WARN
    for error in documented(subject.new, subject.old):
        yield Finding(severity, error)


def _decision(findings: list[Finding]) -> Decision:
    """The decision with its audit annotations."""
    denied = any(finding.severity is Severity.DENY for finding in findings)
    annotations = {"decision": "denied" if denied else "warned"}
    codes = sorted({finding.code or finding.rule or "field" for finding in findings})
    annotations["rules"] = ",".join(codes)
    return Decision(tuple(findings), annotations=annotations)
