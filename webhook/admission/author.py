"""Who wrote a template, carried in `devicetaint.io/requested-by` to the claims that are made from it.

The resource-claim controller asks in its own name, so rules on users would miss what comes out of a template. The
annotation names the author and ends in an HMAC over author, namespace, a nonce and what is asked for: it can be
neither made without the key nor copied to a template that asks for something else.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.api.meta import OWN_GROUP
from webhook.api.taints import EQUAL
from webhook.policy.names import Requester

if TYPE_CHECKING:
    from webhook.api.claims import DeviceRequest, ExactRequest
    from webhook.api.field import JSON

REQUESTED_BY: Final = f"{OWN_GROUP}/requested-by"
GROUPS_MAX_BYTES: Final = 8192
"""Bytes of all group names that are written down; whoever is in more counts as unknown to rules on groups."""
_ANNOTATION_MAX: Final = 64 * 1024
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
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
    """Whether names stand in the annotation as they are, without escapes.

    A ValidatingAdmissionPolicy compares the annotation with the requester as text (manifests/base/author-policy.yaml),
    as it cannot read JSON. No author is written down where it could not.
    """
    return not any(_ESCAPED.search(name) for name in (requester.username, *requester.groups))


def author_of(annotation: str | None, namespace: str, asked: bytes, key: bytes | None) -> Requester | None:
    """The author that an annotation proves, or None: there is none, no key, or not for this namespace and request."""
    entry = _read(annotation)
    # Only what we would write ourselves: what is added or written in another way may mislead those who read it.
    if entry is None or key is None or _encoder.encode(entry).decode() != annotation:
        return None
    # As bytes: of texts, only ASCII can be compared.
    proved = hmac.compare_digest(_mac(entry, namespace, asked, key).encode(), entry.mac.encode())
    return _requester(entry) if proved else None


def claimed_author(annotation: str | None) -> Requester | None:
    """The author that an annotation names, whoever wrote it; None if it names nobody."""
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


def digest(requests: tuple[DeviceRequest, ...]) -> bytes:
    """What is asked for, in whatever shape and version: classes, admin access and tolerations."""
    asked = [
        (request.name, _exact(request.exactly), [_exact(entry) for entry in request.first_available])
        for request in requests
    ]
    return hashlib.sha256(_encoder.encode(asked)).digest()


def _exact(entry: ExactRequest | None) -> JSON:
    if entry is None:
        return None
    tolerations = [
        (each.key, each.operator or EQUAL, each.value, each.effect, each.toleration_seconds)
        for each in entry.tolerations
    ]
    return entry.name, entry.device_class_name, entry.admin_access, tolerations


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
