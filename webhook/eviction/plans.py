"""Who is to be evicted: the schedule, which is the truth, and what limits need to know of pods. No I/O, no clock."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from webhook.api.pods import Pod
from webhook.eviction.limits import NamespaceLimit, OwnerLimit
from webhook.eviction.ports import PodRef
from webhook.eviction.profiles import Profile
from webhook.inventory.evictions import Eviction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from webhook.inventory.evictions import Evictions
    from webhook.inventory.state import Inventory


class PodPlan(msgspec.Struct, eq=False, gc=False):
    """One pod that has to go."""

    key: str
    """Its `namespace/name`."""
    uid: str
    pod: Pod
    """As it was when it was last looked at."""
    eviction: Eviction
    profile: Profile
    budgeted: bool = False
    blocked_since: datetime | None = None
    """When a disruption budget first said no; anew after a restart, which errs on the gentle side."""
    last_event: str = ""
    """The reason of the last Event about it, so that none comes twice."""

    @property
    def ref(self) -> PodRef:
        """The pod, for those who act on it."""
        return PodRef(self.pod.meta.namespace, self.pod.meta.name, self.uid)

    @property
    def owner(self) -> str:
        """The uid of its controller; empty if nobody controls it."""
        return _owner_of(self.pod)


def _owner_of(pod: Pod) -> str:
    return pod.owner.uid if pod.owner is not None else ""


class ReplacementPending(msgspec.Struct, frozen=True):
    """An evicted pod of an owner is gone: until another takes its place, or that has taken too long, it is missing."""

    owner: str
    """By uid."""


Freed: TypeAlias = NamespaceLimit | OwnerLimit | ReplacementPending
"""A limit that has more room than before, or will have in a while."""


class Changes(NamedTuple):
    """What became of pods."""

    planned: list[PodPlan]
    """New, or others than before."""
    cancelled: list[PodPlan]
    """Dropped, while the pod is there."""
    gone: list[PodPlan]
    """Dropped, as the pod is gone or on its way."""


class _Hits:
    """The pods that a rule is a reason for."""

    __slots__ = ("namespaces", "pods")

    def __init__(self) -> None:
        self.pods: dict[str, None] = {}
        self.namespaces: dict[str, int] = {}

    def add(self, uid: str, namespace: str) -> None:
        """One more; it was not there."""
        self.pods[uid] = None
        self.namespaces[namespace] = self.namespaces.get(namespace, 0) + 1

    def discard(self, uid: str, namespace: str) -> None:
        """One less; it was there."""
        del self.pods[uid]
        self.namespaces[namespace] -= 1
        if not self.namespaces[namespace]:
            del self.namespaces[namespace]


class UnderWay:
    """Evictions from when they are asked for until their pods are gone, in all and by namespace. Pods go by uid."""

    def __init__(self) -> None:
        self._namespaces: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._namespaces)

    def __contains__(self, uid: object) -> bool:
        return uid in self._namespaces

    def count(self, namespace: str) -> int:
        """Of one namespace."""
        return self._counts.get(namespace, 0)

    def add(self, uid: str, namespace: str) -> None:
        """One begins, or was found to be under way; a second time changes nothing."""
        if uid not in self._namespaces:
            self._namespaces[uid] = namespace
            self._counts[namespace] = self._counts.get(namespace, 0) + 1

    def discard(self, uid: str) -> bool:
        """The pod is gone, or is not evicted after all; gives whether it was under way."""
        namespace = self._namespaces.pop(uid, None)
        if namespace is None:
            return False
        self._counts[namespace] -= 1
        if not self._counts[namespace]:
            del self._counts[namespace]
        return True


class Plans:
    """Every plan, and who is missing already. Pods go by uid."""

    def __init__(self, inventory: Inventory, evictions: Evictions, profile_of: Callable[[Pod], Profile]) -> None:
        self._inventory = inventory
        self._evictions = evictions
        self._profile_of = profile_of
        self.scheduled: dict[str, PodPlan] = {}
        self.evicted: dict[str, PodRef] = {}
        """Evicted by us, and not yet seen to go."""
        self.revision = 0
        """How many plans came, went or became others so far: whoever looks at all of them in pieces compares it."""
        self.under_way = UnderWay()
        self._requested: set[str] = set()
        self._known: dict[str, Pod] = {}
        """The pods that something here is about, as they were last seen, by `namespace/name`."""
        self._hits: dict[str, _Hits] = {}
        """By uid of the rule."""
        self._owned: dict[str, set[str]] = {}
        self._unavailable: dict[str, set[str]] = {}
        self._replacements: dict[str, list[str]] = {}
        self.freed: set[Freed] = set()
        """What has happened since it was last emptied that may let blocked pods go."""

    # --- questions -------------------------------------------------------------------------------

    def of_rule(self, rule_uid: str) -> list[PodPlan]:
        """The plans that a rule is a reason for."""
        hits = self._hits.get(rule_uid)
        return [] if hits is None else [self.scheduled[uid] for uid in hits.pods]

    def counts_of(self, rule_uid: str) -> tuple[int, int]:
        """How many pods those are, and in how many namespaces."""
        hits = self._hits.get(rule_uid)
        return (0, 0) if hits is None else (len(hits.pods), len(hits.namespaces))

    def unavailable(self, owner: str) -> int:
        """How many pods of an owner are not there for it."""
        return len(self._unavailable.get(owner, ()))

    def is_unavailable(self, owner: str, uid: str) -> bool:
        """Whether this one is among them, so that its going costs nothing more."""
        return uid in self._unavailable.get(owner, ())

    def pod_count(self, owner: str) -> int:
        """How many pods an owner has, as far as they use devices, with the places that wait for a replacement."""
        return len(self._owned.get(owner, ())) + len(self._replacements.get(owner, ()))

    # --- changes ---------------------------------------------------------------------------------

    def replan(self, keys: Iterable[str]) -> Changes:
        """Looks at pods anew, by `namespace/name`; gives what has changed."""
        changes = Changes([], [], [])
        pods, all_known = self._inventory.pods, self._known
        for key in keys:
            pod, known = pods.get(key), all_known.get(key)
            if pod is not known:
                self._observe(key, known, pod, changes)
            if pod is not None:
                self._plan_pod(key, pod, changes)
        return changes

    def _observe(self, key: str, known: Pod | None, pod: Pod | None, changes: Changes) -> None:
        """A pod is new here, or another than it was, or gone."""
        if known is not None and (pod is None or pod.meta.uid != known.meta.uid):
            self._forget(key, known, changes)
            known = None
        if pod is None:
            return
        uid, owner = pod.meta.uid, _owner_of(pod)
        if known is not None and _owner_of(known) != owner:
            self._remove_owned(_owner_of(known), uid)
            self._mark_available(_owner_of(known), uid)
        if known is not None or owner:
            self._known[key] = pod
        if owner:
            self._count_owned(uid, owner, pod)

    def _plan_pod(self, key: str, pod: Pod, changes: Changes) -> None:
        uid = pod.meta.uid
        eviction = self._evictions.eviction_of(pod)
        gone = pod.deleting or pod.finished or uid in self.evicted
        if gone or eviction is None:
            if pod.deleting and eviction is not None:
                self._known[key] = pod
                self.under_way.add(uid, pod.meta.namespace)
            self._drop(uid, changes.gone if gone else changes.cancelled)
            return
        profile = self._profile_of(pod)
        plan = self.scheduled.get(uid)
        if plan is None:
            if pod.owner is None:  # else it is known already
                self._known[key] = pod
            plan = self.scheduled[uid] = PodPlan(key, uid, pod, eviction, profile)
        else:
            same = (plan.eviction, plan.profile, plan.pod.priority) == (eviction, profile, pod.priority)
            plan.pod = pod
            if same:
                return
            self._unlist(plan)
            plan.eviction, plan.profile = eviction, profile
        self.revision += 1
        for rule, _ in eviction.rules:
            hits = self._hits.get(rule)
            if hits is None:
                hits = self._hits[rule] = _Hits()
            hits.add(uid, pod.meta.namespace)
        changes.planned.append(plan)

    def _drop(self, uid: str, dropped: list[PodPlan]) -> None:
        plan = self.scheduled.pop(uid, None)
        if plan is not None:
            self._unlist(plan)
            dropped.append(plan)

    def _unlist(self, plan: PodPlan) -> None:
        self.revision += 1
        for rule, _ in plan.eviction.rules:
            hits = self._hits[rule]
            hits.discard(plan.uid, plan.pod.meta.namespace)
            if not hits.pods:
                del self._hits[rule]

    def _forget(self, key: str, pod: Pod, changes: Changes) -> None:
        """The pod is gone."""
        uid, owner = pod.meta.uid, _owner_of(pod)
        del self._known[key]
        self._drop(uid, changes.gone)
        # The watch may be faster than the answer to our request.
        was_ours = self.evicted.pop(uid, None) is not None or uid in self._requested
        self._requested.discard(uid)
        if self.under_way.discard(uid):
            self.freed.add(NamespaceLimit(pod.meta.namespace))
        if not owner:
            return
        self._remove_owned(owner, uid)
        if was_ours:
            # Its replacement may not be there yet: until it is, or some time has passed, the place counts as empty.
            self._replacements.setdefault(owner, []).append(uid)
            self.freed.add(ReplacementPending(owner))
        else:
            self._mark_available(owner, uid)

    def _remove_owned(self, owner: str, uid: str) -> None:
        owned = self._owned.get(owner)
        if owned is not None:
            owned.discard(uid)
            if not owned:
                del self._owned[owner]

    def _count_owned(self, uid: str, owner: str, pod: Pod) -> None:
        owned = self._owned.get(owner)
        if owned is None:
            owned = self._owned[owner] = set()
        if uid not in owned:
            owned.add(uid)
            pending = self._replacements.get(owner)
            if pending:
                self._replaced(owner, pending.pop())
        if pod.deleting or not (pod.ready or pod.finished) or uid in self.under_way:
            self._unavailable.setdefault(owner, set()).add(uid)
        elif owner in self._unavailable:
            self._mark_available(owner, uid)

    def _mark_available(self, owner: str, uid: str) -> None:
        missing = self._unavailable.get(owner)
        if missing is not None and uid in missing:
            missing.discard(uid)
            if not missing:
                del self._unavailable[owner]
            self.freed.add(OwnerLimit(owner))

    def _replaced(self, owner: str, gone_uid: str) -> None:
        if not self._replacements.get(owner):
            self._replacements.pop(owner, None)
        self._mark_available(owner, gone_uid)

    def expire_replacements(self, owner: str) -> None:
        """No replacement came in time: the places of an owner's evicted pods do not count any more."""
        for gone_uid in self._replacements.pop(owner, []):
            self._mark_available(owner, gone_uid)

    # --- evictions -------------------------------------------------------------------------------

    def begin(self, uid: str) -> None:
        """Its eviction is asked for."""
        plan = self.scheduled[uid]
        self._requested.add(uid)
        self.under_way.add(uid, plan.pod.meta.namespace)
        if plan.owner:
            self._unavailable.setdefault(plan.owner, set()).add(uid)

    def succeed(self, uid: str, ref: PodRef) -> None:
        """It was evicted; what is to be done about it is to wait until it is gone."""
        self._requested.discard(uid)
        known = self._known.get(str(ref))
        if known is None or known.meta.uid != uid:
            self._end(uid, ref)  # it went faster than the answer came
            return
        self.evicted[uid] = ref
        self._drop(uid, [])

    def fail(self, uid: str, ref: PodRef) -> None:
        """It was not."""
        self._requested.discard(uid)
        self._end(uid, ref)

    def _end(self, uid: str, ref: PodRef) -> None:
        pod = self._inventory.pods.get(str(ref))
        if pod is not None and pod.meta.uid != uid:
            pod = None
        if pod is not None and pod.deleting:
            return
        if self.under_way.discard(uid):
            self.freed.add(NamespaceLimit(ref.namespace))
        if pod is not None and pod.owner is not None and (pod.ready or pod.finished):
            self._mark_available(pod.owner.uid, uid)
