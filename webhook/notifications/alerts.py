"""A notice as an alert of Alertmanager's API v2.

Fields: https://github.com/prometheus/alertmanager/blob/v0.28.1/api/v2/openapi.yaml. Labels are the alert's identity, so
none of them changes while it lasts. What lasts is sent again before its endsAt passes, as Prometheus does it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from webhook.api.meta import format_time
from webhook.notifications.notice import NEWS, Notice, NoticeKind

if TYPE_CHECKING:
    from datetime import datetime

RESEND: Final = timedelta(minutes=1)
_HOLDS: Final = 4 * RESEND
"""Until when an alert that is not sent again holds: three may be lost."""
ALERT_NAMES: Final = {
    NoticeKind.STOPPED: "DeviceTaintRuleStopped",
    NoticeKind.BLOCKED: "DeviceTaintRuleBlocked",
    NoticeKind.SOFTENED: "DeviceTaintRuleSoftened",
    NoticeKind.RELEASED: "DeviceTaintRuleReleased",
}
_SUMMARIES: Final = {
    NoticeKind.STOPPED: "No pod is evicted for DeviceTaintRule %s.",
    NoticeKind.BLOCKED: "Pods of DeviceTaintRule %s cannot be evicted.",
    NoticeKind.SOFTENED: "DeviceTaintRule %s was softened.",
    NoticeKind.RELEASED: "No allocation holds a device of DeviceTaintRule %s.",
}


def ends_at(notice: Notice, now: datetime) -> datetime:
    """When the alert resolves by itself."""
    if notice.ended is not None:
        return notice.ended
    return now + _HOLDS if notice.lasts else notice.started + NEWS


def alert_of(notice: Notice, cluster: str, now: datetime) -> dict[str, Any]:
    """The alert as it is posted. `cluster`: a label by which clusters differ; empty for none."""
    labels = {
        "alertname": ALERT_NAMES[notice.kind],
        "severity": notice.severity.value,
        "job": "device-taint-webhook",
        "rule": notice.subject.name,
    }
    if cluster:
        labels["cluster"] = cluster
    annotations = {"summary": _SUMMARIES[notice.kind] % notice.subject.name, "description": notice.text}
    return {
        "labels": labels,
        "annotations": {**annotations, **dict(notice.details)},
        "startsAt": format_time(notice.started),
        "endsAt": format_time(ends_at(notice, now)),
    }
