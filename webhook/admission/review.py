"""AdmissionReview in: bytes to a request. `admission.decision` is the way out.

Source: admission.k8s.io/v1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import structs

from webhook.admission.known_specs import KNOWN, ClaimText, KnownSpec
from webhook.api.decode import UNREADABLE, salvaged
from webhook.api.field import JSON
from webhook.api.meta import GroupVersionKind, GroupVersionResource, is_being_deleted
from webhook.api.slices import SliceText

STEP_BYTES: Final = 64 * 1024
"""What is decoded in one call: about a third of a millisecond."""
_DEPTH_MAX: Final = 12
"""Values are split down to here, three levels below the longest lists of a template: each level reads the text again,
so a text that is nested on purpose would otherwise cost its size times its depth."""

_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_items: Final = msgspec.json.Decoder(list[msgspec.Raw])


def decode_stepwise(
    text: bytes | bytearray, *, step_bytes: int = STEP_BYTES, rest: Callable[[], None] | None = None
) -> JSON:
    """Decode a JSON text, as one call of the decoder does. Raises what that call raises.

    One call of the decoder keeps every other thread waiting until it returns: 10 ms and more for 2 MB. A large value is
    split by the same decoder into the values that it holds, which are copied as they stand and decoded in turn.
    `rest` is called between steps, and is where other threads get their time.
    Only the values of objects and lists are split, so a long string is still one step; so is each look at a large value
    to find what it holds, which takes a tenth of the time that decoding takes.
    """
    try:
        return _decoded(text, step_bytes, rest or _no_rest, 0)
    except UNREADABLE:
        # Positions in an error are those in the whole text.
        return _decoder.decode(text)


def _decoded(text: bytes | bytearray | msgspec.Raw, step_bytes: int, rest: Callable[[], None], depth: int) -> JSON:
    rest()
    first = bytes(memoryview(text)[:1])
    if len(text) <= step_bytes or depth == _DEPTH_MAX or first not in {b"{", b"["}:
        return _decoder.decode(text)
    if first == b"{":
        members = _members.decode(text)
        return {name: _decoded(value, step_bytes, rest, depth + 1) for name, value in members.items()}
    values: list[JSON] = []
    for group in _groups(_items.decode(text), step_bytes):
        if len(group) > 1:
            rest()
            values += _decoder.decode(b"[" + b",".join(group) + b"]")
        else:
            values.append(_decoded(group[0], step_bytes, rest, depth + 1))
    return values


def _groups(items: list[msgspec.Raw], step_bytes: int) -> Iterator[list[msgspec.Raw]]:
    """Yield neighbours that are small enough for one step together; an item that is not is alone."""
    group: list[msgspec.Raw] = []
    size = 0
    for item in items:
        if group and size + len(item) > step_bytes:
            yield group
            group, size = [], 0
        group.append(item)
        size += len(item)
    if group:
        yield group


API_VERSION: Final = "admission.k8s.io/v1"
_ANONYMOUS: Final = "system:anonymous"
_SLICES: Final = "resourceslices"
_OF_CLAIMS: Final = b'"resourceclaim'
_ANNOUNCED_BYTES: Final = 512
"""In which API servers name the resource."""
MAX_VALUES: Final = 400_000
"""Values in a review, as its text shows them: a bound on work and memory, far above what a server takes."""
_FEW_BYTES: Final = 256 * 1024
"""Bodies up to here are not counted: what they can hold is soon read."""
_AGAIN_BYTES: Final = 4 * 1024 * 1024
"""Bodies up to here get a second look, which takes no steps: an API server stores less of two objects together."""

_decoder: Final = msgspec.json.Decoder()


class BadReview(Exception):  # noqa: N818 -- named for what was sent, not for what we do
    """The body is not an AdmissionReview with a uid, so it cannot be answered."""


class TooManyValues(BadReview):
    """The body has too much in it to be read, and is not well-formed, so its uid was not found."""


class AdmissionRequest(msgspec.Struct, frozen=True):
    """The request of a review. `problems` are faults of the envelope; the uid to answer to is known."""

    uid: str
    operation: str
    resource: GroupVersionResource
    sub_resource: str = ""
    kind: GroupVersionKind = GroupVersionKind("", "", "")
    name: str = ""
    namespace: str = ""
    username: str = _ANONYMOUS
    groups: tuple[str, ...] = ()
    dry_run: bool = False
    object: JSON = None
    old_object: JSON = None
    """Of slices, parts of the devices may be text, in both objects: see `api.slices`."""
    problems: tuple[str, ...] = ()
    known: KnownSpec | None = None
    """What is known of the spec of `object`, a claim or template without status. If `object` is replaced, it no longer
    applies; `KnownSpec.is_of` tells."""
    old_known: KnownSpec | None = None
    """The same of `old_object`."""

    def without_objects(self) -> AdmissionRequest:
        """Return the request with no more of its objects than their names need."""
        meta = self.object.get("metadata") if isinstance(self.object, dict) else None
        name = meta.get("generateName") if isinstance(meta, dict) else None
        return structs.replace(
            self, object={"metadata": {"generateName": name}}, old_object=None, known=None, old_known=None
        )

    @property
    def display_name(self) -> str:
        """The name; one that the server will complete ends in a star."""
        if not self.name and isinstance(self.object, dict):
            meta = self.object.get("metadata")
            prefix = meta.get("generateName") if isinstance(meta, dict) else None
            return f"{prefix}*" if isinstance(prefix, str) and prefix else ""
        return self.name

    @property
    def reference(self) -> str:
        """`namespace/name`, or the name of what is in no namespace."""
        return f"{self.namespace}/{self.display_name}" if self.namespace else self.display_name


def decode_review(body: bytes | bytearray, rest: Callable[[], None] | None = None) -> AdmissionRequest:
    """Decode the request in a body; call `rest` between the steps of a large one. Raises BadReview without a uid."""
    small = len(body) <= _FEW_BYTES
    request = _decode_claim_review(body) if small and body.find(_OF_CLAIMS, 0, _ANNOUNCED_BYTES) >= 0 else None
    request = request or (decode_well_formed(body) if small else None)
    return request or _tolerated(body, None if small else rest)


def decode_well_formed(body: bytes | bytearray) -> AdmissionRequest | None:
    """Decode a request that is just as API servers write it, which is soon known; None for any other."""
    try:
        request = _review_decoder.decode(body).request
        return _well_formed(request, request.object, request.old_object)
    except UNREADABLE:
        return None


def decode_slice_review(body: bytes | bytearray) -> AdmissionRequest | None:
    """Do the same for a review of a ResourceSlice, without what no rule reads; None for anything else.

    And for a slice that is being deleted, which is compared with what it was.
    """
    try:
        request = _slice_decoder.decode(body).request
        if request.resource.resource != _SLICES:
            return None
        new, old = [None if each is None else each.to_object() for each in (request.object, request.old_object)]
        if new is None or (old is None and request.old_object is not None) or is_being_deleted(old):
            return None
        return _well_formed(request, new, old)
    except UNREADABLE:
        return None


def _decode_claim_review(body: bytes | bytearray) -> AdmissionRequest | None:
    """Do the same for a review of a claim or template, whose spec may be known; None for anything else."""
    try:
        request = _claim_decoder.decode(body).request
        specs = KNOWN.get(request.resource.resource)
        if specs is None:
            return None
        new, known = (None, None) if request.object is None else request.object.to_object(specs)
        old, old_known = (None, None) if request.old_object is None else request.old_object.to_object(specs)
        return _well_formed(request, new, old, known, old_known)
    except UNREADABLE:
        return None


class _Resource(msgspec.Struct, gc=False):
    group: str = ""
    version: str = ""
    resource: str = ""


class _Kind(msgspec.Struct, gc=False):
    group: str = ""
    version: str = ""
    kind: str = ""


class _UserInfo(msgspec.Struct, gc=False):
    username: str = ""
    groups: tuple[str, ...] = ()


T = TypeVar("T")


class _Request(msgspec.Struct, Generic[T], rename="camel"):
    """A request as API servers write it, with objects of one type; anything else is no value of this type."""

    uid: Annotated[str, msgspec.Meta(min_length=1)]
    operation: Annotated[str, msgspec.Meta(min_length=1)]
    resource: _Resource
    kind: _Kind
    user_info: _UserInfo
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    dry_run: bool = False
    object: T | None = None
    old_object: T | None = None


class _Review(msgspec.Struct, Generic[T], rename="camel"):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: _Request[T]


_review_decoder: Final = msgspec.json.Decoder(_Review[Any])
_claim_decoder: Final = msgspec.json.Decoder(_Review[ClaimText])
_slice_decoder: Final = msgspec.json.Decoder(_Review[SliceText])


def _well_formed(
    request: _Request[Any], new: JSON, old: JSON, known: KnownSpec | None = None, old_known: KnownSpec | None = None
) -> AdmissionRequest:
    """Make a request that is as it should be: this way takes a third of the time of the other."""
    resource, kind, user = request.resource, request.kind, request.user_info
    return AdmissionRequest(
        request.uid,
        request.operation,
        GroupVersionResource(resource.group, resource.version, resource.resource),
        request.sub_resource,
        GroupVersionKind(kind.group, kind.version, kind.kind),
        request.name,
        request.namespace,
        user.username or _ANONYMOUS,
        user.groups,
        request.dry_run,
        new,
        old,
        (),
        known,
        old_known,
    )


def _tolerated(body: bytes | bytearray, rest: Callable[[], None] | None) -> AdmissionRequest:
    """Decode a request in which something may be wrong, with what it is; also in one of any size."""
    small = len(body) <= _FEW_BYTES
    # Counted first: a value of three bytes takes a hundred when it is read.
    values = 0 if small else _values_at_most(body, rest or _no_rest)
    try:
        if values > MAX_VALUES:
            review = _without_large_parts(body)
        else:
            review = _decoder.decode(body) if small else decode_stepwise(body, rest=rest)
    except UNREADABLE as error:
        if values > MAX_VALUES:
            raise TooManyValues(_too_many(values)) from None
        review = _decode_again(body, error)
    request = review.get("request") if isinstance(review, dict) else None
    if not isinstance(request, dict):
        raise BadReview("request: Required value: the body must be an AdmissionReview of admission.k8s.io/v1")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise BadReview("request.uid: Required value: must be the text that the answer has to repeat")
    if values > MAX_VALUES:
        return _request(uid, request, [_too_many(values)])
    problems: list[str] = []
    if review.get("apiVersion") != API_VERSION or review.get("kind") != "AdmissionReview":
        problems.append(f'apiVersion, kind: Unsupported value: supported values: "{API_VERSION}, AdmissionReview"')
    return _request(uid, request, problems)


def _values_at_most(body: bytes | bytearray, rest: Callable[[], None]) -> int:
    """Count how many values a text may hold, without reading it.

    There is one after each comma, and one in each pair of brackets that is not empty. What looks like that in a string
    is counted as well.
    """
    values = 0
    for start in range(0, len(body), _FEW_BYTES):
        rest()
        part = body[start : start + _FEW_BYTES]
        values += part.count(b",") + part.count(b"[") + part.count(b"{") - part.count(b"[]") - part.count(b"{}")
    return values


def _too_many(values: int) -> str:
    return f"request: Too many: {values}: must have at most {MAX_VALUES} values; send a smaller object"


def _no_rest() -> None:
    """Do nothing, for callers with no other work to let in."""


class _Envelope(msgspec.Struct):
    request: dict[str, msgspec.Raw]


_envelope_decoder: Final = msgspec.json.Decoder(_Envelope)


def _without_large_parts(body: bytes | bytearray) -> JSON:
    """Return a review without what is large in its request, which is passed over and not read."""
    request = _envelope_decoder.decode(body).request
    return {"request": {name: _decoder.decode(value) for name, value in request.items() if len(value) <= _FEW_BYTES}}


def _decode_again(body: bytes | bytearray, error: Exception) -> JSON:
    if len(body) > _AGAIN_BYTES:
        raise TooManyValues(f"body: Invalid value: not JSON: {error}") from None
    again = salvaged(body)
    if again is not None:
        try:
            return _decoder.decode(again)
        except msgspec.DecodeError as second:
            error = second
    if isinstance(error, RecursionError):
        raise BadReview("body: Invalid value: nested too deeply for an AdmissionReview") from None
    raise BadReview(f"body: Invalid value: not JSON: {error}") from None


def _request(uid: str, raw: dict[str, JSON], problems: list[str]) -> AdmissionRequest:
    resource = _fields(raw, "resource", problems)
    kind = _fields(raw, "kind", problems)
    user = _fields(raw, "userInfo", problems)
    groups = user.get("groups")
    if groups is None:
        groups = []
    elif not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
        problems.append("request.userInfo.groups: Invalid value: must be a list of strings")
        groups = []
    operation = _text(raw, "operation", "request", problems)
    if not operation:
        problems.append("request.operation: Required value")
    return AdmissionRequest(
        uid,
        operation,
        GroupVersionResource(
            _text(resource, "group", "request.resource", problems),
            _text(resource, "version", "request.resource", problems),
            _text(resource, "resource", "request.resource", problems),
        ),
        _text(raw, "subResource", "request", problems),
        GroupVersionKind(
            _text(kind, "group", "request.kind", problems),
            _text(kind, "version", "request.kind", problems),
            _text(kind, "kind", "request.kind", problems),
        ),
        _text(raw, "name", "request", problems),
        _text(raw, "namespace", "request", problems),
        _text(user, "username", "request.userInfo", problems) or _ANONYMOUS,
        tuple(groups),
        raw.get("dryRun") is True,
        raw.get("object"),
        raw.get("oldObject"),
        tuple(problems),
    )


def _fields(raw: dict[str, JSON], name: str, problems: list[str]) -> dict[str, JSON]:
    value = raw.get(name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    problems.append(f"request.{name}: Invalid value: must be an object")
    return {}


def _text(raw: dict[str, JSON], name: str, at: str, problems: list[str]) -> str:
    value = raw.get(name)
    if value.__class__ is str:
        return value
    if value is not None:
        problems.append(f"{at}.{name}: Invalid value: must be a string")
    return ""


# --- the beginning of one that is not read to the end ---------------------------------------------

HEAD_BYTES: Final = 4096
"""Enough for everything before the first name of a client's choosing."""
# Nothing but text of the server's own stands before these fields, so what is found is not the client's.
_UID: Final = re.compile(
    rb'\s*\{(?:\s*"(?:kind|apiVersion)"\s*:\s*"[^"\\]*"\s*,){0,2}\s*"request"\s*:\s*\{\s*"uid"\s*:\s*"([0-9A-Za-z-]{1,128})"'
)
_KIND: Final = rb'\s*,\s*"kind"\s*:\s*\{[^{}]*\}'
_RESOURCE: Final = re.compile(
    _KIND + rb'\s*,\s*"resource"\s*:\s*\{\s*"group"\s*:\s*"([^"\\]*)"\s*,\s*"version"\s*:\s*"([^"\\]*)"\s*,'
    rb'\s*"resource"\s*:\s*"([^"\\]*)"\s*\}'
)


def request_in(head: bytes) -> AdmissionRequest | None:
    """Return the request that begins so, without its objects and operation; None where its uid does not come first.

    An API server writes `request.uid` and `request.resource` before the objects. An answer without the uid would count
    as a failed call, and let the object pass where the registration says `Ignore`.
    """
    head = head[:HEAD_BYTES]
    uid = _UID.match(head)
    if uid is None:
        return None
    resource = _RESOURCE.match(head, uid.end())
    names = ("", "", "") if resource is None else tuple(part.decode(errors="replace") for part in resource.groups())
    return AdmissionRequest(uid[1].decode(), "", GroupVersionResource(*names))
