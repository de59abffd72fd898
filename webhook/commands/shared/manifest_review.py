"""Reviews one manifest as the API server would have it reviewed: by the same functions, plus strict field names."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Final, NamedTuple

from msgspec import structs

from webhook.admission.chain import MAX_FINDINGS, explain, mutate, validate
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import Change, Decision, apply_patch
from webhook.admission.review import AdmissionRequest, BadReview, decode_review
from webhook.api.field import (
    JSON,
    ErrorType,
    FieldError,
    Finding,
    Path,
    Severity,
    invalid,
    not_supported,
    required,
    type_invalid,
)
from webhook.api.meta import FLAT_VERSIONS, GROUP, OWN_GROUP, GroupVersionKind, format_time
from webhook.api.schema import api_versions_of
from webhook.commands.shared import walks
from webhook.commands.shared.entries import (
    BAD_REQUEST,
    by_position,
    duplicate_entries,
    entries_of,
    position_of,
    remark_entries,
    with_entries,
)
from webhook.commands.shared.policy_files import holds_policy, review_policy, row_of
from webhook.files.manifests import CLAIMS, kind_of, meta, text
from webhook.files.read import Manifest
from webhook.files.report import Entry, Level, Result, Row
from webhook.files.spots import Spot, descend, find, path_of
from webhook.policy import model, suites
from webhook.policy.decide import BUILTIN_JUDGE
from webhook.policy.match import ANONYMOUS
from webhook.validation.kinds import BY_KIND, KINDS
from webhook.validation.objects import object_errors
from webhook.validation.releases import Release
from webhook.validation.strict import LINTED_AS_WELL, strict_findings

DEFAULT_NAMESPACE: Final = "default"
_ROOT: Final = Path.root()
_REVIEW: Final = GroupVersionKind("admission.k8s.io", "v1", "AdmissionReview")
_POLICY_KINDS: Final = frozenset({model.KIND, suites.KIND})
_OUR_KINDS: Final = {
    **{group: frozenset(known.kind for known in BY_KIND if known.group == group) for group in (GROUP, OWN_GROUP)},
    GroupVersionKind.parse(model.API_VERSION, "").group: _POLICY_KINDS,
}
"""Kinds that are reviewed here or read by another verb, by group."""
_ALL_KINDS: Final = frozenset[str]().union(*_OUR_KINDS.values())
_CANDIDATE_WORDS: Final = {
    Change.DENIED: "the candidate policy would refuse {}",
    Change.ALLOWED: "the candidate policy would no longer refuse {}",
    Change.WARNED: "the candidate policy would warn about {}",
    Change.SILENT: "the candidate policy would no longer warn about {}",
}


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
    """Return the verdict on a request."""
    value, strict = request.object, tuple[Finding, ...]()
    if isinstance(value, dict) and not request.sub_resource:  # the decoder answers for the rest of a status update
        strict = tuple(strict_findings(value, kind_of(value), context.release))
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
    """Return the verdict plus everything that an API server itself would refuse in the object.

    In a cluster the server validates the object before it calls the webhook; a file has not been validated yet.
    """
    verdict = verdict_on(request, context)
    if request.sub_resource or not isinstance(request.object, dict):
        return verdict
    old = request.old_object if request.operation == "UPDATE" else None
    found = object_errors(request.object, old, kind_of(request.object), context.release)
    errors = tuple(islice(found, MAX_FINDINGS))
    wrong = {error.path.written for error in errors if error.type is ErrorType.TYPE_INVALID}
    crowded = tuple(f"{error.path}[" for error in errors if error.type is ErrorType.TOO_MANY)

    def reported_already(finding: Finding) -> bool:
        """Return whether its wrong type is reported, or it is in a list that is too long for the server to validate."""
        error = finding.error
        if error.type is ErrorType.TYPE_INVALID:
            return error.path.written in wrong
        return finding.code is None and finding.rule is None and str(error.path).startswith(crowded)

    kept = [finding for finding in verdict.findings if not reported_already(finding)]
    return verdict._replace(findings=(*(Finding(Severity.DENY, error) for error in errors), *kept))


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """Identifies the same object in two files."""

    group: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, value: Mapping[str, JSON], namespace: str = "") -> ObjectKey | None:
        """Return the key of an object, in that namespace or `default` if it has none; None for what has no name."""
        kind, about = kind_of(value), meta(value)
        name, where = text(about, "name"), text(about, "namespace") or namespace or DEFAULT_NAMESPACE
        return cls(kind.group, kind.kind, where, name) if name else None


@dataclass(frozen=True, slots=True)
class ReviewTerms:
    """What all manifests of a run are reviewed against. `old` has the objects that the cluster is said to have.

    `namespace`, unless it is empty, is the one of all claims and templates, as kubectl's.
    """

    context: AdmissionContext
    username: str = ""
    groups: tuple[str, ...] = ()
    namespace: str = ""
    old: Mapping[ObjectKey, JSON] = field(default_factory=dict)
    verbose: bool = False
    skip_others: bool | None = None
    """Whether files of other kinds are skipped silently, whatever they look like; None for a verb without the flag."""

    def stored(self, value: Mapping[str, JSON]) -> JSON:
        """Return what the cluster is said to have of an object, or None."""
        key = ObjectKey.of(value, self.namespace)
        return self.old.get(key) if key else None


def review_manifest(manifest: Manifest, terms: ReviewTerms, *, explicit: bool = True) -> Row:
    """Review a manifest. `explicit`: its file was named, so a file with nothing to review in it is reported."""
    value, row = manifest.value, row_of(manifest)
    if row.api_version and row.kind:
        return _review_kind(row, manifest, terms)
    if not _looks_like_ours(value) or (terms.skip_others and not isinstance(value, dict | list)):
        return _skipped(row, "without apiVersion and kind", terms, reported=explicit and not terms.skip_others)
    # The hint is for a document that may not have been meant as an object.
    hint = "; --skip-others skips files of other kinds" if explicit and terms.skip_others is False else ""
    return _refused(row, manifest.spot, *_no_object_errors(value, hint))


def _review_kind(row: Row, manifest: Manifest, terms: ReviewTerms) -> Row:
    """Review an object with apiVersion and kind."""
    kind = GroupVersionKind.parse(row.api_version, row.kind)
    if kind == _REVIEW:
        return _review_admission_review(row, manifest, terms)
    error = mistaken_kind(kind, terms.context.release)
    elsewhere = terms.namespace and row.namespace not in ("", terms.namespace)
    if error is None and elsewhere and kind.group == GROUP and kind.kind in CLAIMS:
        told = f"does not match -n {terms.namespace}; pass -n {row.namespace}, or leave -n out"
        error = invalid(_ROOT.child("metadata", "namespace"), row.namespace, told)
    if error is not None:
        return _refused(row, manifest.spot, error)
    if kind in BY_KIND:
        return _review_object(row, manifest, kind, terms)
    if holds_policy(manifest.value):
        return review_policy(manifest, row, old=terms.stored(manifest.value), now=terms.context.now).row
    return _skipped(row, "of other kinds", terms)


def _looks_like_ours(value: JSON) -> bool:
    """Return whether a document without apiVersion or kind still looks like an object that is reviewed here.

    Charts, values, workflows and playbooks are YAML too. A bare text is most likely no YAML at all, and is reported.
    """
    if isinstance(value, list):
        return any(isinstance(each, dict) and {"apiVersion", "kind"} <= each.keys() for each in value)
    if not isinstance(value, dict):
        return True
    version, kind = value.get("apiVersion"), value.get("kind")
    if isinstance(version, str) and version:
        return GroupVersionKind.parse(version, "").group in _OUR_KINDS or version == "admission.k8s.io/v1"
    if isinstance(kind, str) and kind:
        return version is not None or bool(_close(kind, _ALL_KINDS))
    return {"metadata", "spec"} <= value.keys()


def _no_object_errors(value: JSON, hint: str) -> Iterator[FieldError]:
    """Yield why a document is not an API object."""
    if not isinstance(value, dict):
        given = "a list" if isinstance(value, list) else value
        yield type_invalid(_ROOT, given, f"an object with apiVersion and kind{hint}")
        return
    for name in ("apiVersion", "kind"):
        given = value.get(name)
        if given is not None and not isinstance(given, str):
            yield type_invalid(_ROOT.child(name), given, "a string")
        elif not given:
            yield required(_ROOT.child(name))


def _skipped(row: Row, reason: str, terms: ReviewTerms, *, reported: bool = False) -> Row:
    told = Entry(Level.INFO, f"{row.reference or 'document'}: skipped, {reason}", row.position)
    entries = (told,) if terms.verbose or reported else ()
    return replace(row, result=Result.SKIPPED, skipped=reason, entries=entries)


def _refused(row: Row, spot: Spot, *errors: FieldError) -> Row:
    return with_entries(row, entries_of(spot, [Finding(Severity.DENY, error) for error in errors]))


def mistaken_kind(kind: GroupVersionKind, release: Release) -> FieldError | None:
    """Return an error for a kind that the release does not serve so, or that was probably meant to be another.

    In our own groups it surely was, and in the core group, to which no one can add such a kind.
    """
    known = _OUR_KINDS.get(kind.group)
    if (known is None and kind.group) or kind.kind in (known or set()) & _POLICY_KINDS:
        return None
    versions = {model.API_VERSION} if kind.kind in _POLICY_KINDS else api_versions_of(kind.kind, (release.minor,))
    if kind.api_version in versions:
        return None
    if versions:
        return not_supported(_ROOT.child("apiVersion"), kind.api_version, versions)
    if known is None:
        return None
    close = _close(kind.kind, known if kind.group == GROUP else _ALL_KINDS)
    if not close and kind.group == GROUP:
        return None  # what later releases add
    return not_supported(_ROOT.child("kind"), kind.kind, close or sorted(known))


def _close(kind: str, known: Collection[str]) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 -- only for mistakes; its import takes longer than a file

    singular = kind[:-3] + "y" if kind.endswith("ies") else kind.removesuffix("s")  # as resources are called
    return [singular] if singular in known else get_close_matches(kind, sorted(known), 1, 0.8)


# --- objects and reviews ------------------------------------------------------------------------


def _review_object(row: Row, manifest: Manifest, kind: GroupVersionKind, terms: ReviewTerms) -> Row:
    value, old, entries = manifest.value, terms.stored(manifest.value), list[Entry]()
    if old is not None:
        version = GroupVersionKind.parse(text(old, "apiVersion"), "").version
        if (version in FLAT_VERSIONS) != (kind.version in FLAT_VERSIONS) and kind.kind != "DeviceTaintRule":
            told = f"the old object is in {version}, which cannot be compared with {kind.version}: checked as new"
            entries, old = [Entry(Level.WARNING, told, row.position)], None
    if old is not None:
        value, old = _as_applied(value, old), _as_stored(old, terms.context.now)
    request = AdmissionRequest(
        uid=f"{manifest.file}#{manifest.document}",
        operation="CREATE" if old is None else "UPDATE",
        resource=BY_KIND[kind],
        kind=kind,
        name=text(meta(value), "name"),
        namespace=row.namespace or ((terms.namespace or DEFAULT_NAMESPACE) if kind.kind in CLAIMS else ""),
        username=terms.username or ANONYMOUS,
        groups=terms.groups,
        dry_run=True,
        object=value,
        old_object=old,
    )
    reviewed = _reviewed_row(row, manifest, request, manifest.spot, entries, terms)
    return reviewed if terms.username else _unnamed(reviewed)


def _unnamed(row: Row) -> Row:
    """Return a row that does not name the user whom a cluster would see, and who was not given here."""
    given, said = f'"{ANONYMOUS}"', "a requester without a name (--user is not given)"
    explained = row.explanation and {**row.explanation, "who": row.explanation["who"].replace(given, said)}
    start = "no rule allows "
    entries = [replace(each, message=each.message.replace(start + given, start + said)) for each in row.entries]
    return replace(row, entries=tuple(entries), explanation=explained)


def _review_admission_review(row: Row, manifest: Manifest, terms: ReviewTerms) -> Row:
    """Review a document that is a review itself: its own operation, user and old object."""
    try:
        request = decode_review(json.dumps(manifest.value).encode())
    except BadReview as error:
        return row.failed(str(error), BAD_REQUEST)
    row = replace(row, name=request.reference, namespace="")
    if request.resource not in KINDS:
        return _skipped(row, "review of another resource", terms)
    spot, mistake = descend(manifest.spot, ("request", "object")), mistaken_kind(request.kind, terms.context.release)
    if mistake is not None:
        return _refused(row, spot, mistake)
    return _reviewed_row(row, manifest, request, spot, [], terms)


def _reviewed_row(
    row: Row, manifest: Manifest, request: AdmissionRequest, spot: Spot, entries: list[Entry], terms: ReviewTerms
) -> Row:
    """Return the answers of both webhooks to a request, with positions from `spot`, that of its object."""
    verdict = whole_verdict_on(request, terms.context)
    decision = verdict.decision
    entries += [*duplicate_entries(manifest), *remark_entries(manifest)]
    entries += entries_of(spot, verdict.strict, at_keys=True)
    if decision.problem is not None:
        entries.append(Entry(Level.ERROR, decision.problem, row.position, reason=BAD_REQUEST))
    entries += entries_of(spot, (*verdict.remarks, *verdict.findings))
    for path, what, rule, change in decision.differences:
        told = _CANDIDATE_WORDS[change].format(what)
        entries.append(Entry(Level.INFO, told, position_of(spot, path), path, rule=rule))
    explanation = None
    if terms.verbose:
        entries += _changes(spot, verdict.patch)
        if terms.context.judge is not BUILTIN_JUDGE:
            explanation = walks.values_of(explain(verdict.request, terms.context), spot)
            entries += walks.entries_of(explanation, spot)
    row = replace(
        row,
        operation=request.operation,
        patch=verdict.patch,
        differences=tuple(each._asdict() for each in decision.differences),
        explanation=explanation,
    )
    return with_entries(row, by_position(entries))


def _as_stored(old: JSON, now: datetime) -> JSON:
    """Return the old object as a server has it: the taint of a rule always has a time (E-12)."""
    spec = old.get("spec") if isinstance(old, dict) and old.get("kind") == "DeviceTaintRule" else None
    taint = spec.get("taint") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(taint, dict) or taint.get("timeAdded"):
        return old
    return {**old, "spec": {**spec, "taint": {**taint, "timeAdded": format_time(now)}}}


def _as_applied(new: Mapping[str, JSON], old: Mapping[str, JSON]) -> JSON:
    """Return the new object as `kubectl apply` would send it: with the resourceVersion of what it changes."""
    about = new.get("metadata")
    if not isinstance(about, dict) or about.get("resourceVersion"):
        return new
    return {**new, "metadata": {**about, "resourceVersion": text(meta(old), "resourceVersion") or "1"}}


def _changes(spot: Spot, patch: Iterable[Mapping[str, JSON]]) -> Iterator[Entry]:
    """Yield what /mutate would set; parents that it has to create get no line of their own."""
    for operation in patch:
        if operation.get("value") == {}:
            continue
        steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        path = path_of(int(step) if step.isdigit() else step for step in steps)
        removed = operation["op"] == "remove"
        doing = f"remove {path.written}" if removed else f"set {path.written} to {json.dumps(operation['value'])}"
        yield Entry(Level.INFO, f"would {doing}", find(spot, path)[0].position)
