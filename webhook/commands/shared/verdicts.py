"""What both webhooks would answer to a request, plus errors for unknown fields."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from webhook.admission.chain import MAX_FINDINGS, mutate, validate
from webhook.admission.jsonpatch import apply_patch
from webhook.api.field import ErrorType, Finding, Severity
from webhook.api.meta import GroupVersionKind
from webhook.commands.shared.entries import text
from webhook.validation.objects import object_errors
from webhook.validation.strict import LINTED_AS_WELL, strict_findings

if TYPE_CHECKING:
    from webhook.admission.context import AdmissionContext
    from webhook.admission.decision import Decision
    from webhook.admission.review import AdmissionRequest
    from webhook.api.field import JSON


class Verdict(NamedTuple):
    """`strict`: unknown fields; `remarks`: findings of /mutate; `findings`: those of /validate that `strict` lacks."""

    request: AdmissionRequest
    """With the object as /mutate leaves it."""
    patch: tuple[dict[str, JSON], ...]
    strict: tuple[Finding, ...]
    remarks: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    decision: Decision


def verdict_on(request: AdmissionRequest, context: AdmissionContext) -> Verdict:
    """The verdict on a request."""
    strict = _unknown_fields(request, context)
    unknown = {finding.error.path.written for finding in strict}
    defaulted = mutate(request, context)
    if defaulted.patch:
        request = structs.replace(request, object=apply_patch(request.object, defaulted.patch))
    decision = validate(request, context)
    findings = tuple(
        finding
        for finding in decision.findings
        if finding.code not in LINTED_AS_WELL or finding.error.path.written not in unknown
    )
    return Verdict(request, defaulted.patch, strict, defaulted.findings, findings, decision)


def whole_verdict_on(request: AdmissionRequest, context: AdmissionContext) -> Verdict:
    """The verdict plus everything that an API server itself would refuse in the object.

    In a cluster the server validates the object before it calls the webhook; a file has not been validated yet.
    """
    verdict = verdict_on(request, context)
    if request.sub_resource or not isinstance(request.object, dict):
        return verdict
    kind = GroupVersionKind.parse(text(request.object, "apiVersion"), text(request.object, "kind"))
    old = request.old_object if request.operation == "UPDATE" else None
    errors = tuple(islice(object_errors(request.object, old, kind, context.release), MAX_FINDINGS))
    if not errors:
        return verdict
    wrong = {error.path.written for error in errors if error.type is ErrorType.TYPE_INVALID}
    crowded = tuple(f"{error.path}[" for error in errors if error.type is ErrorType.TOO_MANY)
    kept = [each for each in verdict.findings if not _reported_already(each, wrong, crowded)]
    return verdict._replace(findings=(*(Finding(Severity.DENY, error) for error in errors), *kept))


def _reported_already(finding: Finding, wrong: set[str], crowded: tuple[str, ...]) -> bool:
    """Whether its wrong type is reported already, or it is in a list that is too long for the server to validate."""
    error = finding.error
    if error.type is ErrorType.TYPE_INVALID:
        return error.path.written in wrong
    return finding.code is None and finding.rule is None and str(error.path).startswith(crowded)


def _unknown_fields(request: AdmissionRequest, context: AdmissionContext) -> tuple[Finding, ...]:
    """Unknown fields of what a request writes; the decoder has answered for the rest of a status update."""
    value = request.object
    if not isinstance(value, dict) or request.sub_resource:
        return ()
    kind = GroupVersionKind.parse(text(value, "apiVersion"), text(value, "kind"))
    return tuple(strict_findings(value, kind, context.release))
