"""What the worker is put together from: ports, and questions to those who know more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from webhook.eviction.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.api.pods import Pod
    from webhook.api.rules import DeviceTaintRule
    from webhook.eviction.modes import Mode
    from webhook.eviction.ports import Ceiling, Clock, ClusterWriter, NamespaceHolds, PodBudgets
    from webhook.eviction.profiles import Profile, Profiles
    from webhook.inventory.state import Inventory
    from webhook.telemetry.eviction import EvictionMetrics


def _no_ceiling(_: DeviceTaintRule) -> Ceiling | None:
    """Nothing was confirmed."""
    return None


def _always() -> bool:
    """Whoever asks looks at files, or at a test's own world."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Everything that the parts of the worker share."""

    inventory: Inventory
    writer: ClusterWriter
    budgets: PodBudgets
    namespaces: NamespaceHolds
    clock: Clock
    metrics: EvictionMetrics
    profiles: Callable[[], Profiles]
    """Asked each time, as the policy may change."""
    profile_of: Callable[[Pod], Profile]
    random: Callable[[], float]
    trusted: Callable[[], bool] = _always
    """Whether the inventory follows the cluster now; nobody is evicted by what may be out of date."""
    ceiling_of: Callable[[DeviceTaintRule], Ceiling | None] = _no_ceiling
    """The most that a rule may hit; None is no limit."""
    settings: WorkerSettings = field(default_factory=WorkerSettings)

    @property
    def mode(self) -> Mode:
        """How the worker works."""
        return self.settings.mode
