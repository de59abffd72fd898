"""What the worker is built from: ports, settings, and functions that other rooms provide."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from webhook.eviction.settings import WorkerSettings
from webhook.policy.model import BreakerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from webhook.api.patches import ResourceSlicePatch
    from webhook.api.pods import Pod
    from webhook.api.rules import DeviceTaintRule
    from webhook.eviction.modes import Mode
    from webhook.eviction.ports import Ceiling, Clock, ClusterWriter, NamespaceHolds, PodBudgets
    from webhook.eviction.profiles import Profile, Profiles
    from webhook.inventory.state import Inventory
    from webhook.policy.model import Pause
    from webhook.telemetry.eviction import EvictionMetrics


def _no_ceiling(_: DeviceTaintRule) -> Ceiling | None:
    """No rule has a ceiling."""
    return None


def _no_patch_ceiling(_: DeviceTaintRule, __: ResourceSlicePatch | None) -> Ceiling | None:
    """No patch has a ceiling."""
    return None


def _no_patches() -> Mapping[str, ResourceSlicePatch]:
    """No patch is known."""
    return {}


def _no_pause() -> Pause | None:
    """Evictions are not paused."""
    return None


def _always() -> bool:
    """For workers without a lease, and inventories that do not follow a cluster: files, tests."""
    return True


def _known_at_once(_: float) -> bool:
    """For inventories that do not follow a cluster."""
    return True


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
    leads: Callable[[], bool] = _always
    """Whether this process may write to the cluster at all; once another one leads, it must not."""
    trusted: Callable[[], bool] = _always
    """Whether the inventory is current; while it may be stale, no pod is evicted, and no rule is reported as done."""
    claims_known: Callable[[float], bool] = _known_at_once
    """Whether every change of a claim before that moment of the monotonic clock is in the inventory. If that is not
    known, it is found out: ask again."""
    ceiling_of: Callable[[DeviceTaintRule], Ceiling | None] = _no_ceiling
    """The most that a rule may hit; None is no limit."""
    patch_ceiling_of: Callable[[DeviceTaintRule, ResourceSlicePatch | None], Ceiling | None] = _no_patch_ceiling
    """The most that all rules of a patch may hit, by the limits for the taint of one of them; the patch is None if it
    is not known."""
    patches: Callable[[], Mapping[str, ResourceSlicePatch]] = _no_patches
    """ResourceSlicePatches by name, as far as they are known."""
    breaker: Callable[[], BreakerSettings] = BreakerSettings
    """When taints in slices stop evicting; called at each use, as the next one."""
    pause: Callable[[], Pause | None] = _no_pause
    """The policy's pause, over or not; None if it has none."""
    settings: WorkerSettings = field(default_factory=WorkerSettings)

    def paused(self) -> Pause | None:
        """The pause that holds now, or None."""
        pause = self.pause()
        return pause if pause is not None and self.clock.now() < pause.until else None

    @property
    def mode(self) -> Mode:
        """The mode the worker runs in."""
        return self.settings.mode
