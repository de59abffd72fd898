"""Stored claims and templates: what the policy would say if they were created now. No access to a cluster.

A cluster does not record who created an object. The author of a template is in an annotation; the author of a claim
that was created directly is unknown, so rules on requesters match it if they refuse, and do not if they allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple

from webhook.admission.claim_view import REQUESTED_BY, ClaimView, author_of
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import Change
from webhook.admission.policy_check import AUTHOR_RULE, Explanation, claims_matter, differences, explanation_of_claim
from webhook.admission.review import AdmissionRequest
from webhook.admission.rulings import Rulings, claim_rulings, findings_of, unknown_author, who_asks
from webhook.api.claims import FROM_TEMPLATE, ResourceClaim, ResourceClaimTemplate, made_for_extended_resource
from webhook.api.decode import Reader
from webhook.api.field import JSON, FieldError, Finding, Path, Severity, forbidden
from webhook.api.meta import GroupVersionKind, GroupVersionResource, parse_time
from webhook.api.pods import decode_owner
from webhook.policy.decide import Judge
from webhook.policy.match import Scope
from webhook.policy.model import CLAIM_CONTROLLER, PolicyMode, UnknownAuthor
from webhook.validation.kinds import BY_KIND, KINDS

_AUTHOR: Final = Path.root().child("spec", "metadata", "annotations").key(REQUESTED_BY)


class AuditReason(StrEnum):
    """Why an object is listed. A closed set, safe as a metric label."""

    REFUSED = "refused"
    WARNED = "warned"
    REFUSED_BY_CANDIDATE = "refusedByCandidate"
    UNKNOWN_AUTHOR = "unknownAuthor"
    MALFORMED = "malformed"


class Author(StrEnum):
    """What is known of the author of an object. A closed set, safe as a metric label."""

    PROVEN = "proven"
    CLAIMED = "claimed"
    """Named in the annotation; whether an API server compared that with the user is not known."""
    UNKNOWN = "unknown"


class AtRest(NamedTuple):
    """One finding about a stored object. `resource`, `reason` and `author` are closed sets; rules are the policy's."""

    resource: str
    reason: AuditReason
    author: Author
    finding: Finding


def audited(value: JSON, context: AdmissionContext, proved_since: datetime | None = None) -> Iterator[AtRest]:
    """Yield the findings on a stored claim or template, judged as if it were created at `context.now`.

    Nothing for other kinds, for objects that are being deleted, and for claims of extended resources. API servers have
    proved authors since that time; those of older objects are unknown. None: authors are as they claim. Raises
    OutOfTime.
    """
    resource = _resource_of(value)
    if resource is None or value["metadata"].get("deletionTimestamp") is not None:
        return
    row, errors = KINDS[resource], list[FieldError]()
    new = row.decode(Reader.of(value, errors))
    if errors:
        for error in errors:
            yield AtRest(resource.resource, AuditReason.MALFORMED, Author.UNKNOWN, Finding(Severity.DENY, error))
        return
    if isinstance(new, ResourceClaim) and made_for_extended_resource(new, decode_owner(Reader.of(value, errors))):
        return
    stored = _Stored(new, value, resource, context, proved_since)
    if not stored.generated and row.documented is not None:
        for finding in _documented(row.documented(new, None), context):
            yield stored.at_rest(finding)
    yield from stored.by_policy()
    if context.candidate is not None:
        yield from stored.by_candidate(context.candidate)


def explained_at_rest(value: JSON, context: AdmissionContext) -> tuple[Author, Explanation] | None:
    """Say why the policy would allow or refuse a stored claim or template now; None else. Raises OutOfTime."""
    resource, errors = _resource_of(value), list[FieldError]()
    if resource is None:
        return None
    new = KINDS[resource].decode(Reader.of(value, errors))
    return None if errors else _Stored(new, value, resource, context).explained()


def _resource_of(value: JSON) -> GroupVersionResource | None:
    if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        return None
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind not in {"ResourceClaim", "ResourceClaimTemplate"} or not isinstance(version, str):
        return None
    return BY_KIND.get(GroupVersionKind.parse(version, kind))


def _documented(errors: Iterator[FieldError], context: AdmissionContext) -> Iterator[Finding]:
    mode = context.judge.documented_mode
    if mode is not PolicyMode.OFF:
        severity = Severity.DENY if mode is PolicyMode.ENFORCE else Severity.WARN
        yield from (Finding(severity, error) for error in errors)


class _Stored:
    """A stored object with what is known of its author."""

    def __init__(
        self,
        new: Any,
        value: JSON,
        resource: GroupVersionResource,
        context: AdmissionContext,
        proved_since: datetime | None = None,
    ) -> None:
        meta = new.meta
        self._context = context
        self._resource = resource.resource
        from_template = isinstance(new, ResourceClaim) and FROM_TEMPLATE in meta.annotations
        author = author_of(_annotation_of(new, from_template=from_template))
        self._named = author is not None
        self._author = Author.CLAIMED if self._named else Author.UNKNOWN
        if self._named and proved_since is not None:
            created = parse_time(value["metadata"].get("creationTimestamp") or "")
            proved = created is not None and created > proved_since
            # Only of templates do API servers compare it; anyone who may change a claim may write into it.
            said = Author.CLAIMED if isinstance(new, ResourceClaim) else Author.PROVEN
            self._author = said if proved else Author.UNKNOWN
        request = AdmissionRequest(
            uid=meta.uid,
            operation="CREATE",
            resource=resource,
            name=meta.name,
            namespace=meta.namespace,
            username=(*context.policy.trusted_controllers, CLAIM_CONTROLLER)[0] if from_template else "",
            object=value,
        )
        self._claiming = ClaimView(new, request, context)
        requester = None if self._author is Author.UNKNOWN else author
        self._scope = Scope(requester, meta.namespace, context.names.namespace(meta.namespace))
        self.generated = self._claiming.generated

    def explained(self) -> tuple[Author, Explanation]:
        """Return every rule that would be evaluated."""
        return self._author, explanation_of_claim(self._claiming, self._scope, None, self._context)

    def at_rest(self, finding: Finding, reason: AuditReason | None = None) -> AtRest:
        """Return the finding with its labels."""
        if reason is None:
            reason = AuditReason.REFUSED if finding.severity is Severity.DENY else AuditReason.WARNED
        return AtRest(self._resource, reason, self._author, finding)

    def by_policy(self) -> Iterator[AtRest]:
        """Yield the findings of the active policy."""
        judge, claiming = self._context.judge, self._claiming
        mode = judge.claim_mode(generated=claiming.generated, updating=False)
        if mode is PolicyMode.OFF:
            return
        yield from self._of_unknown_author(judge)
        rulings = self._rulings(judge)
        for finding in findings_of(rulings.shown, who_asks(claiming, self._scope), mode, self._context.now):
            if finding.severity is not Severity.AUDIT:
                yield self.at_rest(finding)

    def _of_unknown_author(self, judge: Judge) -> Iterator[AtRest]:
        claiming, judges = self._claiming, filter(None, (self._context.judge, self._context.candidate))
        if self._author is not Author.UNKNOWN or not claiming.tolerates or not any(map(claims_matter, judges)):
            return
        if claiming.is_template:
            text = "does not say who wrote this: claims made from it have an unknown author; create it again"
            if self._named:
                text = "may name anyone: API servers did not prove authors when this was created; create it again"
            yield self.at_rest(
                Finding(Severity.WARN, forbidden(_AUTHOR, text), rule=AUTHOR_RULE), AuditReason.UNKNOWN_AUTHOR
            )
        elif claiming.generated and judge.policy.unknown_author is not UnknownAuthor.ALLOW:
            yield self.at_rest(unknown_author(judge, "", updating=False), AuditReason.UNKNOWN_AUTHOR)

    def by_candidate(self, candidate: Judge) -> Iterator[AtRest]:
        """Yield what the candidate policy would refuse and the active one does not."""
        if candidate.policy.mode is PolicyMode.OFF:
            return
        active = Rulings() if self._context.policy.mode is PolicyMode.OFF else self._rulings(self._context.judge)
        tried = self._rulings(candidate)
        paths = {str(ruling.path): ruling.path for ruling in tried.shown}
        for path, what, rule, change in differences(active.shown, tried.shown):
            if change is Change.DENIED:
                text = f"the candidate policy would refuse {what}"
                yield self.at_rest(
                    Finding(Severity.WARN, forbidden(paths[path], text), rule=rule), AuditReason.REFUSED_BY_CANDIDATE
                )

    def _rulings(self, judge: Judge) -> Rulings:
        generated = self._claiming.generated
        if generated and self._scope.requester is None and judge.policy.unknown_author is UnknownAuthor.ALLOW:
            return Rulings()
        if not judge.judges_claims:
            return Rulings()
        return claim_rulings(self._claiming, judge, self._scope, self._context, everything=True)


def _annotation_of(new: ResourceClaim | ResourceClaimTemplate, *, from_template: bool) -> str | None:
    if isinstance(new, ResourceClaimTemplate):
        return new.claim_meta.annotations.get(REQUESTED_BY)
    return new.meta.annotations.get(REQUESTED_BY) if from_template else None
