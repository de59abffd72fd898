"""The beginning of a review: enough to answer one whose body is not read to the end.

An API server writes `request.uid` and `request.resource` before the objects. An answer without the uid would count as a
failed call, and let the object pass where the registration says `Ignore`.
"""

from __future__ import annotations

import re
from typing import Final

from webhook.admission.review import AdmissionRequest
from webhook.api.meta import GroupVersionResource

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
    """The request that begins so, without its objects and operation; None where its uid does not come first."""
    head = head[:HEAD_BYTES]
    uid = _UID.match(head)
    if uid is None:
        return None
    resource = _RESOURCE.match(head, uid.end())
    names = ("", "", "") if resource is None else tuple(part.decode(errors="replace") for part in resource.groups())
    return AdmissionRequest(uid[1].decode(), "", GroupVersionResource(*names))
