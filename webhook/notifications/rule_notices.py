"""Which notices hold for each rule, from what the API server has stored of it, and how they change.

The leader's own conditions come back to it by the watch like everything else. So a new leader goes by the same facts,
and what `/mutate` softened is known from the stored rule, whichever replica did it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from webhook.eviction.conditions import EVICTION, RELEASED, ConditionReason, condition_of
from webhook.eviction.released import ReleasedReason
from webhook.notifications.notice import NEWS, Notice, NoticeKind, NoticeSubject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from webhook.api.rules import Condition, DeviceTaintRule

BLOCKED_AFTER: Final = timedelta(minutes=1)
"""How long a rule has to be blocked without a break: a budget that refuses for a moment is not worth a message."""
_TEXT_MOST: Final = 1024
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
"""For what has no time, which no API server stores."""
_SOFTENED: Final = "created with NoExecute, stored with NoSchedule: its impact is over a limit that softens"


class RuleNotices:
    """The current notices of all rules."""

    def __init__(self) -> None:
        self._changed: dict[str, DeviceTaintRule | None] = {}
        """Rules by UID, not looked at since they changed; None for one that is gone."""
        self._blocked: dict[str, tuple[DeviceTaintRule, datetime]] = {}
        """Rules that are blocked, and since when."""
        self._current: dict[str, dict[NoticeKind, Notice]] = {}
        self._found: set[str] = set()
        """Rules that were there at the beginning, by UID, until they are looked at."""

    def begin(self, rules: Iterable[DeviceTaintRule]) -> None:
        """The rules that there are: what happened to them a while ago is no news."""
        for rule in rules:
            self._changed[rule.meta.uid] = rule
            self._found.add(rule.meta.uid)

    def observe(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        """One rule has changed. Cheap: it is looked at later."""
        if old is not None and (new is None or new.meta.uid != old.meta.uid):
            self._changed[old.meta.uid] = None
        if new is not None:
            self._changed[new.meta.uid] = new

    def take(self, now: datetime) -> Iterator[Notice]:
        """What is new since the last call: things that happened or began, texts that changed, and what has ended."""
        changed, self._changed = self._changed, {}
        for uid, rule in changed.items():
            self._follow_blocked(uid, rule, now)
        for uid, (rule, since) in self._blocked.items():
            if uid not in changed and now - since >= BLOCKED_AFTER and NoticeKind.BLOCKED not in self._of(uid):
                changed[uid] = rule
        for uid, rule in changed.items():
            yield from self._replace(uid, {} if rule is None else self._held_by(rule, now), now)
            self._found.discard(uid)

    def _of(self, uid: str) -> dict[NoticeKind, Notice]:
        return self._current.get(uid, {})

    def _follow_blocked(self, uid: str, rule: DeviceTaintRule | None, now: datetime) -> None:
        condition = None if rule is None else _eviction(rule, ConditionReason.BLOCKED)
        if rule is None or condition is None:
            self._blocked.pop(uid, None)
        else:
            _, since = self._blocked.get(uid, (rule, now))
            self._blocked[uid] = rule, since

    def _held_by(self, rule: DeviceTaintRule, now: datetime) -> dict[NoticeKind, Notice]:
        found = {}
        for kind, started, text in self._facts(rule, now):
            subject = NoticeSubject(rule.meta.name, rule.meta.uid)
            found[kind] = Notice(kind, subject, started, text[:_TEXT_MOST], _details(rule))
        return found

    def _facts(self, rule: DeviceTaintRule, now: datetime) -> Iterator[tuple[NoticeKind, datetime, str]]:
        stopped = _eviction(rule, ConditionReason.STOPPED)
        if stopped is not None:
            yield NoticeKind.STOPPED, stopped.last_transition_time or _EPOCH, stopped.message
        blocked, (_, since) = _eviction(rule, ConditionReason.BLOCKED), self._blocked.get(rule.meta.uid, (rule, now))
        if blocked is not None and now - since >= BLOCKED_AFTER:
            yield NoticeKind.BLOCKED, since, blocked.message
        if rule.softened:
            yield NoticeKind.SOFTENED, rule.taint.time_added or _EPOCH, _SOFTENED
        released = condition_of(rule.conditions, RELEASED)
        if released is not None and (released.status, released.reason) == ("True", ReleasedReason.RELEASED.value):
            yield NoticeKind.RELEASED, released.last_transition_time or _EPOCH, released.message

    def _replace(self, uid: str, found: dict[NoticeKind, Notice], now: datetime) -> Iterator[Notice]:
        known = self._of(uid)
        for kind, notice in found.items():
            before = known.get(kind)
            if notice.lasts:
                if notice != before:
                    yield notice
            elif before is None or before.started != notice.started:
                if now - notice.started <= NEWS:
                    yield notice
                elif uid not in self._found:
                    yield notice._replace(started=now)  # an author may give a taint any time
        for kind, notice in known.items():
            if notice.lasts and kind not in found:
                yield notice._replace(ended=now)
        if found:
            self._current[uid] = found
        else:
            self._current.pop(uid, None)


def _eviction(rule: DeviceTaintRule, reason: ConditionReason) -> Condition | None:
    """Condition Eviction if it has that reason."""
    condition = condition_of(rule.conditions, EVICTION)
    return condition if condition is not None and condition.reason == reason.value else None


def _details(rule: DeviceTaintRule) -> tuple[tuple[str, str], ...]:
    selector, taint = rule.selector, rule.taint
    names = (None, None, None) if selector is None else (selector.driver, selector.pool, selector.device)
    fields = zip(("driver", "pool", "device", "taintKey", "effect"), (*names, taint.key, taint.effect), strict=True)
    return tuple((name, value) for name, value in fields if value)
