"""What the worker is built from: ports, its settings, `Dependencies`, and what can block a pod that is due.

Room `cluster` implements the ports, whose methods return results and never raise. Source: policy profiles; policy/v1
PodDisruptionBudget.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import structs

from webhook.api.pods import DisruptionBudget, Pod, PodGroup
from webhook.api.rules import CONFIRM_IMPACT, Condition, DeviceTaintRule
from webhook.eviction.modes import InTree, Mode
from webhook.flowcontrol.rates import Rate

if TYPE_CHECKING:
    from webhook.api.patches import ResourceSlicePatch
    from webhook.eviction.profiles import Profile
    from webhook.flowcontrol.rates import Clock
    from webhook.inventory.state import Inventory
    from webhook.policy.model import BreakerSettings, Pause
    from webhook.telemetry.workers import EvictionMetrics

_TO_CONFIRM: Final = (
    f"its devices stay closed, and its pods stay until {CONFIRM_IMPACT}%s confirms them: set to any text, such as "
    "renew, it is refused, and the refusal contains the right one"
)


class PodRef(NamedTuple("PodRef", [("namespace", str), ("name", str), ("uid", str)])):  # noqa: SLOT002 -- it has more
    """One pod; the uid tells it from later pods of the same name. In requests it has what was decided about it.

    `version`: the resourceVersion that it must still have, empty for any; `live`: any, as it was read just now, also
    after a PATCH; `held`: whether it was on hold, for too long;
    `wanted`: whether it is still to go, which is asked as each request is written.
    """

    version: str = ""
    live: bool = False
    held: bool = False
    wanted: Callable[[], bool] = staticmethod(lambda: True)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Disruption(NamedTuple):
    """Pod condition DisruptionTarget, as set right before our own DELETE."""

    reason: str
    message: str


class EvictionResult(StrEnum):
    """Result of a request to evict or delete a pod."""

    EVICTED = "evicted"
    GONE = "gone"
    """The pod no longer exists; another pod may have its name."""
    BLOCKED = "blocked"
    """A disruption budget refused."""
    FAILED = "failed"
    """Any other error, or no answer."""


class EvictionOutcome(NamedTuple):
    """The result, the server's message, and how long it asks to wait before a retry."""

    result: EvictionResult
    text: str = ""
    retry_after_seconds: float = 0.0
    unsure: bool = False
    """The request failed, but the server may have carried it out."""
    budget_pending: bool = False
    """The budget is still being processed by the server, so it neither allows nor refuses evictions yet."""
    changed: bool = False
    """The pod is not as it was seen: it is looked at again once the watch has brought its newer version."""
    withdrawn: bool = False
    """The pod was not to go any more when a request was to be written, which was not sent then."""

    @property
    def evicted(self) -> bool:
        """Whether the request evicted the pod."""
        return self.result is EvictionResult.EVICTED

    @property
    def blocked(self) -> bool:
        """Whether a disruption budget refused."""
        return self.result is EvictionResult.BLOCKED

    @property
    def gone(self) -> bool:
        """Whether nothing is left to evict."""
        return self.result in (EvictionResult.EVICTED, EvictionResult.GONE)


class WriteFailure(NamedTuple):
    """A write to a rule that failed."""

    message: str
    """The error of the server or the client."""


class EvictionEvent(NamedTuple):
    """An Event about a pod, a rule or a PodGroup."""

    about: PodRef | DeviceTaintRule | PodGroup
    reason: str
    action: str
    text: str
    warning: bool = False


class ClusterWriter(Protocol):
    """Every write of the worker to the cluster."""

    async def prepare(self, pod: PodRef, *, delete: bool, unsure: bool) -> bool:
        """Wait for the client's rate limit, so that no request waits between the last recheck and its sending.

        `unsure`: the previous request may have taken effect. Returns false if it has: the pod is gone or deleted.
        """
        ...

    async def read(self, pod: PodRef) -> EvictionOutcome | None:
        """Read whether the pod is held or gone, whatever the watch shows; None if it may go."""
        ...

    async def evict(self, pod: PodRef, grace_period_seconds: int | None) -> EvictionOutcome:
        """Request an eviction through the Eviction API, with uid and version as preconditions."""
        ...

    async def may_evict(self, pod: PodRef) -> EvictionOutcome:
        """Ask the Eviction API whether it would evict the pod now, without doing it (a dry run)."""
        ...

    async def delete(self, pod: PodRef, grace_period_seconds: int | None, disruption: Disruption) -> EvictionOutcome:
        """Set condition DisruptionTarget, then delete the pod, with uid and version as preconditions."""
        ...

    async def set_conditions(self, rule: DeviceTaintRule, conditions: Sequence[Condition]) -> WriteFailure | None:
        """Replace all of our conditions on the rule; None on success, or if the rule is gone."""
        ...

    async def downgrade(self, rule: DeviceTaintRule) -> WriteFailure | None:
        """Set the effect to None, unless the rule has changed since it was read; None on success."""
        ...

    async def delete_rule(self, rule: DeviceTaintRule) -> WriteFailure | None:
        """Delete the rule, unless it has changed since it was read; None on success, or if the rule is gone."""
        ...

    async def write_event(self, event: EvictionEvent) -> None:
        """Write an Event; a failure is only logged."""
        ...


class PodBudgets(Protocol):
    """The disruption budgets of the cluster."""

    def select(self, pod: Pod) -> tuple[DisruptionBudget, ...]:
        """Return the budgets that select the pod, by name."""
        ...

    def find(self, namespace: str, name: str) -> DisruptionBudget | None:
        """Return the budget of that name, if there is one."""
        ...


class JudgedWhole(NamedTuple):
    """What admission has judged as one, where that is more than one rule; in words, for conditions."""

    name: str
    """Kind and name: `ResourceSlicePatch firmware`."""
    rules: str
    """The rules that belong to it: `all of its rules`."""


class Ceiling(NamedTuple):
    """The most that a rule may hit: the confirmed impact, or the policy's limits. None is no limit."""

    pods: int | None = None
    namespaces: int | None = None
    confirmed: bool = True
    text_problem: str = ""
    """Why the confirmation on the rule does not count; empty if it does, or if there is none."""
    softened: bool = False
    """Whether the rule was softened, so that it may be over its author's limit."""
    protected: Callable[[Collection[str]], Collection[str]] | None = None
    """Of some namespaces, those whose pods stay unless that is confirmed; None: all pods may go."""
    whole: JudgedWhole | None = None
    """What the ceiling is for; None: one rule."""

    def exceeded_by(self, pods: int, namespaces: int, names: Collection[str] = ()) -> str:
        """Name the exceeded limit in a sentence part; empty if there is none. `names` are the namespaces."""
        found = self._number_exceeded_by(pods, namespaces) or self._protected_in(names)
        if not found:
            return ""
        whole = self.whole
        text = found if whole is None else f"{whole.name}, with {whole.rules}, {found}"
        where = "" if whole is None else f" on {whole.name}"
        return f"{text}; {_TO_CONFIRM % where}" if self.softened else text

    def _protected_in(self, names: Collection[str]) -> str:
        hit = min(self.protected(names), default="") if self.protected is not None else ""
        return f"hits pods in protected namespace {hit}, and {self._unconfirmed()}" if hit else ""

    def _number_exceeded_by(self, pods: int, namespaces: int) -> str:
        if self.pods is not None and pods > self.pods:
            return f"hits {pods} pods, {self._most(self.pods)}"
        if self.namespaces is not None and namespaces > self.namespaces:
            return f"hits pods in {namespaces} namespaces, {self._most(self.namespaces)}"
        return ""

    def _most(self, number: int) -> str:
        if self.confirmed:
            return f"at most {number} were confirmed"
        return f"the limit is {number} and {self._unconfirmed()}"

    def _unconfirmed(self) -> str:
        return f"its confirmation does not count: {self.text_problem}" if self.text_problem else "nothing was confirmed"


class LimitKind(StrEnum):
    """The kinds of limits, by the name of their field in the policy."""

    OVERALL = "overall"
    NAMESPACE = "perNamespace"
    OWNER = "perOwnerUnavailable"
    BUDGET = "disruption budget"
    MINUTE = "maxPerMinute"
    RATE = "rate"


class OverallLimit(msgspec.Struct, frozen=True):
    """A profile's `overall`: evictions under way at the same time. `profile` is its position in the policy."""

    profile: int
    kind = LimitKind.OVERALL


class NamespaceLimit(msgspec.Struct, frozen=True):
    """A profile's `perNamespace`: evictions under way in one namespace."""

    namespace: str
    profile: int
    kind = LimitKind.NAMESPACE


class OwnerLimit(msgspec.Struct, frozen=True):
    """A profile's `perOwnerUnavailable`: unavailable pods of one owner, by uid."""

    owner: str
    profile: int
    kind = LimitKind.OWNER


class BudgetLimit(msgspec.Struct, frozen=True):
    """The disruption budgets that select a pod.

    Usually one; the Eviction API refuses pods with two. Without names, a refusal that no known budget explains: then
    `pod` is the uid of the only pod that it blocks. `needed`: how many evictions a unit needs that it blocks.
    """

    namespace: str
    budgets: tuple[str, ...]
    pod: str = ""
    needed: int = 1
    kind = LimitKind.BUDGET

    def needing(self, needed: int) -> BudgetLimit:
        """Return the limit of the same budgets for units that need this many evictions; 1 for single pods."""
        return self if self.needed == needed else structs.replace(self, needed=needed)


class MinuteLimit(msgspec.Struct, frozen=True):
    """A profile's `maxPerMinute`."""

    profile: int
    kind = LimitKind.MINUTE


class RateLimit(msgspec.Struct, frozen=True, cache_hash=True):
    """Token buckets, by what identifies them, with their rates: the first that has a token lets a pod through."""

    buckets: tuple[tuple[Hashable, Rate], ...]
    kind = LimitKind.RATE


Limit: TypeAlias = OverallLimit | NamespaceLimit | OwnerLimit | BudgetLimit | MinuteLimit | RateLimit
"""What blocks a pod that is due."""


# --- what the worker is built from ---------------------------------------------------------------


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
    report_every_seconds: float = 3600.0
    """Time between two log lines about taints that look forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What the daemon passes to the worker; all parts share it."""

    inventory: Inventory
    writer: ClusterWriter
    budgets: PodBudgets
    hold_of: Callable[[str], str | None]
    """The text of `/hold` on a namespace, None without one."""
    clock: Clock
    metrics: EvictionMetrics
    profiles: Callable[[], Sequence[Profile]]
    """By their position in the policy; called at each use, because that may change."""
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
        """Return the pause that holds now, or None."""
        pause = self.pause()
        return pause if pause is not None and self.clock.now() < pause.until else None

    @property
    def mode(self) -> Mode:
        """The mode the worker runs in."""
        return self.settings.mode
