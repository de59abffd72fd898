"""The state that reviews are decided by: policies, caches of the cluster, and what earlier reviews left behind.

Watches and loaders update it; each review takes one snapshot, an `AdmissionContext`, when it begins. Rules that began
to act recently, or were just allowed, count although the inventory may not show them: it shows a rule only after the
watch delivered it, and no longer shows the pods that it has evicted. The scheduler's assume cache solves the same
problem for pods that it has just bound.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Final, NamedTuple

from msgspec import structs

from webhook.admission.context import AdmissionContext, Budget
from webhook.admission.decision import Assumed
from webhook.admission.recent_impact import begins_to_act, victims_of
from webhook.admission.slice_guard import TaintId, evicting
from webhook.api.field import Path
from webhook.api.meta import ObjectMeta
from webhook.api.rules import RULE_ANNOTATIONS, DeviceTaintRule
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.api.slices import ResourceSlice
from webhook.api.taints import NO_EXECUTE
from webhook.inventory.impact import Impact, KnownPods
from webhook.inventory.state import Inventory, InventoryObject, Sight
from webhook.inventory.targets import DeviceNames
from webhook.patches.patch_reach import KnownPatches
from webhook.patches.slice_patches import SlicePatches
from webhook.policy.decide import PolicyStore
from webhook.policy.document import Loaded
from webhook.policy.match import NO_NAMES, ClusterNames, NamespaceFacts
from webhook.policy.model import InTreeEvictor, Policy
from webhook.validation.releases import release_of

KEPT_SECONDS: Final = 2.0
"""A rule that the watch has not shown by then was refused by another webhook, or was never sent to an API server."""
_KEPT_MOST: Final = 10_000
_KEPT_OF_PATCH: Final = 1000
"""Rules of one patch; the patch controller writes none at all where there would be this number."""
_KEPT_CHARACTERS: Final = 16_000_000
"""Of these rules; the oldest are forgotten first."""
_VICTIMS_MOST: Final = 200_000
"""Pods to remember in all, about 30 MB; no limit of a policy is higher than that."""
_NOT_COUNTED_SECONDS: Final = 600.0
_LAST: Final = 10
_NEVER_STORED: Final = 3
"""Of the last rules of a requester: from then on the next ones do not count before they are stored."""
_REQUESTERS_MOST: Final = 1000
_NOTHING: Final = Impact()


class _Assumed(NamedTuple):
    """What one review allowed, until it is stored."""

    rules: tuple[DeviceTaintRule, ...]
    names: tuple[DeviceNames, ...]
    victims: Impact
    requester: str | None
    """None once one rule of several was stored."""
    until: float
    characters: int
    last_look: bool
    """Whether /validate allowed it, and not only /mutate."""

    @property
    def at_once(self) -> bool:
        """Whether the in-tree controller carries any of it out."""
        return any(rule.taint.effect == NO_EXECUTE for rule in self.rules)


class _Hit(NamedTuple):
    at: float
    victims: Impact
    pods: int
    at_once: bool
    """Whether the in-tree controller carries the rule out."""


class _Requester:
    """Which of the last rules that were allowed to a requester were stored."""

    __slots__ = ("last", "not_counted_until")

    def __init__(self) -> None:
        self.last: deque[bool] = deque(maxlen=_LAST)
        self.not_counted_until = -math.inf


class AssumedRules:
    """Rules that this replica allowed, and rules that its watch showed to begin, whichever replica allowed them.

    Rules that several replicas allow before any of them sees the others' can exceed a limit together: each replica
    applies the limit to what it knows. Anyone who reaches the port can send reviews in any name, so what was allowed
    counts only for a moment before it is stored, and not at all for a requester whose rules are not stored.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` counts seconds and never goes back."""
        self._clock = clock
        self._kept: list[_Assumed] = []
        """The oldest first."""
        self._requesters: OrderedDict[str, _Requester] = OrderedDict()
        """Those of whom a rule was stored, the one that was heard of last at the end."""
        self._strangers = _Requester()
        """All others, as one: else who makes up a name for each review would never be found out."""
        self._hits: deque[_Hit] = deque(maxlen=_KEPT_MOST)
        self._pods = 0
        self._victims: tuple[Impact, ...] | None = ()
        self._victims_at_once: tuple[Impact, ...] = ()
        self._closing: OrderedDict[DeviceNames, float] = OrderedDict()
        """Devices, and when a rule last began to act on them; the oldest first."""
        self._closed: tuple[DeviceNames, ...] | None = ()

    # --- what was allowed -------------------------------------------------------------------------

    def validated(self, requester: str) -> None:
        """Note that /validate answers the requester: what /mutate left for that does not count any more."""
        left = next((each for each in self._kept if not each.last_look and each.requester == requester), None)
        if left is not None:
            self._keep([each for each in self._kept if each is not left])

    def add(self, assumed: Assumed, requester: str, *, last_look: bool = True) -> None:
        """Remember a rule that was just allowed here, instead of an earlier one of the same name; or all of a patch.

        `last_look`: whether it is stored now unless another webhook refuses it, as after /validate. Of a patch the
        first rule that is stored says so.
        """
        now = self._clock()
        self._expire(now)
        expected = bool(assumed.rules)  # else nothing would ever say that it was stored
        if not expected or now < self._requesters.get(requester, self._strangers).not_counted_until:
            return
        rules = tuple([_said(rule) for rule in assumed.rules[:_KEPT_OF_PATCH]])
        victims = Impact(waves=assumed.impact.waves, namespaces=assumed.impact.namespaces)
        new = _Assumed(rules, assumed.names, victims, requester, now + KEPT_SECONDS, len(str(rules)), last_look)
        names = {rule.meta.name for rule in rules} - {""}
        kept = [each for each in self._kept if names.isdisjoint([rule.meta.name for rule in each.rules])]
        kept = [*kept, new][-_KEPT_MOST:]
        sums = list(accumulate(each.characters for each in reversed(kept)))
        self._keep(kept[len(kept) - bisect_right(sums, _KEPT_CHARACTERS) :])

    def stored(self, rule: DeviceTaintRule) -> bool:
        """Note that a rule is stored, and return whether it was allowed here: then its impact goes on to count."""
        self._expire(self._clock())
        found = next((each for each in self._kept if any(_same(known, rule) for known in each.rules)), None)
        if found is None:
            return False
        self._closing_now(found.names)
        self._hit(found.victims, at_once=found.at_once)
        if found.requester is not None:
            self._note(found.requester, stored=True)
        others = tuple([known for known in found.rules if not _same(known, rule)])
        rest = [found._replace(rules=others, names=(), victims=_NOTHING, requester=None)] if others else []
        at = next(at for at, each in enumerate(self._kept) if each is found)
        self._keep([*self._kept[:at], *rest, *self._kept[at + 1 :]])
        return True

    def not_counted(self) -> int:
        """Return the number of requesters whose rules do not count before they are stored."""
        now = self._clock()
        self._expire(now)
        return sum([now < each.not_counted_until for each in (self._strangers, *self._requesters.values())])

    def current(self, inventory: Inventory | None) -> tuple[DeviceTaintRule, ...]:
        """Return the rules allowed here that the inventory does not show yet."""
        if not self._kept:
            return ()
        self._expire(self._clock())
        rules = [rule for each in self._kept for rule in each.rules]
        if inventory is None:
            return tuple(rules)
        stored = inventory.rules.get
        return tuple([rule for rule in rules if (at := stored(rule.meta.name)) is None or not _same(at, rule)])

    def _expire(self, now: float) -> None:
        """Forget what was not stored in time."""
        if not self._kept or now < self._kept[0].until:
            return
        gone = [each for each in self._kept if now >= each.until]
        self._keep([each for each in self._kept if now < each.until])
        for each in gone:
            if each.requester is not None:
                self._note(each.requester, stored=False)

    def _keep(self, kept: list[_Assumed]) -> None:
        self._kept = kept
        self._victims = self._closed = None

    def _note(self, requester: str, *, stored: bool) -> None:
        """Note that one more of the requester's rules was stored, or was not."""
        if stored and requester not in self._requesters:
            self._requesters[requester] = _Requester()
            if len(self._requesters) > _REQUESTERS_MOST:
                self._requesters.popitem(last=False)
        known = self._requesters.get(requester, self._strangers)
        known.last.append(stored)
        if not stored and known.last.count(False) >= _NEVER_STORED:
            known.not_counted_until = self._clock() + _NOT_COUNTED_SECONDS
            known.last.clear()
        if requester in self._requesters:
            self._requesters.move_to_end(requester)

    # --- what has begun ---------------------------------------------------------------------------

    def began(self, rule: DeviceTaintRule, names: DeviceNames, impact: Impact) -> None:
        """Remember what a rule hits, and closes, that begins to act now, and was not allowed here."""
        self._closing_now((names,))
        self._hit(impact, at_once=rule.taint.effect == NO_EXECUTE)

    def _closing_now(self, devices: Iterable[DeviceNames]) -> None:
        now = self._clock()
        for names in devices:
            self._closing[names] = now
            self._closing.move_to_end(names)
            if len(self._closing) > _KEPT_MOST:
                self._closing.popitem(last=False)
        self._closed = None

    def _hit(self, impact: Impact, *, at_once: bool) -> None:
        victims = Impact(waves=impact.waves, namespaces=impact.namespaces)
        if not victims.waves:
            return
        hit = _Hit(self._clock(), victims, len(victims.pods), at_once)
        while self._hits and (len(self._hits) == _KEPT_MOST or self._pods + hit.pods > _VICTIMS_MOST):
            self._forget()
        self._hits.append(hit)
        self._pods += hit.pods
        self._victims = None

    def _forget(self) -> None:
        self._pods -= self._hits.popleft().pods
        self._victims = None

    def victims_at_once(self, seconds: float) -> tuple[Impact, ...]:
        """Return `victims` of rules with effect NoExecute alone, not of those that only ask our worker."""
        self.victims(seconds)
        return self._victims_at_once

    def victims(self, seconds: float) -> tuple[Impact, ...]:
        """Return what each rule hit when it began in the last `seconds`, and what was just allowed."""
        now = self._clock()
        self._expire(now)
        since = now - seconds
        while self._hits and self._hits[0].at < since:
            self._forget()
        if self._victims is None:
            counted = [(each.victims, each.at_once) for each in self._hits]
            counted += [(each.victims, each.at_once) for each in self._kept if each.victims.waves]
            self._victims = tuple([victims for victims, _ in counted])
            self._victims_at_once = tuple([victims for victims, at_once in counted if at_once])
        return self._victims

    def closed(self, seconds: float) -> tuple[DeviceNames, ...]:
        """Return the devices on which rules began to act in the last `seconds`, or were just allowed to."""
        now = self._clock()
        self._expire(now)
        since = now - seconds
        while self._closing and next(iter(self._closing.values())) < since:
            self._closing.popitem(last=False)
            self._closed = None
        if self._closed is None:
            allowed = [names for each in self._kept for names in each.names]
            self._closed = tuple(dict.fromkeys([*self._closing, *allowed]))
        return self._closed


def _said(rule: DeviceTaintRule) -> DeviceTaintRule:
    """Return the rule with only the annotations that say how it acts; each has a few characters."""
    said = {name: text[:64] for name, text in rule.meta.annotations.items() if name in RULE_ANNOTATIONS}
    return structs.replace(rule, meta=ObjectMeta(name=rule.meta.name, annotations=said))


def _same(one: DeviceTaintRule, other: DeviceTaintRule) -> bool:
    return (one.meta.name, one.selector, one.taint, one.effective_effect) == (
        other.meta.name,
        other.selector,
        other.taint,
        other.effective_effect,
    )


TAINTS_KEPT_SECONDS: Final = 600.0
_TAINTS_KEPT_MOST: Final = 100_000
"""About 40 MB. Beyond that the oldest is forgotten, and reported again if it comes back."""


class RecentTaints:
    """Taints that were removed from a pool's slices in the last ten minutes, as this replica's watch showed them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` counts seconds and never goes back."""
        self._clock = clock
        self._gone: OrderedDict[tuple[str, str, TaintId], float] = OrderedDict()

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """Note the taints that a change removes."""
        if not isinstance(old, ResourceSlice):
            return
        before = evicting([old])
        if not before:
            return
        same_pool = isinstance(new, ResourceSlice) and (new.driver, new.pool) == (old.driver, old.pool)
        after = evicting([new]) if isinstance(new, ResourceSlice) and same_pool else set()
        now = self._clock()
        for identity in before - after:
            key = (old.driver, old.pool, identity)
            self._gone[key] = now
            self._gone.move_to_end(key)
        while self._gone and (
            len(self._gone) > _TAINTS_KEPT_MOST or next(iter(self._gone.values())) < now - TAINTS_KEPT_SECONDS
        ):
            self._gone.popitem(last=False)

    def had(self, driver: str, pool: str, identity: TaintId) -> bool:
        """Return whether a slice of the pool had the taint within that time."""
        at = self._gone.get((driver, pool, identity))
        return at is not None and self._clock() - at <= TAINTS_KEPT_SECONDS


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
        """Return the namespace; if it is unknown, None, and record the name."""
        facts = self._names.namespace(name)
        if facts is None and name:
            self.namespaces.add(name)
        return facts

    def drivers(self, device_class: str) -> frozenset[str] | None:
        """Return the drivers behind a class; if they are unknown or may be any, None, and record the name."""
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
        """Go on a little with questions about filters; return whether any were left."""
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
        """Take the snapshot for a review that begins now.

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
        """Whether the inventory was complete once."""

    def observe(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """Note a change that makes a rule begin to act."""
        if not isinstance(new, DeviceTaintRule):
            return
        if not self._followed:
            sight = self._state.sight
            self._followed = sight is not None and sight().inventory is not None
        if not self._followed:
            return
        before, assumed = old if isinstance(old, DeviceTaintRule) else None, self._state.assumed_rules
        if assumed.stored(new) or not begins_to_act(new, before):
            return
        in_tree = self._state.policies.active.policy.in_tree_evictor is InTreeEvictor.ACTIVE
        names = DeviceNames.of(new.selector, self._inventory.servers)
        assumed.began(new, names, victims_of(new, self._inventory, in_tree=in_tree))
