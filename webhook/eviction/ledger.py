"""What a plan is made from: what the caches show at one moment, and what only the worker knows. Values.

A new leader begins with an empty ledger, but for `departures_of` (set by `Planner.steps`) and what the breaker finds;
`Ledger.restored` computes both for `status`. Of the ledger:

| what | dropped when |
|---|---|
| `taken` | the watch shows the pod gone, or standing a while after it was granted |
| `failures` | the pod is gone, or no taint evicts it |
| `rounds` | the claim is free, or no taint evicts its pods |
| `unreplaced` | the owner has a new pod, or the wait for one is over |
| `budgets` | no pod has asked the budget for ten minutes |
| `buckets` | full |
| `departures` | a minute old |
| `tripped` | the driver is calm, or acknowledged |
| `doubts` | the pod is gone, or the next request is answered |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from webhook.api.pods import Pod
from webhook.eviction.breaker import Breaker
from webhook.eviction.ports import BudgetLimit
from webhook.eviction.profiles import Profile, gang_text
from webhook.flowcontrol.rates import TokenBucket
from webhook.inventory.evictions import Eviction, Evictions, RuleRef
from webhook.inventory.gangs import goes_with_all, group_key
from webhook.inventory.state import Inventory
from webhook.policy.model import BreakerSettings, EvictionProfile

MINUTE_SECONDS: Final = 60.0
ROUNDS_MOST: Final = 2
"""Evictions of the pods of one claim, before its next pods are left alone: they come back to the same device."""


class Moment(NamedTuple):
    """One moment: due times and windows are wall-clock times, in UTC; waits for answers are in monotonic seconds."""

    now: datetime
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the caches show. Pods and claims go by `namespace/name`, rules and their groups by uid."""

    inventory: Inventory
    evictions: Evictions
    hit: Mapping[str, Eviction]
    """The pods that a taint evicts, sooner or later."""
    profile_of: Callable[[Pod], Profile]
    hold_of: Callable[[str], str | None]
    """The text of `/hold` on a namespace, None without one."""
    group_of: Callable[[str], str]
    """What a rule was judged with: its patch, the rule for the whole hardware, or itself."""
    exceeded: Callable[[str, int, AbstractSet[str], AbstractSet[str]], str]
    """Why a group that hits this number of pods, in these namespaces, may evict none; empty if it may.

    The last argument are the rules that hit pods, of all groups.
    """

    def gang_of(self, pod: Pod, profile: Profile) -> str:
        """Return what identifies the gang of a pod; empty if it has none."""
        return gang_text(self.inventory, pod, profile)

    def pod(self, key: str, uid: str) -> Pod | None:
        """Return the pod of this `namespace/name`; None if it is gone, also if another one has its name now."""
        found = self.inventory.pods.get(key)
        return None if found is None or found.meta.uid != uid else found


class Taken(msgspec.Struct, frozen=True):
    """A pod that was taken to be evicted. `place`: what it takes in limits, shared with its unit."""

    key: str
    """Its `namespace/name`."""
    namespace: str
    place: str
    unit: int
    """Its unit, by the number that it was taken with."""
    owner: str = ""
    of_owner: str = ""
    """The place of its owner that it takes; empty for that of its gang."""
    rules: tuple[RuleRef, ...] = ()
    """Those that hit it then."""
    asked: bool = False
    """Whether a request to evict it was written."""
    tokens: tuple[tuple[Hashable, float], ...] = ()
    """What it took from which buckets."""
    budget: BudgetLimit | None = None
    """The budgets that it asks."""


class Doubt(NamedTuple):
    """A request to evict a pod got no answer, so it may have taken effect, or may still do so."""

    taken: Taken
    """The pod as it was taken, with the rules that hit it when the request was sent."""
    eviction: Eviction
    """Why the pod was to go when it was sent."""
    settings: EvictionProfile
    until: float
    """If the pod terminates before that, in monotonic seconds, it counts as evicted by the request."""


class Failure(msgspec.Struct, frozen=True):
    """Requests for a pod that failed or were refused: how many, and in monotonic seconds when the next may be sent."""

    refusals: int = 0
    retry_at: float = 0.0
    outdated: str = ""
    """The version of the pod that the API server does not have any more."""
    place: str = ""
    """The place that it was taken at."""
    unit: int = 0
    """The unit that it was taken with."""
    blocked: bool = False
    """Whether a disruption budget refused the last request."""
    errors: int = 0
    """How many in a row have failed otherwise."""
    conflicts: int = 0
    """How many in a row have failed because the pod had changed."""
    undeleted: bool = False
    """Whether it stood undeleted after an eviction, which was counted."""


class Round(msgspec.Struct):
    """How often the pods of an allocated claim were evicted, and the pods of the last round, by uid.

    A round counts from its first request on, because a replacement may be seen before the answer. If none of its
    requests evicts a pod, the round is taken back: `earlier` are the pods then.
    """

    claim_uid: str
    count: int = 0
    pods: frozenset[str] = frozenset()
    earlier: frozenset[str] = frozenset()
    in_flight: int = 0
    evicted: bool = False


class BudgetAnswers(msgspec.Struct, frozen=True):
    """What a budget has answered. Times are in monotonic seconds."""

    in_flight: int = 0
    granted: int = 0
    """Evictions since the watch last showed the budget's status."""
    asked_at: float = -1e9
    closed_until: float = -1e9
    refused_at: float = -1e9
    refused_seconds: float = 0.0
    """For how long it was asked and refused, without any progress."""


def lasting_claims(pod: Pod) -> list[str]:
    """Return the claims of a pod that were not made for it, and so are not deleted with it."""
    return [f"{pod.meta.namespace}/{each.claim}" for each in pod.claims if each.claim and not each.generated]


def departures_of(view: View, moment: Moment) -> dict[EvictionProfile, dict[str, float]]:
    """Return the terminating pods that go for a taint, each as if it had been evicted at this moment.

    Those that went along with their PodGroup are among them. A pod whose grace period ended a minute ago was evicted
    before that, and is left out.
    """
    found: dict[EvictionProfile, dict[str, float]] = {}
    inventory, pods = view.inventory, view.inventory.pods
    groups = {group_key(pods[key]) for key in view.hit if goes_with_all(inventory, pods[key])}
    for key in {*view.hit}.union(*map(inventory.members_of, groups)):
        pod = pods[key]
        long_ago = pod.grace_ends is not None and (moment.now - pod.grace_ends).total_seconds() >= MINUTE_SECONDS
        if pod.deleting and not long_ago:
            found.setdefault(view.profile_of(pod).settings, {})[pod.meta.uid] = moment.seconds
    return found


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Pods go by uid, claims by `namespace/name`, owners as `profiles.owner_of` names them."""

    taken: dict[str, Taken] = field(default_factory=dict)
    failures: dict[str, Failure] = field(default_factory=dict)
    rounds: dict[str, Round] = field(default_factory=dict)
    unreplaced: dict[str, dict[str, str]] = field(default_factory=dict)
    """By owner: evicted pods that are gone, and the place that each leaves open."""
    budgets: dict[BudgetLimit, BudgetAnswers] = field(default_factory=dict)
    buckets: dict[object, TokenBucket] = field(default_factory=dict)
    departures: dict[EvictionProfile, dict[str, float]] = field(default_factory=dict)
    """By settings: when each pod was granted, in monotonic seconds; infinite for those in flight."""
    tripped: frozenset[str] = frozenset()
    """Drivers whose taints in slices evict no pod."""
    doubts: dict[str, Doubt] = field(default_factory=dict)
    granted: set[str] = field(default_factory=set, init=False)
    """The pods that the API server has evicted, of those that were taken."""
    in_flight: set[str] = field(default_factory=set, init=False)
    """The others that were taken."""
    begun: set[int] = field(default_factory=set, init=False)
    """The units of which a pod was evicted, for as long as one is taken."""
    departed: dict[str, tuple[str, tuple[RuleRef, ...]]] | None = field(default=None, init=False)
    """While a plan of all pods is made: those that were evicted since it was begun, and for which rules."""
    units: int = field(default=0, init=False)
    """How many were taken so far."""
    _units: Counter[int] = field(default_factory=Counter, init=False)

    def take(self, uid: str, taken: Taken) -> None:
        """Note that a pod is to be evicted."""
        self.taken[uid] = taken
        self.in_flight.add(uid)
        self._units[taken.unit] += 1

    def grant(self, uid: str) -> None:
        """Note that the pod, which was taken, is evicted: its unit has begun to go."""
        self.granted.add(uid)
        self.in_flight.discard(uid)
        self.begun.add(self.taken[uid].unit)

    def depart(self, uid: str, key: str, rules: tuple[RuleRef, ...]) -> None:
        """Note that the pod was evicted for these rules."""
        if self.departed is not None:
            self.departed[uid] = key, rules

    def drop(self, uid: str) -> Taken:
        """Note that the pod, which was taken, is taken no longer; return what was known of it."""
        taken = self.taken.pop(uid)
        self.granted.discard(uid)
        self.in_flight.discard(uid)
        self._units[taken.unit] -= 1
        if not self._units[taken.unit]:
            del self._units[taken.unit]
            self.begun.discard(taken.unit)
        return taken

    @classmethod
    def restored(cls, view: View, breaker: BreakerSettings, moment: Moment) -> Ledger:
        """Return what the cluster shows a new leader: tripped drivers, and pods that went within the last minute."""
        storms = Breaker(view.inventory, view.evictions, lambda: moment, lambda: breaker)
        storms.start()
        return cls(tripped=storms.tripped, departures=departures_of(view, moment))
