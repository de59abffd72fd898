"""The author of a template, carried in `devicetaint.io/requested-by` to the claims that are made from it.

The resource-claim controller creates claims under its own name, so rules on users would miss them. Anyone could write
the annotation; a ValidatingAdmissionPolicy (manifests/base/author-policy.yaml) compares it with the requester, as text.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from webhook.api.meta import OWN_GROUP
from webhook.policy.ports import Requester

REQUESTED_BY: Final = f"{OWN_GROUP}/requested-by"
GROUPS_MAX_BYTES: Final = 8192
"""Bytes of all group names that are written down. The groups of a requester with more count as unknown."""
UNNAMEABLE: Final = "a name of the requester has control characters"
_ANNOTATION_MAX: Final = 64 * 1024
_CONTROL: Final = re.compile(r"[\x00-\x1f]")


class _Author(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The annotation's value."""

    username: str
    groups: tuple[str, ...] = ()
    groups_truncated: bool = False


_encoder: Final = msgspec.json.Encoder(order="deterministic")
_decoder: Final = msgspec.json.Decoder(_Author)


def texts_of(requester: Requester) -> tuple[str, ...]:
    """The two annotations that the policy accepts: with all groups and without any. None with control characters."""
    if any(_CONTROL.search(name) for name in (requester.username, *requester.groups)):
        return ()
    entries = _Author(requester.username, requester.groups), _Author(requester.username, groups_truncated=True)
    return tuple([_encoder.encode(entry).decode() for entry in entries])


def annotation_of(requester: Requester) -> str | None:
    """The annotation that is written for a requester; None if a name has control characters."""
    texts = texts_of(requester)
    return texts[sum(len(group.encode()) for group in requester.groups) > GROUPS_MAX_BYTES] if texts else None


def author_of(annotation: str | None) -> Requester | None:
    """The author that an annotation names; None if there is none, or another text than the policy accepts."""
    if not annotation or len(annotation) > _ANNOTATION_MAX:
        return None
    try:
        entry = _decoder.decode(annotation)
    except (msgspec.DecodeError, RecursionError):
        return None
    author = Requester(entry.username, entry.groups, not entry.groups_truncated)
    return author if annotation in texts_of(author) else None
