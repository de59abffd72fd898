"""The planned eviction of one pod, why it is not evicted now, and what exempts it for good. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from webhook.api.pods import DAEMON_SET, Pod
from webhook.eviction.ports import Limit, PodRef
from webhook.eviction.profiles import Profile
from webhook.inventory.evictions import Eviction, RuleRef
from webhook.policy.model import EvictionProfile
from webhook.telemetry.repeats import LastingFault

LAST: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""The end of the calendar."""


class Doubt(NamedTuple):
    """A request to evict a pod got no answer, so it may have taken effect, or may still do so."""

    rules: tuple[RuleRef, ...]
    """The rules that hit the pod when it was sent."""
    until: float
    """If the pod terminates before that, in monotonic seconds, it counts as evicted by the request."""


class PodPlan(msgspec.Struct, eq=False, gc=False):
    """The planned eviction of one pod."""

    key: str
    """The pod's `namespace/name`."""
    uid: str
    pod: Pod
    """The pod as it was when it was last planned."""
    eviction: Eviction
    profile: Profile
    owner: str = ""
    """The owner at the top that limits count, by uid or name; empty if it has none."""
    gang: str = ""
    """The gang that it is evicted with; empty if it has none."""
    held_by: str = ""
    """The PodGroup, by name, that keeps its claims reserved, so that its eviction would free no device."""
    refusals: int = 0
    """How often the API server has refused to evict it; pods that it has not refused go first."""
    needed: int = 1
    """How many evictions its unit needs from its budgets, as of the last look at them."""
    place: str = ""
    """The place in limits that it took when it was to be evicted last."""
    blocked: bool = False
    """Whether a disruption budget refused the last attempt."""
    outdated: str = ""
    """The version of the pod that the API server does not have any more; while the watch shows it, the pod waits."""
    conflicts: int = 0
    """How many requests in a row have failed because the pod had changed."""
    was_read: bool = False
    """Whether its metadata were read for the attempt under way: it is under a budget, or changes all the time."""
    along: bool = False
    """Whether it goes only because of others of its PodGroup: no taint evicts it itself."""
    doubt: Doubt | None = None
    """What the last request may have done; None if it was answered, or none was sent."""
    last_event: str = ""
    """The reason of the last Event about the pod, so that none is repeated."""
    last_event_at: float = 0.0
    """When it was queued, in monotonic seconds."""
    fault: LastingFault | None = None
    """Why requests to evict the pod fail; None: none has failed."""

    @property
    def ref(self) -> PodRef:
        """Identifies the pod in requests."""
        return PodRef(self.pod.meta.namespace, self.pod.meta.name, self.uid)

    @property
    def stale(self) -> bool:
        """Tell whether the API server has a newer version of the pod than the watch has shown."""
        return self.outdated == self.pod.meta.resource_version != ""


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

    SAFE = "no taint makes it go"
    GONE = "it is gone, being deleted or finished"
    DONE = "it was evicted"
    TAKEN = "its eviction is under way"
    OBSERVED = "mode observe touches no pod"
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
    ALONE = "no pod goes that it would go along with"
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


PUT_OFF: Final = frozenset({StepReason.HELD, StepReason.COMPLETING, StepReason.WINDOW, StepReason.GANG})
"""Why a pod that is due by its taints is not evicted yet, although rates and limits may allow it."""


def in_vain(held_by: str, returns: str) -> StepReason | None:
    """Why evicting the pod would free no device, or None; the arguments are those of `Facts`."""
    if held_by:
        return StepReason.GROUP
    return StepReason.RETURNS if returns else None


def stays(plan: PodPlan, returns: str) -> bool:
    """Whether the pod is not evicted at any time, as long as its plan and what its claims are used by do not change."""
    exempt = exemption(plan.pod, plan.profile.settings) or in_vain(plan.held_by, returns)
    return exempt is not None or plan.eviction.waits
