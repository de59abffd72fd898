"""The plans: which pods are to be evicted and when, and the counts of pods that limits need. No I/O, no clock."""

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
    """The planned eviction of one pod."""

    key: str
    """The pod's `namespace/name`."""
    uid: str
    pod: Pod
    """The pod as it was when it was last planned."""
    eviction: Eviction
    profile: Profile
    budgeted: bool = False
    blocked_since: datetime | None = None
    """When a disruption budget first refused; unset after a restart, which delays a DELETE rather than hastens it."""
    last_event: str = ""
    """The reason of the last Event about the pod, so that none is repeated."""

    @property
    def ref(self) -> PodRef:
        """Identifies the pod in requests."""
        return PodRef(self.pod.meta.namespace, self.pod.meta.name, self.uid)

    @property
    def owner(self) -> str:
        """The uid of the pod's controller; empty if it has none."""
        return _owner_of(self.pod)


def _owner_of(pod: Pod) -> str:
    return pod.owner.uid if pod.owner is not None else ""


class ReplacementPending(msgspec.Struct, frozen=True):
    """An owner's evicted pod is gone; it counts as unavailable until it is replaced or the wait for that is over."""

    owner: str
    """By uid."""


Freed: TypeAlias = NamespaceLimit | OwnerLimit | ReplacementPending
"""A limit that has room again, or will have once the wait for a replacement is over."""


class Changes(NamedTuple):
    """The result of planning pods."""

    planned: list[PodPlan]
    """New or changed plans."""
    cancelled: list[PodPlan]
    """Dropped although the pod still exists."""
    gone: list[PodPlan]
    """Dropped because the pod is gone, finished or being deleted."""


class _Hits:
    """The planned pods that a rule hits: uids, and counts by namespace."""

    __slots__ = ("namespaces", "pods")

    def __init__(self) -> None:
        self.pods: dict[str, None] = {}
        self.namespaces: dict[str, int] = {}

    def add(self, uid: str, namespace: str) -> None:
        """Adds a pod, which must be new."""
        self.pods[uid] = None
        self.namespaces[namespace] = self.namespaces.get(namespace, 0) + 1

    def discard(self, uid: str, namespace: str) -> None:
        """Removes a pod, which must be present."""
        del self.pods[uid]
        self.namespaces[namespace] -= 1
        if not self.namespaces[namespace]:
            del self.namespaces[namespace]


class UnderWay:
    """Evictions from the request until the pod is gone, by uid of the pod; counted in all and by namespace."""

    def __init__(self) -> None:
        self._namespaces: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._namespaces)

    def __contains__(self, uid: object) -> bool:
        return uid in self._namespaces

    def count(self, namespace: str) -> int:
        """Number of evictions under way in a namespace."""
        return self._counts.get(namespace, 0)

    def add(self, uid: str, namespace: str) -> None:
        """An eviction has begun, or was found to be under way. Adding it twice changes nothing."""
        if uid not in self._namespaces:
            self._namespaces[uid] = namespace
            self._counts[namespace] = self._counts.get(namespace, 0) + 1

    def discard(self, uid: str) -> bool:
        """The pod is gone or was not evicted after all; returns whether its eviction was under way."""
        namespace = self._namespaces.pop(uid, None)
        if namespace is None:
            return False
        self._counts[namespace] -= 1
        if not self._counts[namespace]:
            del self._counts[namespace]
        return True


class Plans:
    """All plans, and the unavailable pods of each owner. Pods and owners are identified by uid."""

    def __init__(self, inventory: Inventory, evictions: Evictions, profile_of: Callable[[Pod], Profile]) -> None:
        self._inventory = inventory
        self._evictions = evictions
        self._profile_of = profile_of
        self.scheduled: dict[str, PodPlan] = {}
        self.evicted: set[str] = set()
        """Pods, by uid, that we evicted and that the watch still shows."""
        self.revision = 0
        """Grows with each plan that is added, changed or dropped, so that a reader that pauses notices changes."""
        self.under_way = UnderWay()
        self._requested: set[str] = set()
        self._known: dict[str, Pod] = {}
        """The pods tracked here, as they were last observed, by `namespace/name`."""
        self._hits: dict[str, _Hits] = {}
        """By the uid of the rule."""
        self._owned: dict[str, set[str]] = {}
        self._unavailable: dict[str, set[str]] = {}
        self._replacements: dict[str, list[str]] = {}
        self.freed: set[Freed] = set()
        """Limits that got room since the controller last emptied this set."""

    # --- queries ---------------------------------------------------------------------------------

    def of_rule(self, rule_uid: str) -> list[PodPlan]:
        """The plans of the pods that a rule hits."""
        hits = self._hits.get(rule_uid)
        return [] if hits is None else [self.scheduled[uid] for uid in hits.pods]

    def counts_of(self, rule_uid: str) -> tuple[int, int]:
        """Number of pods that a rule hits, and number of their namespaces."""
        hits = self._hits.get(rule_uid)
        return (0, 0) if hits is None else (len(hits.pods), len(hits.namespaces))

    def unavailable(self, owner: str) -> int:
        """Number of unavailable pods of an owner: not ready, being deleted, or evicted and not replaced yet."""
        return len(self._unavailable.get(owner, ()))

    def is_unavailable(self, owner: str, uid: str) -> bool:
        """Whether a pod counts as unavailable already, so that its eviction does not raise the count."""
        return uid in self._unavailable.get(owner, ())

    def pod_count(self, owner: str) -> int:
        """Number of pods of an owner that use devices, plus evicted ones that are not replaced yet."""
        return len(self._owned.get(owner, ())) + len(self._replacements.get(owner, ()))

    # --- changes ---------------------------------------------------------------------------------

    def replan(self, keys: Iterable[str]) -> Changes:
        """Plans these pods again, by `namespace/name`; returns the plans that changed."""
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
        """Updates the tracked pod and its owner after it was created, changed, replaced or removed."""
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
            if pod.owner is None:  # else `_observe` tracks it already
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
        """Drops a pod that no longer exists."""
        uid, owner = pod.meta.uid, _owner_of(pod)
        del self._known[key]
        self._drop(uid, changes.gone)
        # The watch may be faster than the response to our request.
        was_ours = uid in self.evicted or uid in self._requested
        self.evicted.discard(uid)
        self._requested.discard(uid)
        if self.under_way.discard(uid):
            self.freed.add(NamespaceLimit(pod.meta.namespace))
        if not owner:
            return
        self._remove_owned(owner, uid)
        if was_ours:
            # Until a replacement exists, or the wait for it is over, the pod counts as unavailable.
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
        """The wait for replacements is over: an owner's evicted pods no longer count as unavailable."""
        for gone_uid in self._replacements.pop(owner, []):
            self._mark_available(owner, gone_uid)

    # --- evictions -------------------------------------------------------------------------------

    def begin(self, uid: str) -> None:
        """The eviction of the pod is about to be requested."""
        plan = self.scheduled[uid]
        self._requested.add(uid)
        self.under_way.add(uid, plan.pod.meta.namespace)
        if plan.owner:
            self._unavailable.setdefault(plan.owner, set()).add(uid)

    def succeed(self, plan: PodPlan) -> None:
        """The pod was evicted, or is gone. Its plan is dropped; its eviction is under way until the pod is gone."""
        uid = plan.uid
        self._requested.discard(uid)
        known = self._known.get(plan.key)
        if known is None or known.meta.uid != uid:
            self._end(plan.key, uid)  # the watch was faster than the response
            return
        self.evicted.add(uid)
        self._drop(uid, [])

    def fail(self, plan: PodPlan) -> None:
        """The pod was not evicted."""
        self._requested.discard(plan.uid)
        self._end(plan.key, plan.uid)

    def reopen(self, key: str, uid: str) -> bool:
        """Whether the pod was evicted and is not being deleted all the same; if so, it may be planned again."""
        pod = self._inventory.pods.get(key)
        if uid not in self.evicted or pod is None or pod.deleting:
            return False
        self.evicted.discard(uid)
        self._end(key, uid)
        return True

    def _end(self, key: str, uid: str) -> None:
        pod = self._inventory.pods.get(key)
        if pod is not None and pod.meta.uid != uid:
            pod = None
        if pod is not None and pod.deleting:
            return
        if self.under_way.discard(uid):
            self.freed.add(NamespaceLimit(key.partition("/")[0]))
        if pod is not None and pod.owner is not None and (pod.ready or pod.finished):
            self._mark_available(pod.owner.uid, uid)
