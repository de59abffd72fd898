"""Reviews one manifest as the API server would have it reviewed: by the same functions, plus strict field names."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from webhook.admission.chain import MAX_FINDINGS, explain, mutate, validate
from webhook.admission.decision import Change
from webhook.admission.jsonpatch import apply_patch
from webhook.admission.review import AdmissionRequest, BadReview, decode_review
from webhook.api.field import ErrorType, Finding, Path, Severity, invalid, not_supported, required, type_invalid
from webhook.api.meta import FLAT_VERSIONS, GROUP, OWN_GROUP, GroupVersionKind, format_time
from webhook.api.schema import api_versions_of
from webhook.commands.shared.entries import (
    BAD_REQUEST,
    duplicate_entries,
    entries_of,
    meta,
    position_of,
    remark_entries,
    text,
)
from webhook.commands.shared.policy_files import holds_policy, review_policy, row_of
from webhook.commands.shared.walks import entries_of as walk_entries
from webhook.commands.shared.walks import values_of
from webhook.files.report import Entry, Level, Result, Row
from webhook.files.spots import Spot, descend, find, path_of
from webhook.policy.decide import BUILTIN_JUDGE
from webhook.policy.model import API_VERSION as POLICY_VERSION
from webhook.policy.model import KIND as POLICY_KIND
from webhook.policy.ports import ANONYMOUS
from webhook.policy.suites import KIND as SUITE_KIND
from webhook.validation.kinds import BY_KIND, KINDS
from webhook.validation.objects import object_errors
from webhook.validation.strict import LINTED_AS_WELL, strict_findings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from datetime import datetime

    from webhook.admission.context import AdmissionContext
    from webhook.admission.decision import Decision, Difference
    from webhook.api.field import JSON, FieldError
    from webhook.files.read import Manifest
    from webhook.validation.releases import Release

OTHER_KIND: Final = "of other kinds"
NO_OBJECT: Final = "without apiVersion and kind"
OTHER_REVIEW: Final = "review of another resource"
_HINT: Final = "; --skip-others skips files of other kinds"
_REVIEW: Final = GroupVersionKind("admission.k8s.io", "v1", "AdmissionReview")
_POLICY_KINDS: Final = frozenset({POLICY_KIND, SUITE_KIND})
_OUR_KINDS: Final = {
    **{group: frozenset(known.kind for known in BY_KIND if known.group == group) for group in (GROUP, OWN_GROUP)},
    GroupVersionKind.parse(POLICY_VERSION, "").group: _POLICY_KINDS,
}
"""Kinds that are reviewed here or read by another verb, by group."""
_SOME_VERSION: Final = "1"
DEFAULT_NAMESPACE: Final = "default"
_NAMESPACED: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})
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


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """Identifies the same object in two files; a missing namespace counts as `default`."""

    group: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, value: Mapping[str, JSON]) -> ObjectKey | None:
        """Of an object; None for what has no name."""
        kind = GroupVersionKind.parse(text(value, "apiVersion"), text(value, "kind"))
        about = meta(value)
        name = text(about, "name")
        return cls(kind.group, kind.kind, text(about, "namespace") or DEFAULT_NAMESPACE, name) if name else None


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


def review_manifest(manifest: Manifest, terms: ReviewTerms, *, explicit: bool = True) -> Row:
    """Reviews a manifest. `explicit`: its file was named, so a file with nothing to review in it is reported."""
    value = manifest.value
    row = row_of(manifest)
    if row.api_version and row.kind:
        return _review_kind(row, manifest, terms)
    if not _looks_like_ours(value) or (terms.skip_others and not isinstance(value, dict | list)):
        return _skipped(row, NO_OBJECT, terms, reported=explicit and not terms.skip_others)
    hint = _HINT if explicit and terms.skip_others is False else ""
    return _refused(row, manifest.spot, *_no_object_errors(value, hint))


def _review_kind(row: Row, manifest: Manifest, terms: ReviewTerms) -> Row:
    """The row of an object with apiVersion and kind."""
    kind = GroupVersionKind.parse(row.api_version, row.kind)
    if kind == _REVIEW:
        return _review_admission_review(row, manifest, terms)
    mistake = mistaken_kind(kind, terms.context.release)
    if mistake is not None:
        return _refused(row, manifest.spot, mistake)
    elsewhere = terms.namespace and row.namespace not in ("", terms.namespace)
    if elsewhere and kind.group == GROUP and kind.kind in _NAMESPACED:
        text = f"does not match -n {terms.namespace}; pass -n {row.namespace}, or leave -n out"
        error = invalid(Path.root().child("metadata").child("namespace"), row.namespace, text)
        return _refused(row, manifest.spot, error)
    if kind in BY_KIND:
        return _review_object(row, manifest, kind, terms)
    if holds_policy(manifest.value):
        identity = ObjectKey.of(manifest.value)
        old = terms.old.get(identity) if identity else None
        return review_policy(manifest, row, old=old, now=terms.context.now).row
    return _skipped(row, OTHER_KIND, terms)


def _looks_like_ours(value: JSON) -> bool:
    """Whether a document without apiVersion or kind still looks like an object that is reviewed here.

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
        return version is not None or bool(_close(kind, {each for kinds in _OUR_KINDS.values() for each in kinds}))
    return {"metadata", "spec"} <= value.keys()


def _no_object_errors(value: JSON, hint: str) -> Iterator[FieldError]:
    """Why a document is not an API object; the hint is for one that may not have been meant as such."""
    root = Path.root()
    if not isinstance(value, dict):
        yield type_invalid(
            root, "a list" if isinstance(value, list) else value, f"an object with apiVersion and kind{hint}"
        )
        return
    for name in ("apiVersion", "kind"):
        given = value.get(name)
        if given is not None and not isinstance(given, str):
            yield type_invalid(root.child(name), given, "a string")
        elif not given:
            yield required(root.child(name))


def _skipped(row: Row, reason: str, terms: ReviewTerms, *, reported: bool = False) -> Row:
    entries: tuple[Entry, ...] = ()
    if terms.verbose or reported:
        entries = (Entry(Level.INFO, f"{row.reference or 'document'}: skipped, {reason}", row.position),)
    return replace(row, result=Result.SKIPPED, skipped=reason, entries=entries)


def _refused(row: Row, spot: Spot, *errors: FieldError) -> Row:
    findings = [Finding(Severity.DENY, error) for error in errors]
    return replace(row, result=Result.DENIED, entries=tuple(entries_of(spot, findings)))


def mistaken_kind(kind: GroupVersionKind, release: Release) -> FieldError | None:
    """An error for a kind that the release does not serve in this version, or that was probably meant to be another.

    In our own groups it surely was, and in the core group, to which no one can add such a kind.
    """
    known = _OUR_KINDS.get(kind.group)
    if (known is None and kind.group) or kind.kind in (known or set()) & _POLICY_KINDS:
        return None
    versions = {POLICY_VERSION} if kind.kind in _POLICY_KINDS else api_versions_of(kind.kind, (release.minor,))
    if kind.api_version in versions:
        return None
    if versions:
        return not_supported(Path.root().child("apiVersion"), kind.api_version, versions)
    if known is None:
        return None
    close = _close(
        kind.kind, known if kind.group == GROUP else {each for kinds in _OUR_KINDS.values() for each in kinds}
    )
    if not close and kind.group == GROUP:
        return None  # what later releases add
    return not_supported(Path.root().child("kind"), kind.kind, close or sorted(known))


def _close(kind: str, known: Collection[str]) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 -- only for mistakes; its import takes longer than a file

    singular = kind[:-3] + "y" if kind.endswith("ies") else kind.removesuffix("s")  # as resources are called
    return [singular] if singular in known else get_close_matches(kind, sorted(known), 1, 0.8)


# --- objects and reviews ------------------------------------------------------------------------


def _review_object(row: Row, manifest: Manifest, kind: GroupVersionKind, terms: ReviewTerms) -> Row:
    old, note = _old_object(manifest.value, kind, terms.old)
    old = _as_stored(old, terms.context.now)
    value = manifest.value if old is None else _as_applied(manifest.value, old)
    request = AdmissionRequest(
        uid=f"{manifest.file}#{manifest.document}",
        operation="CREATE" if old is None else "UPDATE",
        resource=BY_KIND[kind],
        kind=kind,
        name=text(meta(value), "name"),
        namespace=row.namespace or ((terms.namespace or DEFAULT_NAMESPACE) if kind.kind in _NAMESPACED else ""),
        dry_run=True,
        object=value,
        old_object=old,
    )
    entries = [Entry(Level.WARNING, note, row.position)] if note else []
    if terms.username:
        request = structs.replace(request, username=terms.username, groups=terms.groups)
        return _reviewed_row(row, manifest, request, manifest.spot, entries, terms)
    return _unnamed(_reviewed_row(row, manifest, request, manifest.spot, entries, terms))


def _unnamed(row: Row) -> Row:
    """A row that does not name the user whom a cluster would see, and who was not given here."""
    given, said = f'"{ANONYMOUS}"', "a requester without a name (--user is not given)"
    explained = row.explanation and {**row.explanation, "who": row.explanation["who"].replace(given, said)}
    start = "no rule allows "
    entries = tuple(
        replace(each, message=each.message.replace(f"{start}{given}", f"{start}{said}")) for each in row.entries
    )
    return replace(row, entries=entries, explanation=explained)


def _review_admission_review(row: Row, manifest: Manifest, terms: ReviewTerms) -> Row:
    """A document that is a review itself: its own operation, user and old object."""
    try:
        request = decode_review(json.dumps(manifest.value).encode())
    except BadReview as error:
        entry = Entry(Level.ERROR, str(error), row.position, reason=BAD_REQUEST)
        return replace(row, result=Result.DENIED, entries=(entry,))
    row = replace(row, name=request.reference, namespace="")
    if request.resource not in KINDS:
        return _skipped(row, OTHER_REVIEW, terms)
    spot, mistake = descend(manifest.spot, ("request", "object")), mistaken_kind(request.kind, terms.context.release)
    if mistake is not None:
        return _refused(row, spot, mistake)
    return _reviewed_row(row, manifest, request, spot, [], terms)


def _reviewed_row(
    row: Row, manifest: Manifest, request: AdmissionRequest, spot: Spot, entries: list[Entry], terms: ReviewTerms
) -> Row:
    """The answers of both webhooks to a request, with positions from `spot`, that of its object."""
    entries.extend((*duplicate_entries(manifest), *remark_entries(manifest)))
    verdict = whole_verdict_on(request, terms.context)
    decision = verdict.decision
    entries.extend(entries_of(spot, verdict.strict, at_keys=True))
    if decision.problem is not None:
        entries.append(Entry(Level.ERROR, decision.problem, row.position, reason=BAD_REQUEST))
    entries.extend(entries_of(spot, (*verdict.remarks, *verdict.findings)))
    entries.extend(_differences(spot, decision.differences))
    explanation = None
    if terms.verbose:
        entries.extend(_changes(spot, verdict.patch))
    if terms.verbose and terms.context.judge is not BUILTIN_JUDGE:
        explanation = values_of(explain(verdict.request, terms.context), spot)
        entries.extend(walk_entries(explanation, spot))
    denied = any(entry.level is Level.ERROR for entry in entries)
    return replace(
        row,
        operation=request.operation,
        result=Result.DENIED if denied else Result.ALLOWED,
        patch=verdict.patch,
        differences=tuple(each._asdict() for each in decision.differences),
        explanation=explanation,
        entries=tuple(sorted(entries, key=lambda entry: entry.position or (0, 0))),
    )


def _old_object(value: Mapping[str, JSON], kind: GroupVersionKind, old: Mapping[ObjectKey, JSON]) -> tuple[JSON, str]:
    """The stored object from `--old`, or None; and a reason, if one of that name exists but cannot be compared."""
    identity = ObjectKey.of(value)
    found = old.get(identity) if identity else None
    if found is None:
        return None, ""
    version = GroupVersionKind.parse(text(found, "apiVersion"), kind.kind).version
    if (version in FLAT_VERSIONS) != (kind.version in FLAT_VERSIONS) and kind.kind != "DeviceTaintRule":
        return None, f"the old object is in {version}, which cannot be compared with {kind.version}: checked as new"
    return found, ""


def _as_stored(old: JSON, now: datetime) -> JSON:
    """The old object as a server has it: the taint of a rule always has a time (E-12)."""
    if not isinstance(old, dict) or old.get("kind") != "DeviceTaintRule" or not isinstance(old.get("spec"), dict):
        return old
    spec = old["spec"]
    taint = spec.get("taint")
    if not isinstance(taint, dict) or taint.get("timeAdded"):
        return old
    return {**old, "spec": {**spec, "taint": {**taint, "timeAdded": format_time(now)}}}


def _as_applied(new: Mapping[str, JSON], old: Mapping[str, JSON]) -> JSON:
    """The new object as `kubectl apply` would send it: with the resourceVersion of what it changes."""
    about = new.get("metadata")
    if not isinstance(about, dict) or about.get("resourceVersion"):
        return new
    version = text(meta(old), "resourceVersion") or _SOME_VERSION
    return {**new, "metadata": {**about, "resourceVersion": version}}


# --- entries ------------------------------------------------------------------------------------


def _differences(spot: Spot, differences: Iterable[Difference]) -> Iterator[Entry]:
    """Where the candidate policy would decide differently."""
    for path, what, rule, change in differences:
        message = _CANDIDATE_WORDS[change].format(what)
        yield Entry(Level.INFO, message, position_of(spot, path), path, rule=rule)


def _changes(spot: Spot, patch: Iterable[Mapping[str, JSON]]) -> Iterator[Entry]:
    """What /mutate would set; parents that it has to create get no line of their own."""
    for operation in patch:
        if operation.get("value") == {}:
            continue
        steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:]]
        path = path_of(int(step) if step.isdigit() else step for step in steps)
        place, _ = find(spot, path)
        removed = operation["op"] == "remove"
        doing = f"remove {path.written}" if removed else f"set {path.written} to {json.dumps(operation['value'])}"
        yield Entry(Level.INFO, f"would {doing}", place.position)
