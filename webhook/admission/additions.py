"""What `/mutate` adds to claims and templates: the author of a template, and default tolerations.

A template's spec is immutable. When its author applies the original manifest again, what was added here is put back;
otherwise the API server would refuse the update.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from webhook.admission.claim_view import DEFAULTED, REQUESTED_BY, UNNAMEABLE, Ask, ClaimView, annotation_of
from webhook.admission.context import AdmissionContext
from webhook.admission.decision import REMOVED, Pointer
from webhook.admission.defaulting import Edit
from webhook.admission.policy_check import AUTHOR_RULE
from webhook.admission.review import AdmissionRequest
from webhook.api.claims import ResourceClaim, ResourceClaimTemplate
from webhook.api.field import Finding, Path, Severity, forbidden
from webhook.api.taints import DeviceToleration
from webhook.policy.decide import defaults_for, rendered
from webhook.policy.evaluation import Once, Variables
from webhook.policy.match import Requester, Scope
from webhook.policy.model import UnknownAuthor
from webhook.validation.claims import Asked, everything_asked

Object = ResourceClaim | ResourceClaimTemplate

_CLAIM_ANNOTATIONS: Final = ("metadata", "annotations")
_TEMPLATE_ANNOTATIONS: Final = ("spec", "metadata", "annotations")
_ANNOTATIONS: Final = Path.root().child("metadata", "annotations")
_TEMPLATE_AUTHOR: Final = Path.root().child("spec", "metadata", "annotations").key(REQUESTED_BY)
_encoder: Final = msgspec.json.Encoder(order="deterministic")


class Addition(NamedTuple):
    """Edits to an object, and the warnings about them for its sender."""

    edits: tuple[Edit, ...] = ()
    remarks: tuple[Finding, ...] = ()


def additions(new: Object, old: Object | None, request: AdmissionRequest, context: AdmissionContext) -> Addition:
    """Return what to add to a claim or template that is created, or put back into one that is updated."""
    claiming = ClaimView(new, request, context)
    if claiming.for_extended_resource:
        return Addition()
    if old is not None:
        return Addition(tuple(_put_back(claiming, old)))
    scope = claiming.scope()
    defaulted = list(_defaulted(claiming, scope, context)) if _may_get_defaults(claiming, scope, context) else []
    edits: list[Edit] = []
    remarks: list[Finding] = []
    for ask, tolerations in defaulted:
        edits += _appended(claiming, ask.asked, tolerations)
        remarks.append(_remark(ask, tolerations))
    if defaulted:
        entries = {str(ask.asked.path): [rendered(each) for each in added] for ask, added in defaulted}
        edits.append(((*_CLAIM_ANNOTATIONS, DEFAULTED), _encoder.encode(entries).decode()))
    author = _author(new, request, context) if isinstance(new, ResourceClaimTemplate) else _no_author(claiming)
    return Addition((*edits, *author.edits), (*remarks, *author.remarks))


# --- the author ---------------------------------------------------------------------------------


def _author(new: ResourceClaimTemplate, request: AdmissionRequest, context: AdmissionContext) -> Addition:
    """Make the requester the author of a template, in place of any other. A file gets its author in a cluster."""
    if context.offline:
        return Addition()
    wanted = annotation_of(Requester(request.username, request.groups))
    edit = (*_TEMPLATE_ANNOTATIONS, REQUESTED_BY), REMOVED if wanted is None else wanted
    remark = Finding(Severity.WARN, forbidden(_TEMPLATE_AUTHOR, f"is left out: {UNNAMEABLE}"), rule=AUTHOR_RULE)
    same = new.claim_meta.annotations.get(REQUESTED_BY) == wanted
    return Addition(() if same else (edit,), (remark,) if wanted is None else ())


def _no_author(claiming: ClaimView) -> Addition:
    """Take the author out of a claim that was not made from a template."""
    if claiming.generated or REQUESTED_BY not in claiming.new.meta.annotations:
        return Addition()
    text = "is for claims that are made from templates, and was removed"
    remark = Finding(Severity.WARN, forbidden(_ANNOTATIONS.key(REQUESTED_BY), text))
    return Addition((((*_CLAIM_ANNOTATIONS, REQUESTED_BY), REMOVED),), (remark,))


# --- default tolerations ------------------------------------------------------------------------


def _may_get_defaults(claiming: ClaimView, scope: Scope, context: AdmissionContext) -> bool:
    """Tell whether defaults apply: not to a claim without a known author, if any toleration has it refused."""
    refused = scope.requester is None and context.policy.unknown_author is UnknownAuthor.DENY
    return bool(context.policy.default_tolerations) and (claiming.tolerates or not refused)


def _defaulted(
    claiming: ClaimView, scope: Scope, context: AdmissionContext
) -> Iterator[tuple[Ask, tuple[DeviceToleration, ...]]]:
    """Yield each request and alternative that gets tolerations, with those."""
    for ask in claiming.asks():
        context.budget.check("default tolerations")
        tolerations = defaults_for(
            context.judge,
            scope,
            ask.target,
            ask.asked.exact.tolerations,
            context.now,
            partial(_variables_for, claiming, ask, scope, context),
            check=partial(context.budget.check, "default tolerations"),
        )
        if tolerations:
            yield ask, tolerations


def _variables_for(
    claiming: ClaimView, ask: Ask, scope: Scope, context: AdmissionContext, toleration: DeviceToleration | None
) -> Variables:
    return Once(partial(claiming.variables, ask.asked, ask.target, scope, toleration), context.budget.check)


def _appended(claiming: ClaimView, asked: Asked, tolerations: tuple[DeviceToleration, ...]) -> Iterator[Edit]:
    at = (*_pointer(claiming, asked), "tolerations")
    present = len(asked.exact.tolerations)
    if not present:
        yield at, [rendered(each) for each in tolerations]
        return
    for offset, toleration in enumerate(tolerations):
        yield (*at, present + offset), rendered(toleration)


def _pointer(claiming: ClaimView, asked: Asked) -> Pointer:
    spec: Pointer = ("spec", "spec") if claiming.is_template else ("spec",)
    request: Pointer = (*spec, "devices", "requests", asked.position)
    if asked.alternative is not None:
        return (*request, "firstAvailable", asked.alternative)
    return request if claiming.new.requests[asked.position].flat else (*request, "exactly")


def _remark(ask: Ask, tolerations: tuple[DeviceToleration, ...]) -> Finding:
    texts = ", ".join(_encoder.encode(rendered(each)).decode() for each in tolerations)
    return Finding(Severity.WARN, forbidden(ask.asked.tolerations, f"added by default: {texts}"), code="DT120")


# --- updates ------------------------------------------------------------------------------------


def _put_back(claiming: ClaimView, old: Object) -> Iterator[Edit]:
    """Yield what we added to the stored object and the new manifest lacks."""
    new = claiming.new
    if new.spec == old.spec:
        return
    if isinstance(new, ResourceClaimTemplate) and isinstance(old, ResourceClaimTemplate):
        author = old.claim_meta.annotations.get(REQUESTED_BY)
        if author is not None and new.claim_meta.annotations.get(REQUESTED_BY) != author:
            yield (*_TEMPLATE_ANNOTATIONS, REQUESTED_BY), author
    note = old.meta.annotations.get(DEFAULTED)
    if note is None:
        return
    if new.meta.annotations.get(DEFAULTED) != note:
        yield (*_CLAIM_ANNOTATIONS, DEFAULTED), note
    stored = {
        (asked.position, asked.alternative): asked.exact.tolerations
        for asked in everything_asked(claiming.spec, old.requests)
    }
    for asked in everything_asked(claiming.spec, new.requests):
        before = stored.get((asked.position, asked.alternative), ())
        present = asked.exact.tolerations
        # The spec is immutable, so this can only restore what is stored already.
        if len(present) < len(before) and _as_stored(before[: len(present)]) == _as_stored(present):
            yield from _appended(claiming, asked, before[len(present) :])


def _as_stored(tolerations: tuple[DeviceToleration, ...]) -> list[Any]:
    return [rendered(each) for each in tolerations]
