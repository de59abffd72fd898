"""The author of a template, carried in `devicetaint.io/requested-by` to the claims that are made from it.

The resource-claim controller creates claims under its own name, so rules on users would miss them. The
annotation names the author and ends in an HMAC over author, namespace, a nonce and what is asked for: it can be
neither made without the key nor copied to a template that asks for something else.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from webhook.api.claims import ResourceClaimTemplate
from webhook.api.meta import OWN_GROUP
from webhook.api.taints import EQUAL
from webhook.policy.ports import Requester

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.api.claims import DeviceRequest, ExactRequest, ResourceClaim
    from webhook.api.field import JSON

REQUESTED_BY: Final = f"{OWN_GROUP}/requested-by"
GROUPS_MAX_BYTES: Final = 8192
"""Bytes of all group names that are recorded. The groups of a requester with more count as unknown."""
_ANNOTATION_MAX: Final = 64 * 1024
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
EXACT_COUNT: Final = "ExactCount"
"""The allocation mode of a request that names none; its count is then 1, if it names none either."""
_OF_DEVICES: Final = frozenset({"requests"})
_OF_REQUESTS: Final = frozenset({"name", "exactly", "firstAvailable"})
_OF_ENTRIES: Final = _OF_REQUESTS | {"deviceClassName", "adminAccess", "tolerations", "allocationMode", "count"}
_Read = TypeVar("_Read")
_encoder: Final = msgspec.json.Encoder(order="deterministic")


class _Signed(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The annotation's value."""

    username: str
    groups: list[str] = []
    groups_truncated: bool = False
    nonce: str = ""
    mac: str = ""


_decoder: Final = msgspec.json.Decoder(_Signed)


def signed(requester: Requester, namespace: str, nonce: str, asked: bytes, key: bytes) -> str:
    """The annotation for a template that the requester creates. `nonce` is the review's uid, `asked` a `digest`."""
    groups, size = [], 0
    for group in requester.groups:
        size += len(group.encode())
        if size > GROUPS_MAX_BYTES:
            break
        groups.append(group)
    cut = not requester.groups_known or len(groups) < len(requester.groups)
    entry = _Signed(requester.username, groups, cut, nonce)
    entry.mac = _mac(entry, namespace, asked, key)
    return _encoder.encode(entry).decode()


def can_be_named(requester: Requester) -> bool:
    """Whether the names can be written into the annotation without JSON escapes.

    A ValidatingAdmissionPolicy compares the annotation with the requester as text (manifests/base/author-policy.yaml),
    because it cannot parse JSON. No author is signed where that comparison would fail.
    """
    return not any(_ESCAPED.search(name) for name in (requester.username, *requester.groups))


def author_of(annotation: str | None, namespace: str, asked: bytes, key: bytes | None) -> Requester | None:
    """The author that an annotation proves, or None: there is none, no key, or not for this namespace and request."""
    entry = _read(annotation)
    # Accept only our own encoding: anything added or written differently could mislead readers of the text.
    if entry is None or key is None or _encoder.encode(entry).decode() != annotation:
        return None
    # As bytes: of texts, only ASCII can be compared.
    proved = hmac.compare_digest(_mac(entry, namespace, asked, key).encode(), entry.mac.encode())
    return _requester(entry) if proved else None


def claimed_author(annotation: str | None) -> Requester | None:
    """The author that an annotation names, verified or not; None if it names none."""
    entry = _read(annotation)
    return None if entry is None else _requester(entry)


def same_author(one: Requester, other: Requester) -> bool:
    """Whether two are the same, as far as groups were written down."""
    if one.username != other.username:
        return False
    if one.groups_known and other.groups_known:
        return sorted(one.groups) == sorted(other.groups)
    shorter, longer = sorted((one.groups, other.groups), key=len)
    return longer[: len(shorter)] == shorter


def digest(new: ResourceClaim | ResourceClaimTemplate, requests: tuple[DeviceRequest, ...] | None = None) -> bytes:
    """A digest of everything a claim asks for, the same in every version, with the defaults of the API server.

    `requests` are those of `new` as they will be, where something is added to them. The rest is taken as it was sent:
    counts, selectors and capacity, constraints, configuration, and what later releases may have.
    """
    devices = _devices(new)
    given = new.requests if requests is None else requests
    asked = [_request(*each) for each in _beside(given, devices.get("requests"))]
    return hashlib.sha256(_encoded((asked, _others(devices, _OF_DEVICES)))).digest()


def _devices(new: ResourceClaim | ResourceClaimTemplate) -> dict[str, JSON]:
    spec = _dict(new.spec)
    return _dict(_dict(spec.get("spec") if isinstance(new, ResourceClaimTemplate) else spec).get("devices"))


def _request(request: DeviceRequest, raw: JSON) -> JSON:
    raw = _dict(raw)
    exactly = None if request.exactly is None else _exact(request.exactly, raw if request.flat else raw.get("exactly"))
    alternatives = _beside(request.first_available, raw.get("firstAvailable"))
    others = {} if request.flat else _others(raw, _OF_REQUESTS)
    return request.name, exactly, [_exact(*each) for each in alternatives], others


def _exact(entry: ExactRequest, raw: JSON) -> JSON:
    raw = _dict(raw)
    tolerations = [
        (each.key, each.operator or EQUAL, each.value, each.effect, each.toleration_seconds)
        for each in entry.tolerations
    ]
    mode = raw.get("allocationMode") or EXACT_COUNT
    count = raw.get("count") or (1 if mode == EXACT_COUNT else 0)
    others = _others(raw, _OF_ENTRIES)
    return entry.name, entry.device_class_name, entry.admin_access, tolerations, mode, count, others


def _others(raw: dict[str, JSON], read: frozenset[str]) -> dict[str, JSON]:
    """The fields that are not among those, without the empty ones: an API server may write those out or not."""
    return {name: value for name, value in raw.items() if value and name not in read}


def _dict(value: JSON) -> dict[str, JSON]:
    return value if isinstance(value, dict) else {}


def _beside(read: tuple[_Read, ...], raw: JSON) -> Iterator[tuple[_Read, JSON]]:
    """Each decoded value with the raw value that it was decoded from."""
    values = raw if isinstance(raw, list) else ()
    return zip_longest(read, values[: len(read)])


def _encoded(value: JSON) -> bytes:
    try:
        return _encoder.encode(value)
    except (OverflowError, UnicodeEncodeError):  # numbers above 64 bits, halves of surrogate pairs
        return json.dumps(value, sort_keys=True).encode()


def _mac(entry: _Signed, namespace: str, asked: bytes, key: bytes) -> str:
    text = _encoder.encode(
        ("requested-by", entry.username, entry.groups, entry.groups_truncated, namespace, entry.nonce, asked)
    )
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def _read(annotation: str | None) -> _Signed | None:
    if not annotation or len(annotation) > _ANNOTATION_MAX:
        return None
    try:
        return _decoder.decode(annotation)
    except (msgspec.DecodeError, RecursionError):
        return None


def _requester(entry: _Signed) -> Requester:
    return Requester(entry.username, tuple(entry.groups), not entry.groups_truncated)
