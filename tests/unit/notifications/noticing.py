"""Rules and notices for the tests of notifications."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tests.builders import decoded, make_condition, make_meta, make_rule, make_taint
from webhook.api.meta import format_time
from webhook.notifications.notice import Notice, NoticeKind, NoticeSubject

if TYPE_CHECKING:
    from webhook.api.rules import DeviceTaintRule

NOW: Final = datetime(2026, 6, 1, 12, tzinfo=UTC)
EARLIER: Final = datetime(2026, 6, 1, 11, 50, tzinfo=UTC)
LONG_AGO: Final = datetime(2026, 5, 1, tzinfo=UTC)


def eviction(reason: str, since: datetime = EARLIER, message: str = "hits 60 pods") -> Any:
    at = format_time(since)
    return make_condition(type="devicetaint.io/Eviction", reason=reason, message=message, lastTransitionTime=at)


def released(since: datetime = EARLIER, reason: str = "Released", status: str = "True") -> Any:
    at = format_time(since)
    return make_condition(
        type="devicetaint.io/Released", status=status, reason=reason, message="free", lastTransitionTime=at
    )


def rule(*conditions: Any, name: str = "r", uid: str = "u1", added: datetime = EARLIER, **annotations: str) -> Any:
    given = {f"devicetaint.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    meta = make_meta(name, uid=uid, annotations=given)
    taint = make_taint(key="a.example.com/x", effect="NoSchedule", timeAdded=format_time(added))
    value: DeviceTaintRule = decoded(make_rule(meta=meta, taint=taint, conditions=conditions))[0]
    return value


def softened(**fields: Any) -> Any:
    return rule(softened_from="NoExecute", evict="true", **fields)


def make_notice(kind: NoticeKind = NoticeKind.STOPPED, name: str = "r", **fields: Any) -> Notice:
    given = {"started": EARLIER, "text": "hits 60 pods", "details": (("driver", "gpu.example.com"),), **fields}
    return Notice(kind, NoticeSubject(name, f"uid-of-{name}"), **given)
