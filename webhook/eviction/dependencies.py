"""What the worker is built from: ports, settings, and functions that other rooms provide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from webhook.eviction.modes import InTree, Mode

if TYPE_CHECKING:
    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.pods import Pod
    from webhook.api.rules import DeviceTaintRule
    from webhook.eviction.ports import Ceiling, ClusterWriter, NamespaceHolds, PodBudgets
    from webhook.eviction.profiles import Profile, Profiles
    from webhook.flowcontrol.rates import Clock
    from webhook.inventory.state import Inventory
    from webhook.policy.model import BreakerSettings, Pause
    from webhook.telemetry.workers import EvictionMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of the worker that are fixed while it runs; those that may change are in the policy."""

    mode: Mode = Mode.OBSERVE
    in_tree: InTree | None = None
    """Whether the in-tree controller is running; None: detect it."""
    delete_expired: bool = False
    """Rules past their /expires-at are deleted rather than set to None."""
    workers: int = 32
    """Concurrent requests to evict. Rates and limits decide how often they are made."""
    planners: int = 4
    """Work-queue items handled concurrently; only writes of conditions take time."""
    condition_seconds: float = 10.0
    """Minimum time between two writes of a rule's conditions, as in the in-tree controller (E-37)."""
    settle_seconds: float = 5.0
    """How long after a rule's generation was first observed the condition may become False: by then every allocation
    that was being made meanwhile is known (the KEP has 5 to 10 s)."""
    replacement_seconds: float = 5.0
    """How long an evicted pod counts as unavailable while its owner has not created a replacement."""
    gang_replacement_seconds: float = 60.0
    """The same for a pod of a gang: its controller may wait until all of its pods are gone, and a Job controller waits
    10 s after the first failure."""
    undeleted_seconds: float = 60.0
    """How long after its eviction a pod without a deletionTimestamp is evicted again: the answer was not true."""
    announce_after_seconds: float = 5.0
    """A pod that is due sooner gets no Event EvictionScheduled; its first Event is that it was evicted."""
    events_most: int = 1000
    """Events that may be queued; further ones are dropped."""
    stop_seconds: float = 10.0
    """How long evictions in flight may still take at shutdown: for as long as one request may take."""
    last_conditions_seconds: float = 5.0
    """How long the last conditions are written after that; then the lease is released."""
    flush_seconds: float = 5.0
    """How long queued Events are still written after that: a Pod has 30 s to stop, and the lease takes 5 s."""
    report_seconds: float = 3600.0
    """Time between two log lines about taints that look forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What the daemon passes to the worker; all parts share it."""

    inventory: Inventory
    writer: ClusterWriter
    budgets: PodBudgets
    namespaces: NamespaceHolds
    clock: Clock
    metrics: EvictionMetrics
    profiles: Callable[[], Profiles]
    """Called at each use, because the policy may change."""
    profile_of: Callable[[Pod], Profile]
    random: Callable[[], float]
    leads: Callable[[], bool]
    """Whether this process may write to the cluster at all; once another one leads, it must not."""
    trusted: Callable[[], bool]
    """Whether the inventory is current; while it may be stale, no pod is evicted, and no rule is reported as done."""
    claims_known: Callable[[float], bool]
    """Whether every change of a claim before that moment of the monotonic clock is in the inventory. If that is not
    known, it is found out: ask again."""
    ceiling_of: Callable[[DeviceTaintRule], Ceiling | None]
    """The most that a rule may hit; None is no limit."""
    patch_ceiling_of: Callable[[DeviceTaintRule, ResourceSlicePatch | None], Ceiling | None]
    """The most that all rules of a patch may hit, by the limits for the taint of one of them; the patch is None if it
    is not known."""
    patches: Callable[[], Mapping[str, ResourceSlicePatch]]
    """The ResourceSlicePatches that are known, by name."""
    breaker: Callable[[], BreakerSettings]
    """When taints in slices stop evicting; called at each use, as the next one."""
    pause: Callable[[], Pause | None]
    """The policy's pause, over or not; None if it has none."""
    settings: WorkerSettings

    def paused(self) -> Pause | None:
        """The pause that holds now, or None."""
        pause = self.pause()
        return pause if pause is not None and self.clock.now() < pause.until else None

    @property
    def mode(self) -> Mode:
        """The mode the worker runs in."""
        return self.settings.mode
