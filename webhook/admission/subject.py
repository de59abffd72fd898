"""What a review is about: the objects of a request, read by their row of the table of kinds.

A claim or template that is too large is cut before it is read; one whose spec is known is not read again.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from msgspec import structs

from webhook.admission.decision import ALLOWED, Decision
from webhook.admission.excess import Excess, excess_of
from webhook.admission.known_specs import KnownSpec
from webhook.admission.review import AdmissionRequest
from webhook.api.decode import Reader
from webhook.api.field import JSON, FieldError
from webhook.api.meta import OWN_GROUP, GroupVersionKind, is_being_deleted
from webhook.validation.kinds import KindRules

STATUS: Final = "status"
_WRITES: Final = frozenset({"CREATE", "UPDATE"})
_TEMPLATE: Final = "ResourceClaimTemplate"
_CLAIM_KINDS: Final = frozenset({"ResourceClaim", _TEMPLATE})


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


def subject_of(row: KindRules, request: AdmissionRequest) -> ReviewSubject | Decision:
    """The objects of a request for the resource of a row, or the decision where there is nothing to judge."""
    if request.operation not in _WRITES or not _judged(request.sub_resource, row):
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
    """An object of a row's kind, or what is kept of it where it is too large."""
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


def _judged(sub_resource: str, row: KindRules) -> bool:
    return not sub_resource or (sub_resource == STATUS and row.status_errors is not None)


def _only_clean_up(request: AdmissionRequest) -> bool:
    """Whether an object being deleted only loses a finalizer or the like, which must never depend on us.

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
    """Why the object is not of the kind that its resource says; a crafted request can make the two disagree."""
    if not isinstance(request.object, dict):
        return "request.object: Required value: must be the object that is created or updated"
    group, version, _ = request.resource
    if request.object.get("kind") == row.kind and request.object.get("apiVersion") == f"{group}/{version}":
        return None
    expected = GroupVersionKind(group, version, row.kind)
    return f"request.object: Invalid value: must be {expected}, as request.resource says"
