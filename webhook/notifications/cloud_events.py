"""A notice as a CloudEvent 1.0 in structured JSON (https://github.com/cloudevents/spec/tree/v1.0.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from webhook.api.meta import format_time

if TYPE_CHECKING:
    from webhook.notifications.notice import Notice

CONTENT_TYPE: Final = "application/cloudevents+json; charset=utf-8"
_TYPE: Final = "io.devicetaint.rule"
_SOURCE: Final = "device-taint-webhook"


def event_of(notice: Notice, cluster: str) -> dict[str, Any]:
    """The event. Its type ends with the kind, and with `.ended` for the end of what lasts.

    `id` is the same if it is sent again, also by another leader. `cluster` is part of the source; empty for none.
    """
    ended = notice.ended
    data: dict[str, Any] = {
        "kind": notice.kind.value,
        "severity": notice.severity.value,
        "rule": {"name": notice.subject.name, "uid": notice.subject.uid},
        "text": notice.text,
        "startedAt": format_time(notice.started),
        **dict(notice.details),
    }
    if ended is not None:
        data["endedAt"] = format_time(ended)
    return {
        "specversion": "1.0",
        "id": notice.identity,
        "source": f"{_SOURCE}/{quote(cluster, safe='')}" if cluster else _SOURCE,
        "type": f"{_TYPE}.{notice.kind.value}" + (".ended" if ended is not None else ""),
        "subject": f"devicetaintrules/{notice.subject.name}",
        "time": format_time(ended or notice.started),
        "datacontenttype": "application/json",
        "data": data,
    }
