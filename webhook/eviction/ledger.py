"""What a plan is made from: what the caches show at one moment, and what only the worker knows. Values.

`Ledger.restored` is what a new leader begins with. Of the ledger:

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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from webhook.api.pods import Pod
from webhook.eviction.breaker import Breaker
from webhook.eviction.ports import BudgetLimit
from webhook.eviction.profiles import Profile
from webhook.flowcontrol.clock import Clock
from webhook.flowcontrol.token_bucket import TokenBucket
from webhook.inventory.evictions import Eviction, Evictions, RuleRef
from webhook.inventory.state import Inventory
from webhook.policy.model import BreakerSettings, EvictionProfile

MINUTE_SECONDS: Final = 60.0


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
    gang_of: Callable[[Pod, Profile], str]
    """Identifies the gang of a pod; empty if it has none."""
    hold_of: Callable[[str], str | None]
    """The text of `/hold` on a namespace, None without one."""
    group_of: Callable[[str], str]
    """What a rule was judged with: its patch, the rule for the whole hardware, or itself."""
    exceeded: Callable[[str, int, AbstractSet[str]], str]
    """Why a group that hits this number of pods, in these namespaces, may evict none; empty if it may."""


class FrozenClock(Clock):
    """Stands at one moment."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment

    def now(self) -> datetime:
        """Returns the wall-clock time in UTC."""
        return self._moment.now

    def seconds(self) -> float:
        """Returns the monotonic seconds."""
        return self._moment.seconds


class Taken(msgspec.Struct, frozen=True):
    """A pod that was taken to be evicted. `place`: what it takes in limits, shared with its unit."""

    key: str
    """Its `namespace/name`."""
    namespace: str
    place: str
    owner: str = ""
    of_owner: str = ""
    """The place of its owner that it takes: its gang, or `place`."""
    rules: tuple[RuleRef, ...] = ()
    """Those that hit it then."""
    granted: bool = False
    """Whether the API server has evicted it."""


class Failure(msgspec.Struct, frozen=True):
    """Requests for a pod that failed or were refused: how many, and in monotonic seconds when the next may be sent."""

    refusals: int = 0
    retry_at: float = 0.0
    outdated: str = ""
    """The version of the pod that the API server does not have any more."""
    place: str = ""
    """The place that it was taken at."""
    blocked: bool = False
    """Whether a disruption budget refused the last request."""


class Round(msgspec.Struct, frozen=True):
    """How often the pods of an allocated claim were evicted, and the pods of the last round, by uid."""

    claim_uid: str
    count: int
    pods: frozenset[str]


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


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Pods go by uid, claims by `namespace/name`, owners as `units.owner_of` names them."""

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

    @classmethod
    def restored(cls, view: View, breaker: BreakerSettings, moment: Moment) -> Ledger:
        """Returns what the cluster shows a new leader: tripped drivers, and pods that went within the last minute."""
        storms = Breaker(
            view.inventory,
            view.evictions,
            FrozenClock(moment),
            lambda: breaker,
            on_trip=lambda _driver, _seconds: None,
            on_later=lambda _uid, _seconds: None,
        )
        storms.start()
        ledger = cls(tripped=storms.tripped)
        for key in view.hit:
            pod = view.inventory.pods[key]
            old = pod.gone_by is not None and (moment.now - pod.gone_by).total_seconds() >= MINUTE_SECONDS
            if pod.deleting and not old:
                settings = view.profile_of(pod).settings
                ledger.departures.setdefault(settings, {})[pod.meta.uid] = moment.seconds
        return ledger

    @property
    def granted(self) -> frozenset[str]:
        """The pods that the API server has evicted."""
        return frozenset([uid for uid, taken in self.taken.items() if taken.granted])

    @property
    def begun(self) -> frozenset[str]:
        """The places of units with a pod that the API server has evicted."""
        return frozenset([taken.place for taken in self.taken.values() if taken.granted])
