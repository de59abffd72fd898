"""The states that a pod of `status` can be in, and what it waits for, as values."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.api.pods import Pod
    from webhook.inventory.evictions import Eviction
    from webhook.inventory.matching import Evictor


class PodState(StrEnum):
    """Where a pod stands that a taint evicts. The values are those of the JSON, in the order of the tables."""

    NOT_DUE = "notDue"
    DUE = "due"
    HELD = "held"
    """By annotation `/hold`."""
    PUT_OFF = "putOff"
    """Until a window opens, or until it completes."""
    BLOCKED = "blocked"
    """By a disruption budget."""
    LIMITED = "limited"
    """By a limit of its profile, or the breaker."""
    PAUSED = "paused"
    """By `pause` in the policy."""
    STOPPED = "stopped"
    """The worker has stopped the rule."""
    SKIPPED = "skipped"
    """It is never evicted, such as a pod of a DaemonSet."""
    TERMINATING = "terminating"
    STUCK = "stuck"
    """Terminating for longer than its grace period and `stuckAfter`."""

    @property
    def pending(self) -> bool:
        """Whether the pod is still to be evicted."""
        return self not in (PodState.SKIPPED, PodState.TERMINATING, PodState.STUCK)


class WaitKind(StrEnum):
    """What a pod waits for; the values are those of the JSON."""

    TIME = "time"
    ANNOUNCEMENT = "announcement"
    """The worker has not written the condition of the rule yet, and evicts no pod before."""
    HOLD = "hold"
    WINDOW = "window"
    COMPLETION = "completion"
    """Its own end, by `waitForCompletion`."""
    GANG = "gang"
    """Another pod that it goes together with."""
    BUDGET = "disruptionBudget"
    OVERALL = "overall"
    NAMESPACE = "perNamespace"
    OWNER = "perOwnerUnavailable"
    BREAKER = "breaker"
    PAUSE = "pause"
    STOP = "stop"
    RATE = "rate"
    """Its turn, as rates allow."""
    IN_TREE = "inTreeController"
    OBSERVE = "observe"
    """The worker evicts no pod in mode observe."""
    EXEMPTION = "exemption"
    """Nothing: it is never evicted."""
    END = "end"
    """Its containers have to end."""


class WaitsFor(msgspec.Struct, frozen=True):
    """What a pod waits for, in words and as fields.

    `name`: of budgets (separated by `, `), an owner, a namespace or a driver. `limit` and `count`: the limit's number,
    and how many places are taken now; pods that go together take one. `pods`: those that do, as `namespace/name`, where
    an owner limits; or the one that this pod waits for, where that is of its gang or shares a claim with it.
    """

    kind: WaitKind
    message: str
    name: str = ""
    limit: int | None = None
    count: int | None = None
    pods: tuple[str, ...] = ()


class PodStatus(NamedTuple):
    """A pod at one moment. `due` includes the profile's grace; None where no time is known yet."""

    pod: Pod
    eviction: Eviction
    evictor: Evictor
    state: PodState
    due: datetime | None
    since: datetime | None
    """Since when it is in this state; None if that cannot be known."""
    waits_for: WaitsFor
