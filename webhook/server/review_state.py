"""The state that reviews are decided by: policies, caches of the cluster, and what earlier reviews left behind.

Watches and loaders update it; each review takes one snapshot, an `AdmissionContext`, when it begins.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from webhook.admission.context import AdmissionContext, Budget
from webhook.admission.recent_impact import begins_to_act, victims_of
from webhook.api.field import Path
from webhook.api.rules import DeviceTaintRule
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.inventory.impact import KnownPods
from webhook.inventory.state import Inventory, InventoryObject, Sight
from webhook.inventory.targets import DeviceNames
from webhook.patches.patch_reach import KnownPatches
from webhook.patches.slice_patches import SlicePatches
from webhook.policy.document import Loaded
from webhook.policy.model import InTreeEvictor, Policy
from webhook.policy.ports import NO_NAMES, ClusterNames, NamespaceFacts
from webhook.policy.store import PolicyStore
from webhook.server.assumed_rules import AssumedRules, RecentTaints
from webhook.validation.releases import release_of

UNFOLLOWED: Final = KnownPatches(unknown="this webhook does not follow patches (serve --watch-patches)")
UNWATCHED: Final = "this webhook runs without a cluster, so it cannot see whether API servers prove authors"
LookUp = Callable[[frozenset[str], frozenset[str], float], Awaitable[bool]]
"""Asks the cluster for namespaces and device classes, for at most that many seconds; returns whether it found any.

Never raises.
"""


class Misses:
    """Known names, and a record of the unknown ones that were asked for."""

    __slots__ = ("_names", "device_classes", "namespaces")

    def __init__(self, names: ClusterNames) -> None:
        self._names = names
        self.namespaces: set[str] = set()
        self.device_classes: set[str] = set()

    def namespace(self, name: str) -> NamespaceFacts | None:
        """The namespace; if it is unknown, None, and the name is recorded."""
        facts = self._names.namespace(name)
        if facts is None and name:
            self.namespaces.add(name)
        return facts

    def drivers(self, device_class: str) -> frozenset[str] | None:
        """The drivers behind a class; None, and the name is recorded, if they are unknown or may be any."""
        drivers = self._names.drivers(device_class)
        if drivers is None and device_class:
            self.device_classes.add(device_class)
        return drivers

    @property
    def found(self) -> bool:
        """Whether any name was unknown. A record without one is still a record, so it has no truth value of its own."""
        return bool(self.namespaces or self.device_classes)


@dataclass(slots=True)
class ReviewState:
    """Each field is replaced whole, on the event loop."""

    policies: PolicyStore = field(default_factory=PolicyStore)
    authors_unproved: Callable[[], str] = lambda: UNWATCHED
    """Why API servers do not prove the authors of templates now; empty if they do."""
    names: ClusterNames = NO_NAMES
    servers: Callable[[], ServerFacts] = lambda: UNKNOWN
    """What the API servers do; also known while the inventory is not current, and in other threads."""
    sight: Callable[[], Sight] | None = None
    """The inventory now; None without a cluster."""
    patches: Callable[[], KnownPatches] = lambda: UNFOLLOWED
    """The patches and device classes now."""
    patch_account: str = ""
    """The user name of the patch controller; empty if there is none."""
    pods: Callable[[Policy], KnownPods | None] = lambda _: None
    """What is known of pods, under a policy; None where they are not followed, or not known (yet)."""
    look_up: LookUp | None = None
    """None without a cluster: then unknown names stay unknown."""
    read_policy: Callable[[str, Path, Callable[[str], None]], Loaded] | None = None
    assumed_rules: AssumedRules = field(default_factory=lambda: AssumedRules(time.monotonic))
    """Rules that began to act, or were allowed, a moment ago."""
    worker_problem: Callable[[], str] = lambda: ""
    """Why no eviction worker acts on `/evict` now; empty if one does, or if that is not known."""
    slice_patches: Callable[[], SlicePatches | None] = lambda: None
    """The known patches that change slices; None where that was not asked for."""
    recent_taints: RecentTaints = field(default_factory=lambda: RecentTaints(time.monotonic))
    """Taints that slices had until a moment ago."""

    @property
    def judges_taints(self) -> bool:
        """Whether a policy, or the one that is tried, has rules on taints."""
        policies = self.policies.state
        return policies.active.judges_taints or (policies.candidate is not None and policies.candidate.judges_taints)

    @property
    def softens(self) -> bool:
        """Whether the policy in use softens rules."""
        return self.policies.state.active.policy.impact.softens

    @property
    def changes_slices(self) -> bool:
        """Whether patches are to be put into slices, and there are any."""
        patches = self.slice_patches()
        return patches is not None and bool(patches.patches)

    def match_filters(self) -> bool:
        """Goes on a little with what questions about filters have left; returns whether there was anything."""
        memo, inventory = self.patches().memo, None if self.sight is None else self.sight().inventory
        return memo is not None and inventory is not None and memo.step(inventory.pools)

    def context(
        self,
        now: datetime,
        budget: Budget,
        names: ClusterNames,
        *,
        inventory: bool = True,
    ) -> AdmissionContext:
        """The snapshot for a review that begins now.

        Without `inventory` it sees neither that nor what was assumed. Both change on the event loop, so they are not
        for other threads.
        """
        sight = self.sight() if inventory and self.sight is not None else None
        servers = self.servers()
        policies = self.policies.state
        window = policies.active.policy.impact.window_seconds
        return AdmissionContext(
            now,
            judge=policies.active,
            candidate=policies.candidate,
            servers=servers,
            release=release_of(servers),
            names=names,
            authors_unproved=self.authors_unproved(),
            sight=sight,
            patches=self.patches(),
            patch_account=self.patch_account,
            pods=None if sight is None else self.pods(policies.active.policy),
            assumed=() if sight is None else self.assumed_rules.current(sight.inventory),
            victims=() if sight is None else self.assumed_rules.victims(window),
            victims_at_once=() if sight is None else self.assumed_rules.victims_at_once(window),
            closed=() if sight is None else self.assumed_rules.closed(window),
            slice_patches=self.slice_patches(),
            recently_had=self.recent_taints.had,
            read_policy=self.read_policy,
            budget=budget,
            worker_problem=self.worker_problem(),
        )


class RuleObserver:
    """Adds rules from the watch to the assumed rules of the window: their impact is counted before their pods are gone.

    The replica that admitted a rule knows its impact from the review; the other replicas learn it here.

    Rules in the first lists are not new: for those, the times of their taints say whether they are in the window. A
    later list counts like a watch, for what it changes.
    """

    def __init__(self, state: ReviewState, inventory: Inventory) -> None:
        """`inventory` must have applied each change before it is observed."""
        self._state = state
        self._inventory = inventory
        self._followed = False

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """One object has changed."""
        if not isinstance(new, DeviceTaintRule) or not self._follows():
            return
        before, assumed = old if isinstance(old, DeviceTaintRule) else None, self._state.assumed_rules
        if assumed.stored(new) or not begins_to_act(new, before):
            return
        in_tree = self._state.policies.active.policy.in_tree_evictor is InTreeEvictor.ACTIVE
        names = DeviceNames.of(new.selector, self._inventory.servers)
        assumed.began(new, names, victims_of(new, self._inventory, in_tree=in_tree))

    def _follows(self) -> bool:
        """Return whether the inventory was complete once."""
        if not self._followed:
            sight = self._state.sight
            self._followed = sight is not None and sight().inventory is not None
        return self._followed
