"""What both webhooks would answer to a request, and what strict field names add to that."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from webhook.admission.chain import mutate, validate
from webhook.admission.jsonpatch import apply_patch
from webhook.api.meta import GroupVersionKind
from webhook.commands.entries import text
from webhook.validation.strict import LINTED_AS_WELL, strict_findings

if TYPE_CHECKING:
    from webhook.admission.context import AdmissionContext
    from webhook.admission.decision import Decision
    from webhook.admission.review import AdmissionRequest
    from webhook.api.field import JSON, Finding


class Verdict(NamedTuple):
    """`strict` are unknown fields; `remarks` what /mutate tells; `findings` what /validate does, less what is known."""

    request: AdmissionRequest
    """With the object as /mutate leaves it."""
    patch: tuple[dict[str, JSON], ...]
    strict: tuple[Finding, ...]
    remarks: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    decision: Decision


def verdict_on(request: AdmissionRequest, context: AdmissionContext) -> Verdict:
    """The verdict on a request."""
    strict = _strict(request, context)
    told = {finding.error.path.written for finding in strict}
    defaulted = mutate(request, context)
    if defaulted.patch:
        request = structs.replace(request, object=apply_patch(request.object, defaulted.patch))
    decision = validate(request, context)
    findings = tuple(
        finding
        for finding in decision.findings
        if finding.code not in LINTED_AS_WELL or finding.error.path.written not in told
    )
    return Verdict(request, defaulted.patch, strict, defaulted.findings, findings, decision)


def _strict(request: AdmissionRequest, context: AdmissionContext) -> tuple[Finding, ...]:
    """Unknown fields of what a request writes; the decoder has answered for the rest of a status update."""
    value = request.object
    if not isinstance(value, dict) or request.sub_resource:
        return ()
    kind = GroupVersionKind.parse(text(value, "apiVersion"), text(value, "kind"))
    return tuple(strict_findings(value, kind, context.release))
