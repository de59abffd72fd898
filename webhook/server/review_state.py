"""What reviews are decided by besides themselves: the policy of the moment, the key, and what is known of the cluster.

Whoever watches these swaps them here; each review takes what is there when it begins.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from webhook.admission.context import AdmissionContext
from webhook.policy.ports import NO_NAMES, ClusterNames, NamespaceFacts
from webhook.policy.store import PolicyStore
from webhook.server.assumed_rules import AssumedRules
from webhook.server.recent_taints import RecentTaints

if TYPE_CHECKING:
    from datetime import datetime

    from webhook.admission.context import Budget
    from webhook.api.field import Path
    from webhook.inventory.state import Sight
    from webhook.policy.document import Loaded

LookUp = Callable[[frozenset[str], frozenset[str], float], Awaitable[bool]]
"""Ask the cluster for namespaces and device classes, for at most so many seconds; gives whether anything new came.

Never raises.
"""


class Misses:
    """Names as they are known, and a note of those that are not."""

    __slots__ = ("_names", "device_classes", "namespaces")

    def __init__(self, names: ClusterNames) -> None:
        self._names = names
        self.namespaces: set[str] = set()
        self.device_classes: set[str] = set()

    def namespace(self, name: str) -> NamespaceFacts | None:
        """The namespace, or None and a note."""
        facts = self._names.namespace(name)
        if facts is None and name:
            self.namespaces.add(name)
        return facts

    def drivers(self, device_class: str) -> frozenset[str] | None:
        """The drivers behind a class, or None and a note; a class that may give any driver is noted as well."""
        drivers = self._names.drivers(device_class)
        if drivers is None and device_class:
            self.device_classes.add(device_class)
        return drivers

    def __bool__(self) -> bool:
        return bool(self.namespaces or self.device_classes)


@dataclass(slots=True)
class ReviewState:
    """Swapped piece by piece, each piece whole."""

    policies: PolicyStore = field(default_factory=PolicyStore)
    key: Callable[[], bytes | None] = lambda: None
    """Asked each time, as it may come, or be replaced, while we run."""
    names: ClusterNames = NO_NAMES
    sight: Callable[[], Sight] | None = None
    """What is seen of the cluster's devices now; None where nobody looks."""
    look_up: LookUp | None = None
    """None without a cluster: then what is not known stays so."""
    read_policy: Callable[[str, Path, Callable[[str], None]], Loaded] | None = None
    assumed_rules: AssumedRules = field(default_factory=lambda: AssumedRules(time.monotonic))
    """Rules that began to act, or were let through a moment ago."""
    recent_taints: RecentTaints = field(default_factory=lambda: RecentTaints(time.monotonic))
    """Taints that slices had until a moment ago."""

    def context(
        self,
        now: datetime,
        budget: Budget,
        names: ClusterNames,
        *,
        caller_trusted: bool = True,
        inventory: bool = True,
    ) -> AdmissionContext:
        """What a review that begins now may look at.

        Without `inventory` it sees neither that nor what was assumed. Both change on the event loop, so they are not
        for other threads.
        """
        sight = self.sight() if inventory and self.sight is not None else None
        policies = self.policies.state
        window = policies.active.policy.impact.window_seconds
        return AdmissionContext(
            now,
            judge=policies.active,
            candidate=policies.candidate,
            names=names,
            key=self.key(),
            sight=sight,
            assumed=() if sight is None else self.assumed_rules.current(sight.inventory),
            victims=() if sight is None else self.assumed_rules.victims(window),
            closed=() if sight is None else self.assumed_rules.closed(window),
            recently_had=self.recent_taints.had,
            read_policy=self.read_policy,
            budget=budget,
            caller_trusted=caller_trusted,
        )
