"""One review, from the resource's row in the table of kinds to a decision. Start with `validate` and `mutate`.

Field errors end the review: a malformed object cannot be judged further. All other findings are gathered, so that an
author sees them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

from msgspec import structs

from webhook.admission.additions import additions
from webhook.admission.cluster_lint import cluster_lint
from webhook.admission.config_maps import CONFIG_MAPS, config_map_decision
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import ALLOWED, Decision, patch_for
from webhook.admission.defaulting import edits_for
from webhook.admission.excess import Excess, excess_of
from webhook.admission.guard import SILENT as UNGUARDED
from webhook.admission.guard import GuardFindings, denied, guard, guard_patch
from webhook.admission.impact_text import IMPACT
from webhook.admission.known_specs import KnownSpec
from webhook.admission.lint import lint
from webhook.admission.policy_check import NOTHING, SILENT, Explanation, PolicyFindings, explanation, policy_findings
from webhook.admission.review import AdmissionRequest
from webhook.admission.slice_guard import attribute_edits, guard_slice
from webhook.admission.softening import UNTOUCHED, SofteningResult, owners_as_stored, softening_of, softening_of_patch
from webhook.admission.written_rules import guard_marks, guard_written, is_written
from webhook.api.claims import CLAIMING
from webhook.api.decode import Reader
from webhook.api.field import JSON, ErrorType, FieldError, Finding, Path, Severity, forbidden, not_supported
from webhook.api.meta import OWN_GROUP, GroupVersionKind, is_being_deleted
from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.policy.model import Action, PolicyMode
from webhook.validation.formats import object_meta_errors
from webhook.validation.kinds import KINDS, KindRules
from webhook.validation.releases import NEWEST

MAX_FINDINGS: Final = 1000
"""Findings of one kind that are reported; a hostile object could have millions."""
_FEW_HITS: Final = 64
"""Up to this number of hits a decision is cached; hostile objects must not fill the memory."""
_STATUS: Final = "status"
_WRITES: Final = frozenset({"CREATE", "UPDATE"})
_TEMPLATE: Final = "ResourceClaimTemplate"
_CLAIM_KINDS: Final = frozenset({"ResourceClaim", _TEMPLATE})
_TOO_DEEP: Final = Decision(problem="request.object: Invalid value: is nested too deeply to be judged")


class ReviewSubject(NamedTuple):
    """The decoded objects of a request, or the part that `excess` keeps. `errors`: wrong types in the new one."""

    row: KindRules
    new: Any
    old: Any
    errors: tuple[FieldError, ...]
    excess: Excess | None = None
    quiet: bool = False
    """Whether its spec is known to have no errors, to keep to the documents and to have no lint findings."""

    @property
    def cut(self) -> bool:
        """Whether a part of the object was left out."""
        return self.excess is not None and self.excess.cut


def validate(request: AdmissionRequest, context: AdmissionContext, ruled: PolicyFindings | None = None) -> Decision:
    """Judge a request, with all findings; `ruled`: its `policy_part`, if known. Raises OutOfTime and OutOfTurn."""
    try:
        return _validate(request, context, ruled)
    except RecursionError:
        return _TOO_DEEP


def policy_part(request: AdmissionRequest, context: AdmissionContext) -> PolicyFindings:
    """Return what the policy says about a request, without the inventory. Compile selectors. Raises OutOfTime."""
    try:
        subject = _sound(request)
        # All of them are asked for, as selectors are compiled on the way.
        if subject is None or any(list(islice(_field_errors(subject, request, context), MAX_FINDINGS))):
            return SILENT
        written = is_written(subject.new, request, context)
        return SILENT if written else policy_findings(subject.new, subject.old, request, context, subject.excess)
    except RecursionError:
        return SILENT


def _validate(request: AdmissionRequest, context: AdmissionContext, ruled: PolicyFindings | None) -> Decision:
    if request.resource == CONFIG_MAPS:
        return config_map_decision(request, context)
    subject = _subject(request)
    if isinstance(subject, Decision):
        return subject
    context.budget.check("field rules")
    if subject.cut and not context.offline and not _by_controller(request, context):
        # Documented limits come first: an object beyond them is refused without reading its entries.
        refused = list(islice(_beyond_limits(subject, context), MAX_FINDINGS))
        if any(map(_is_limit, refused)):
            return _decision(refused)
    errors = subject.errors or tuple(islice(_field_errors(subject, request, context), MAX_FINDINGS + 1))
    if errors:
        return _decision([Finding(Severity.DENY, error) for error in _capped(errors)])
    if request.sub_resource:
        return ALLOWED
    return _on_quiet_spec(subject, request, context) if subject.quiet else _advised(subject, request, context, ruled)


def _on_quiet_spec(subject: ReviewSubject, request: AdmissionRequest, context: AdmissionContext) -> Decision:
    """Decide on a new claim or template for which only the policy and the cluster lint can have findings."""
    context.budget.check("policy")
    policy = policy_findings(subject.new, None, request, context)
    findings = list(policy.findings)
    if not _by_controller(request, context):
        context.budget.check("lint")
        findings += islice(cluster_lint(subject.new, None, context), MAX_FINDINGS)
    return _concluded(findings, policy, context)


def _advised(
    subject: ReviewSubject, request: AdmissionRequest, context: AdmissionContext, ruled: PolicyFindings | None
) -> Decision:
    """Decide on an object without field errors."""
    by_controller = _by_controller(request, context)
    findings: list[Finding] = []
    if not by_controller:
        context.budget.check("documented rules")
        findings += islice(_documented(subject, context), MAX_FINDINGS)
        if findings and any(map(_is_limit, findings)):
            return _decision(findings)
    context.budget.check("policy")
    written = is_written(subject.new, request, context)
    policy = SILENT if written else ruled  # the patch was judged, and who wrote it
    if policy is None:
        policy = policy_findings(subject.new, subject.old, request, context, subject.excess)
    guarded = _guarded(subject, request, context)
    findings += (*policy.findings, *guarded.findings)
    if not by_controller and not written and not subject.cut:
        context.budget.check("lint")
        findings += islice(lint(subject.new, subject.old, context.now, context.servers), MAX_FINDINGS)
        findings += islice(cluster_lint(subject.new, subject.old, context, guarded.siblings), MAX_FINDINGS)
    return _concluded(findings, policy, context, guarded)


def _concluded(
    findings: list[Finding], policy: PolicyFindings, context: AdmissionContext, guarded: GuardFindings = UNGUARDED
) -> Decision:
    """Make the decision where all findings are known."""
    if findings or policy.differences or policy.spoke or guarded is not UNGUARDED:
        return _decision(findings, policy, context, guarded)
    # There is nothing to report, but the rules that matched are counted all the same.
    return _allowed_by(policy.hits) if len(policy.hits) <= _FEW_HITS else Decision(hits=policy.hits)


def _guarded(subject: ReviewSubject, request: AdmissionRequest, context: AdmissionContext) -> GuardFindings:
    if isinstance(subject.new, DeviceTaintRule):
        if is_written(subject.new, request, context):
            return guard_written(subject.new, subject.old, context)
        marks = guard_marks(subject.new, subject.old, request, context)
        found = guard(subject.new, subject.old, request, context)
        if not marks:
            return found
        assumed = None if denied(marks) else found.assumed
        return found._replace(findings=(*marks, *found.findings), assumed=assumed)
    if isinstance(subject.new, ResourceSlicePatch):
        return guard_patch(subject.new, subject.old, request, context)
    if isinstance(subject.new, ResourceSlice):
        return guard_slice(subject.new, subject.old, context)
    return UNGUARDED


@lru_cache(maxsize=64)
def _allowed_by(hits: tuple[tuple[str, Action], ...]) -> Decision:
    """Make the decision for claims that are simply allowed; most of them have the same hits."""
    return Decision(hits=hits) if hits else ALLOWED


def mutate(request: AdmissionRequest, context: AdmissionContext) -> Decision:
    """Decide what to set in the object. Never refuse: `validate` gets what is malformed. Raises OutOfTime."""
    subject = _sound(request)
    if subject is None or subject.cut:
        return ALLOWED
    # The times of a rule that the patch controller writes are those of the patch.
    return ALLOWED if is_written(subject.new, request, context) else _mutated(subject, request, context)


def _mutated(subject: ReviewSubject, request: AdmissionRequest, context: AdmissionContext) -> Decision:
    context.budget.check("defaulting")
    softening = UNTOUCHED
    if isinstance(subject.new, DeviceTaintRule):
        softening = softening_of(subject.new, subject.old, request, context)
    elif isinstance(subject.new, ResourceSlicePatch):
        softening = softening_of_patch(subject.new, subject.old, request, context)
    if softening.edits:
        return _softened(request, context, softening)
    edits = list(edits_for(subject.new, subject.old, context))
    remarks: tuple[Finding, ...] = ()
    if isinstance(subject.new, CLAIMING):
        added = additions(subject.new, subject.old, request, context)
        edits += added.edits
        remarks = added.remarks
    if isinstance(subject.new, ResourceSlice):
        edits += attribute_edits(subject.new, subject.old, request, context)
    patch = patch_for(request.object, edits)
    if patch:
        return Decision(remarks, patch, {"decision": "defaulted"}, assumed=softening.left)
    if softening.left is not None:
        return Decision(assumed=softening.left)
    return _decision(list(remarks)) if remarks else ALLOWED


def _softened(request: AdmissionRequest, context: AdmissionContext, softening: SofteningResult) -> Decision:
    """Make the decision of /mutate on a rule or patch that an entry of the policy softens."""
    annotations = {"decision": "softened", "policy-hash": context.policy.hash}
    if softening.impact:
        annotations[IMPACT] = softening.impact
    edits = [*softening.edits, *(owners_as_stored(request) if softening.repeated else ())]
    patch = patch_for(request.object, edits)
    return Decision(softening.remarks, patch, annotations, softened=not softening.repeated)


def explain(request: AdmissionRequest, context: AdmissionContext) -> Explanation:
    """Explain the policy's rules that `validate` evaluates, and why each matches or not. Raises OutOfTime."""
    subject = _sound(request)
    # Whatever ends `validate` before the policy is evaluated ends this too.
    if subject is None or next(_field_errors(subject, request, context), None) is not None:
        return NOTHING
    if not _by_controller(request, context) and any(map(_is_limit, _documented(subject, context))):
        return NOTHING
    return explanation(subject.new, subject.old, request, context, subject.excess)


def _field_errors(subject: ReviewSubject, request: AdmissionRequest, context: AdmissionContext) -> Iterator[FieldError]:
    row = subject.row
    if subject.quiet and context.release.effects >= NEWEST.effects:  # else tolerations are judged in one way everywhere
        return object_meta_errors(subject.new.meta, created=True)
    if subject.cut and context.offline:
        errors: list[FieldError] = []
        new = row.decode(Reader.of(request.object, errors))
        old = row.decode(Reader.of(request.old_object, [])) if subject.old is not None else None
        return iter(errors) if errors else row.errors(new, old, context.release)
    if request.sub_resource == _STATUS and row.status_errors is not None:
        return row.status_errors(subject.new, subject.old, context.release)
    return row.errors(subject.new, subject.old, context.release)


def _capped(errors: tuple[FieldError, ...]) -> tuple[FieldError, ...]:
    if len(errors) <= MAX_FINDINGS:
        return errors
    rest = forbidden(Path.root(), f"has more than {MAX_FINDINGS} errors; only the first are listed")
    return (*errors[:MAX_FINDINGS], rest)


def _by_controller(request: AdmissionRequest, context: AdmissionContext) -> bool:
    """Tell whether a controller sends a claim: its template was judged, and no controller acts on advice."""
    return request.resource.resource == "resourceclaims" and request.username in context.policy.trusted_controllers


def _documented(subject: ReviewSubject, context: AdmissionContext) -> Iterator[Finding]:
    documented = subject.row.documented
    mode = context.judge.documented_mode
    if documented is None or mode is PolicyMode.OFF:
        return
    enforced = mode is PolicyMode.ENFORCE
    if subject.cut:
        yield from _beyond_limits(subject, context)
    for error in documented(subject.new, subject.old):
        # The lists of an object that was cut are shorter than the original ones.
        if not subject.cut or error.type is not ErrorType.TOO_MANY:
            yield Finding.refusal(error, enforced=enforced, documented=True)


def _beyond_limits(subject: ReviewSubject, context: AdmissionContext) -> Iterator[Finding]:
    """Yield the documented limits on tolerations that an object exceeds; none for an update: it is immutable."""
    mode = context.judge.documented_mode
    if subject.excess is None or subject.old is not None or mode is PolicyMode.OFF:
        return
    for error in subject.excess.errors():
        yield Finding.refusal(error, enforced=mode is PolicyMode.ENFORCE, documented=True)


def _is_limit(finding: Finding) -> bool:
    return finding.severity is Severity.DENY and finding.error.type is ErrorType.TOO_MANY


def _decision(
    findings: list[Finding],
    policy: PolicyFindings = SILENT,
    context: AdmissionContext | None = None,
    guarded: GuardFindings = UNGUARDED,
) -> Decision:
    """Make the decision with its audit annotations."""
    severities = {finding.severity for finding in findings}
    word = "denied" if Severity.DENY in severities else "warned" if Severity.WARN in severities else "allowed"
    annotations = {"decision": word}
    names = {finding.name for finding in findings}
    if policy is not SILENT and context is not None:
        names.update([name for name, _ in policy.hits])
        annotations["policy-hash"] = context.policy.hash
    if names:
        annotations["rules"] = ",".join(sorted(names))
    return Decision(
        tuple(findings),
        annotations={**annotations, **guarded.annotations},
        hits=policy.hits,
        differences=policy.differences,
        assumed=None if word == "denied" else guarded.assumed,
        broke_glass=guarded.broke_glass,
    )


# --- what a review is about: objects read by their row of the table of kinds ----------------------


def _sound(request: AdmissionRequest) -> ReviewSubject | None:
    """Return the objects of a request; None where `validate` looks no further than their form, or at a part of them."""
    try:
        subject = _subject(request)
    except RecursionError:
        return None
    return None if isinstance(subject, Decision) or subject.errors or request.sub_resource else subject


def _subject(request: AdmissionRequest) -> ReviewSubject | Decision:
    """Return the objects of a request, or the decision where there is nothing to judge.

    A claim or template that is too large is cut before it is read; one whose spec is known is not read again.
    """
    if request.problems:
        return Decision(problem="; ".join(request.problems))
    row = KINDS.get(request.resource)
    if row is None:
        return _unknown(request)
    status = request.sub_resource == _STATUS and row.status_errors is not None
    if request.operation not in _WRITES or (request.sub_resource and not status):
        return ALLOWED
    mismatch = _kind_mismatch(request, row)
    if mismatch is not None:
        return Decision(problem=mismatch)
    if _only_clean_up(request):
        return ALLOWED
    errors: list[FieldError] = []
    new, excess = _decoded(row, request.object, request.known, request, errors)
    old, quiet = None, False
    if request.operation == "UPDATE":
        if isinstance(request.old_object, dict):
            old, _ = _decoded(row, request.old_object, request.old_known, request, [])
    elif request.known is not None and request.known.is_of(request.object):
        quiet = request.known.quiet and not request.sub_resource
    return ReviewSubject(row, new, old, tuple(errors), excess, quiet)


def _decoded(
    row: KindRules, value: JSON, known: KnownSpec | None, request: AdmissionRequest, errors: list[FieldError]
) -> tuple[Any, Excess | None]:
    """Decode an object of a row's kind, or return what is kept of it where it is too large."""
    if known is not None and known.is_of(value):
        return known.within(value, errors), None
    excess = None
    if row.kind in _CLAIM_KINDS and not request.sub_resource:
        excess = excess_of(value, of_template=row.kind == _TEMPLATE)
    if excess is None or not excess.cut:
        return row.decode(Reader.of(value, errors)), excess
    decoded = row.decode(Reader.of(excess.kept, errors))
    # What is immutable is compared as it was sent.
    spec = value.get("spec") if isinstance(value, dict) else None
    return structs.replace(decoded, spec=spec), excess


def _unknown(request: AdmissionRequest) -> Decision:
    supported = sorted({resource.resource for resource in KINDS})
    error = not_supported(Path.root().child("resource"), str(request.resource), supported)
    error = replace(error, detail=f"not judged here; {error.detail}")
    return _decision([Finding(Severity.WARN, error)])


def _only_clean_up(request: AdmissionRequest) -> bool:
    """Return whether an object being deleted only loses a finalizer or the like, which must never depend on us.

    The old object says whether it is being deleted, because the new one comes from the requester. A changed spec and
    changed annotations of ours are still judged: a rule that a finalizer keeps alive still acts.
    """
    old, new = request.old_object, request.object
    if not isinstance(old, dict) or not isinstance(new, dict):
        return False
    return (
        is_being_deleted(old) and new.get("spec") == old.get("spec") and _own_annotations(new) == _own_annotations(old)
    )


def _own_annotations(value: dict[str, Any]) -> Any:
    meta = value.get("metadata")
    annotations = meta.get("annotations") if isinstance(meta, dict) else None
    if not isinstance(annotations, dict):
        return {}
    return {key: text for key, text in annotations.items() if key.startswith(f"{OWN_GROUP}/")}


def _kind_mismatch(request: AdmissionRequest, row: KindRules) -> str | None:
    """Say why the object is not of the kind of its resource; a crafted request can make the two disagree."""
    if not isinstance(request.object, dict):
        return "request.object: Required value: must be the object that is created or updated"
    group, version, _ = request.resource
    if request.object.get("kind") == row.kind and request.object.get("apiVersion") == f"{group}/{version}":
        return None
    expected = GroupVersionKind(group, version, row.kind)
    return f"request.object: Invalid value: must be {expected}, as request.resource says"
