"""What `/mutate` adds to claims and templates: the author of a template, and default tolerations.

A template's spec is immutable. When its author applies the original manifest again, what was added here is put back;
otherwise the API server would refuse the update.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from webhook.admission.author import REQUESTED_BY, author_of, can_be_named, digest, same_author, signed
from webhook.admission.claim_view import DEFAULTED, ClaimView
from webhook.admission.jsonpatch import REMOVED
from webhook.admission.policy_check import AUTHOR_RULE, claims_matter
from webhook.api.claims import ResourceClaimTemplate
from webhook.api.field import Finding, Path, Severity, forbidden
from webhook.policy.defaults import defaults_for, rendered
from webhook.policy.evaluation import Once
from webhook.policy.model import UnknownAuthor
from webhook.policy.ports import Requester
from webhook.validation.claims import everything_asked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.admission.claim_view import Ask
    from webhook.admission.context import AdmissionContext
    from webhook.admission.defaulting import Edit
    from webhook.admission.jsonpatch import Pointer
    from webhook.admission.review import AdmissionRequest
    from webhook.api.claims import DeviceRequest, ResourceClaim
    from webhook.api.taints import DeviceToleration
    from webhook.policy.evaluation import Variables
    from webhook.policy.match import Scope
    from webhook.validation.claims import Asked

    Object = ResourceClaim | ResourceClaimTemplate

ADDITION_REMARKS: Final = {"DT120": "toleration added by default"}
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
    """What to add to a claim or template that is created, or put back into one that is updated."""
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
    requests = _with_defaults(claiming, defaulted)
    unsigned = _unsigned(request, context)
    if not unsigned:
        edits += _author(claiming, scope, requests, request, context)
    elif isinstance(new, ResourceClaimTemplate) and REQUESTED_BY in new.claim_meta.annotations:
        edits.append(((*_TEMPLATE_ANNOTATIONS, REQUESTED_BY), REMOVED))
        remarks.append(Finding(Severity.WARN, forbidden(_TEMPLATE_AUTHOR, f"was removed: {unsigned}")))
    if claiming.is_template and _lacks_key(context):
        text = "is not written: the webhook has no key, so claims made from this will have an unknown author"
        remarks.append(Finding(Severity.WARN, forbidden(_TEMPLATE_AUTHOR, text), rule=AUTHOR_RULE))
    if not claiming.is_template and not claiming.generated and REQUESTED_BY in new.meta.annotations:
        edits.append(((*_CLAIM_ANNOTATIONS, REQUESTED_BY), REMOVED))
        text = "is for claims that are made from templates, and was removed"
        remarks.append(Finding(Severity.WARN, forbidden(_ANNOTATIONS.key(REQUESTED_BY), text)))
    return Addition(tuple(edits), tuple(remarks))


# --- the author ---------------------------------------------------------------------------------


def _unsigned(request: AdmissionRequest, context: AdmissionContext) -> str:
    """Why nothing is signed for this request, or an empty text. A signature is valid for as long as the key exists."""
    if not context.caller_trusted:
        return "API servers do not prove to the webhook who they are"
    if not can_be_named(Requester(request.username, request.groups)):
        return "a name of the requester has quotes, backslashes or control characters"
    return ""


def _lacks_key(context: AdmissionContext) -> bool:
    """Whether the author matters but cannot be signed for lack of a key. Files need no signature."""
    return context.key is None and not context.offline and claims_matter(context.judge)


def _author(
    claiming: ClaimView,
    scope: Scope,
    requests: tuple[DeviceRequest, ...],
    request: AdmissionRequest,
    context: AdmissionContext,
) -> Iterator[Edit]:
    """The author annotation, unless the object already has it."""
    if context.key is None or not (claiming.is_template or claiming.generated):
        return
    new = claiming.new
    asked = digest(new, requests)
    if isinstance(new, ResourceClaimTemplate):
        requester = Requester(request.username, request.groups)
        author = author_of(new.claim_meta.annotations.get(REQUESTED_BY), claiming.namespace, asked, context.key)
        if author is None or not same_author(author, requester):
            annotation = signed(requester, claiming.namespace, request.uid, asked, context.key)
            yield (*_TEMPLATE_ANNOTATIONS, REQUESTED_BY), annotation
    elif scope.requester is not None and asked != digest(new):
        # Our additions change the signed content, so it is signed again for the same author.
        annotation = signed(scope.requester, claiming.namespace, request.uid, asked, context.key)
        yield (*_CLAIM_ANNOTATIONS, REQUESTED_BY), annotation


# --- default tolerations ------------------------------------------------------------------------


def _may_get_defaults(claiming: ClaimView, scope: Scope, context: AdmissionContext) -> bool:
    """False for a claim without a known author that would be refused as soon as it tolerates anything."""
    refused = scope.requester is None and context.policy.unknown_author is UnknownAuthor.DENY
    return bool(context.policy.default_tolerations) and (claiming.tolerates or not refused)


def _defaulted(
    claiming: ClaimView, scope: Scope, context: AdmissionContext
) -> Iterator[tuple[Ask, tuple[DeviceToleration, ...]]]:
    """Each request and alternative that gets tolerations, with those."""
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


def _with_defaults(
    claiming: ClaimView, defaulted: list[tuple[Ask, tuple[DeviceToleration, ...]]]
) -> tuple[DeviceRequest, ...]:
    """The requests as they will be."""
    added = {(ask.asked.position, ask.asked.alternative): tolerations for ask, tolerations in defaulted}
    if not added:
        return claiming.new.requests
    replace = msgspec.structs.replace
    requests: list[DeviceRequest] = []
    for position, request in enumerate(claiming.new.requests):
        exactly = request.exactly
        if exactly is not None:
            exactly = replace(exactly, tolerations=exactly.tolerations + added.get((position, None), ()))
        alternatives = tuple(
            replace(each, tolerations=each.tolerations + added.get((position, index), ()))
            for index, each in enumerate(request.first_available)
        )
        requests.append(replace(request, exactly=exactly, first_available=alternatives))
    return tuple(requests)


# --- updates ------------------------------------------------------------------------------------


def _put_back(claiming: ClaimView, old: Object) -> Iterator[Edit]:
    """What we added to the stored object and the new manifest lacks."""
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
