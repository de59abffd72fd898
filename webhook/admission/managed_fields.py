"""Who manages which fields of an object whose change is taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.admission.defaulting import Edit
    from webhook.admission.review import AdmissionRequest
    from webhook.api.field import JSON

_encoder: Final = msgspec.json.Encoder(order="deterministic")


def owners_as_stored(request: AdmissionRequest) -> Iterator[Edit]:
    """The stored managedFields, if those of the request differ only in their times and so in their order.

    Server-side apply sees NoExecute where NoSchedule is stored, and writes a new time for its author. The API server
    takes that back where nothing else has changed, but not if entries of others lie between the two times.
    """
    new, old = (_managed_fields(value) for value in (request.object, request.old_object))
    if new != old and _without_times(new) == _without_times(old):
        yield ("metadata", "managedFields"), old


def _managed_fields(value: JSON) -> list[Any]:
    meta = value.get("metadata") if isinstance(value, dict) else None
    fields = meta.get("managedFields") if isinstance(meta, dict) else None
    return fields if isinstance(fields, list) else []


def _without_times(entries: list[Any]) -> list[bytes]:
    kept = [{**each, "time": None} if isinstance(each, dict) else each for each in entries]
    return sorted(map(_encoder.encode, kept))
