"""What can happen to a rule that someone should know: one model for all sinks."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.meta import format_time

if TYPE_CHECKING:
    from datetime import datetime

NEWS: Final = timedelta(minutes=15)
"""How long something that happened once is news: as an alert, and for a new leader that finds it."""


class NoticeKind(StrEnum):
    """What happened. The first two last, the others happen once."""

    STOPPED = "stopped"
    """The rule hits more than it may, or cannot be judged: no pod is evicted for it."""
    BLOCKED = "blocked"
    """Disruption budgets, or errors of the API server, have kept all of its pods for a minute."""
    SOFTENED = "softened"
    """It was created with NoExecute, and stored with NoSchedule because of its impact."""
    RELEASED = "released"
    """No allocation holds one of its devices any more."""


LASTING: Final = frozenset({NoticeKind.STOPPED, NoticeKind.BLOCKED})


class NoticeSeverity(StrEnum):
    """How much it matters, in the words that alerts use."""

    WARNING = "warning"
    INFO = "info"


SEVERITIES: Final = {
    NoticeKind.STOPPED: NoticeSeverity.WARNING,
    NoticeKind.BLOCKED: NoticeSeverity.WARNING,
    NoticeKind.SOFTENED: NoticeSeverity.WARNING,
    NoticeKind.RELEASED: NoticeSeverity.INFO,
}


class NoticeSubject(NamedTuple):
    """The rule that it happened to."""

    name: str
    uid: str


class Notice(NamedTuple):
    """One thing that happened, or that began and perhaps ended."""

    kind: NoticeKind
    subject: NoticeSubject
    started: datetime
    """When it happened or began, in UTC."""
    text: str
    """A sentence for people, without the name of the rule."""
    details: tuple[tuple[str, str], ...] = ()
    """What the taint is: `driver`, `pool`, `device`, `taintKey`, `effect`; only those that are set."""
    ended: datetime | None = None
    """When it ended; None while it lasts, and for what happens once."""

    @property
    def severity(self) -> NoticeSeverity:
        """How much it matters."""
        return SEVERITIES[self.kind]

    @property
    def lasts(self) -> bool:
        """Whether it is a state, which ends."""
        return self.kind in LASTING

    @property
    def identity(self) -> str:
        """The same for the same thing, also from another process; another one for its end."""
        parts = (self.kind.value, self.subject.uid, self.started.isoformat(), "ended" if self.ended else "")
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def __str__(self) -> str:
        return f"{self.kind.value} {self.subject.name} at {format_time(self.started)}"
