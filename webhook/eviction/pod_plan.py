"""What a plan says of a pod: with whom it goes and when, why not now, and what exempts it for good. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec

from webhook.api.pods import DAEMON_SET, Pod
from webhook.eviction.ports import Limit, PodRef
from webhook.eviction.profiles import Profile
from webhook.inventory.evictions import Eviction
from webhook.policy.model import EvictionProfile
from webhook.policy.windows import local_text, state_of

LAST: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""The end of the calendar."""


def later(time: datetime, seconds: float) -> datetime:
    """A time that number of seconds later; the end of the calendar stands for every time after it."""
    if not seconds:
        return time
    try:
        return time + timedelta(seconds=seconds)
    except OverflowError:
        return LAST


def stuck_at(pod: Pod, settings: EvictionProfile) -> datetime | None:
    """Return when a terminating pod counts as stuck: its grace period and `stuckAfter` are over; None for others."""
    return later(pod.gone_by, settings.stuck_after_seconds) if pod.deleting and pod.gone_by is not None else None


def is_stuck(pod: Pod, settings: EvictionProfile, now: datetime) -> bool:
    """Tell whether no limit counts a pod any more, because it is terminating for too long."""
    at = stuck_at(pod, settings)
    return at is not None and at <= now


class StepReason(StrEnum):
    """Why the pod is not evicted now."""

    TAKEN = "its eviction is under way"
    DAEMON = "pods of DaemonSets are skipped"
    MIRROR = "mirror pods cannot be evicted"
    EARLY = "it is not due yet"
    HELD = "it is held"
    COMPLETING = "it is left to complete"
    WINDOW = "no window is open"
    SKIPPED = "its profile has action: skip"
    FAILED = "its eviction is retried after an error"
    GANG = "others that it goes together with cannot go yet"
    GROUP = "its PodGroup keeps its claims reserved"
    REPUBLISHED = "the pool of its device is not published in full"
    RETURNS = "pods of its claim come back to the same device"
    STOPPED = "its rules hit more than they may"
    BREAKER = "too many devices of the driver were tainted just now"
    PAUSED = "evictions are paused"
    LIMITED = "a limit is reached"


class Wait(msgspec.Struct, frozen=True, gc=False):
    """Why a pod does not go now. `until`: when that ends by itself, None if nothing says when.

    `other`: the pod of its unit that it waits for, and `cause` what that one waits for. `because`: the hold's text, the
    driver whose breaker tripped, why rules are stopped, or the PodGroup or claim because of which it stays.
    """

    reason: StepReason
    until: datetime | None = None
    other: str = ""
    cause: StepReason | None = None
    because: str = ""
    limit: Limit | None = None
    """The limit that is reached; `gates` sets it."""


class Going(msgspec.Struct, frozen=True, gc=False):
    """A pod that goes, now or later. `due` includes the grace of its profile."""

    key: str
    pod: Pod
    eviction: Eviction
    profile: Profile
    due: datetime
    gang: str = ""
    along: bool = False
    """Whether no taint evicts it itself."""

    @property
    def uid(self) -> str:
        """Identifies it."""
        return self.pod.meta.uid

    @property
    def ref(self) -> PodRef:
        """Identifies it in requests."""
        return PodRef(self.pod.meta.namespace, self.pod.meta.name, self.uid)


class Unit(msgspec.Struct, frozen=True, gc=False):
    """Pods that go together, or not at all, by name. `due`: when the last of them is.

    `key`: its gang, else one of its claims, else the uid of its only pod.
    """

    members: tuple[Going, ...]
    key: str
    due: datetime
    order: tuple[int, int, datetime, str]


def exemption(pod: Pod, profile: EvictionProfile) -> StepReason | None:
    """Why a pod of this kind is never evicted, or None."""
    if pod.mirror:
        return StepReason.MIRROR
    if pod.owner is not None and pod.owner.kind == DAEMON_SET and not profile.evict_daemon_sets:
        return StepReason.DAEMON
    return StepReason.SKIPPED if profile.skips else None


_WORDS: Final = {
    StepReason.EARLY: "not due yet",
    StepReason.HELD: "on hold",
    StepReason.COMPLETING: "left to complete",
    StepReason.FAILED: "retried after an error",
}


def state_text(cause: StepReason) -> str:
    """The state of a pod that another one waits for, as in `ml/train-0, which is on hold`."""
    return _WORDS[cause]


def together_with(pod: str) -> str:
    """The other pod, by `namespace/name`, as the subject of a sentence about it."""
    return f"{pod}, which it goes together with"


def opening_text(profiles: Iterable[EvictionProfile], now: datetime) -> str:
    """When the windows are open next of those among these profiles that are closed; of several, the last to open.

    As local time, with the zone; empty if all are open.
    """
    states = [state_of(profile.windows, now) for profile in profiles]
    last = max([(state.until, state.zone) for state in states if not state.open and state.until], default=None)
    return "" if last is None else f"{local_text(*last)} ({last[1]})"
