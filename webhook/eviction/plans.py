"""Who is to be evicted: the schedule, which is the truth, and what limits need to know of pods. No I/O, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from webhook.eviction.limits import UnderWay
from webhook.eviction.ports import PodRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from webhook.api.pods import Pod
    from webhook.eviction.profiles import Profile
    from webhook.inventory.evictions import Eviction, Evictions
    from webhook.inventory.state import Inventory


class Plan:
    """One pod that has to go."""

    __slots__ = ("blocked_since", "budgeted", "eviction", "owner", "priority", "profile", "ref", "told")

    def __init__(self, ref: PodRef, eviction: Eviction, profile: Profile, priority: int, owner: str) -> None:
        self.ref = ref
        self.eviction = eviction
        self.profile = profile
        self.priority = priority
        self.owner = owner
        """The uid of its controller; empty if nobody controls it."""
        self.budgeted = False
        self.blocked_since: datetime | None = None
        """When a disruption budget first said no; anew after a restart, which errs on the gentle side."""
        self.told = ""
        """The reason of the last Event about it, so that none comes twice."""


class Change(NamedTuple):
    """What became of a pod: a plan that is new or another, or one that is dropped; dropped in silence if it is gone."""

    plan: Plan
    dropped: bool = False
    silent: bool = False


class _Hits:
    """The pods that a rule is a reason for."""

    __slots__ = ("namespaces", "pods")

    def __init__(self) -> None:
        self.pods: dict[str, None] = {}
        self.namespaces: dict[str, int] = {}

    def add(self, ref: PodRef) -> None:
        """One more; it was not there."""
        self.pods[ref.uid] = None
        self.namespaces[ref.namespace] = self.namespaces.get(ref.namespace, 0) + 1

    def discard(self, ref: PodRef) -> None:
        """One less; it was there."""
        del self.pods[ref.uid]
        self.namespaces[ref.namespace] -= 1
        if not self.namespaces[ref.namespace]:
            del self.namespaces[ref.namespace]


def _rules_of(plan: Plan) -> set[str]:
    """The uids of the rules among the reasons."""
    return {reason.rule_uid for reason in plan.eviction.reasons if reason.rule_uid}


class Plans:
    """Every plan, and who is missing already. Pods go by uid."""

    def __init__(self, inventory: Inventory, evictions: Evictions, profile_of: Callable[[Pod], Profile]) -> None:
        self._inventory = inventory
        self._evictions = evictions
        self._profile_of = profile_of
        self.scheduled: dict[str, Plan] = {}
        self.evicted: dict[str, PodRef] = {}
        """Evicted by us, and not yet seen to go."""
        self.changes = 0
        """How many plans came, went or became others so far: whoever looks at all of them in pieces compares it."""
        self.under_way = UnderWay()
        self._begun: set[str] = set()
        self._uids: dict[str, str] = {}
        """Of the pods that something here is about, by `namespace/name`."""
        self._hits: dict[str, _Hits] = {}
        """By uid of the rule."""
        self._owner_of: dict[str, str] = {}
        self._owned: dict[str, set[str]] = {}
        self._missing: dict[str, set[str]] = {}
        self._ghosts: dict[str, list[str]] = {}
        self.freed: set[tuple[str, str]] = set()
        """Namespaces and owners of which something has changed for the better; whoever looks empties it."""

    # --- questions -------------------------------------------------------------------------------

    def of_rule(self, rule_uid: str) -> list[Plan]:
        """The plans that a rule is a reason for."""
        hits = self._hits.get(rule_uid)
        return [] if hits is None else [self.scheduled[uid] for uid in hits.pods]

    def counts_of(self, rule_uid: str) -> tuple[int, int]:
        """How many pods those are, and in how many namespaces."""
        hits = self._hits.get(rule_uid)
        return (0, 0) if hits is None else (len(hits.pods), len(hits.namespaces))

    def missing(self, owner: str) -> int:
        """How many pods of an owner are not there for it."""
        return len(self._missing.get(owner, ()))

    def is_missing(self, owner: str, uid: str) -> bool:
        """Whether this one is among them, so that its going costs nothing more."""
        return uid in self._missing.get(owner, ())

    def size_of(self, owner: str) -> int:
        """How many pods an owner has, as far as they use devices, with the places that wait for a replacement."""
        return len(self._owned.get(owner, ())) + len(self._ghosts.get(owner, ()))

    # --- changes ---------------------------------------------------------------------------------

    def replan(self, keys: Iterable[str]) -> list[Change]:
        """Looks at pods anew, by `namespace/name`; gives what has changed."""
        changes: list[Change] = []
        for key in keys:
            pod = self._inventory.pods.get(key)
            known = self._uids.get(key)
            if known is not None and (pod is None or pod.meta.uid != known):
                self._forget(key, known, changes)
            if pod is not None:
                self._look_at(key, pod, changes)
        return changes

    def _look_at(self, key: str, pod: Pod, changes: list[Change]) -> None:
        uid = pod.meta.uid
        eviction = self._evictions.eviction_of(pod)
        owner = pod.owner.uid if pod.owner is not None else ""
        if owner:
            self._count_owned(key, uid, owner, pod)
        gone = pod.deleting or pod.finished or uid in self.evicted
        if gone or eviction is None:
            if pod.deleting and eviction is not None:
                self._uids[key] = uid
                self.under_way.add(uid, pod.meta.namespace)
            self._drop(uid, changes, silent=gone)
            return
        known = self.scheduled.get(uid)
        profile = self._profile_of(pod)
        if known is not None and (known.eviction, known.profile, known.priority) == (eviction, profile, pod.priority):
            return
        self._uids[key] = uid
        plan = known
        if plan is None:
            plan = Plan(PodRef(pod.meta.namespace, pod.meta.name, uid), eviction, profile, pod.priority, owner)
            self.scheduled[uid] = plan
        else:
            self._unlist(plan)
            plan.eviction, plan.profile, plan.priority = eviction, profile, pod.priority
        self.changes += 1
        for rule in _rules_of(plan):
            self._hits.setdefault(rule, _Hits()).add(plan.ref)
        changes.append(Change(plan))

    def _drop(self, uid: str, changes: list[Change], *, silent: bool) -> None:
        plan = self.scheduled.pop(uid, None)
        if plan is not None:
            self._unlist(plan)
            changes.append(Change(plan, dropped=True, silent=silent))

    def _unlist(self, plan: Plan) -> None:
        self.changes += 1
        for rule in _rules_of(plan):
            hits = self._hits[rule]
            hits.discard(plan.ref)
            if not hits.pods:
                del self._hits[rule]

    def _forget(self, key: str, uid: str, changes: list[Change]) -> None:
        """The pod is gone."""
        del self._uids[key]
        self._drop(uid, changes, silent=True)
        namespace = key.partition("/")[0]
        # The watch may be faster than the answer to our request.
        was_ours = self.evicted.pop(uid, None) is not None or uid in self._begun
        self._begun.discard(uid)
        if self.under_way.discard(uid):
            self.freed.add(("namespace", namespace))
        owner = self._owner_of.pop(uid, "")
        if not owner:
            return
        owned = self._owned[owner]
        owned.discard(uid)
        if not owned:
            del self._owned[owner]
        if was_ours:
            # Its replacement may not be there yet: until it is, or some time has passed, the place counts as empty.
            self._ghosts.setdefault(owner, []).append(uid)
            self.freed.add(("ghost", owner))
        else:
            self._found(owner, uid)

    def _count_owned(self, key: str, uid: str, owner: str, pod: Pod) -> None:
        if uid not in self._owner_of:
            self._owner_of[uid] = owner
            self._owned.setdefault(owner, set()).add(uid)
            self._uids[key] = uid
            ghosts = self._ghosts.get(owner)
            if ghosts:
                self._lay(owner, ghosts.pop())
        if uid in self.under_way or pod.deleting or not (pod.ready or pod.finished):
            self._missing.setdefault(owner, set()).add(uid)
        else:
            self._found(owner, uid)

    def _found(self, owner: str, uid: str) -> None:
        missing = self._missing.get(owner)
        if missing is not None and uid in missing:
            missing.discard(uid)
            if not missing:
                del self._missing[owner]
            self.freed.add(("owner", owner))

    def _lay(self, owner: str, ghost: str) -> None:
        if not self._ghosts.get(owner):
            self._ghosts.pop(owner, None)
        self._found(owner, ghost)

    def lay_ghosts(self, owner: str) -> None:
        """No replacement came in time: the places of an owner's evicted pods do not count any more."""
        for ghost in self._ghosts.pop(owner, []):
            self._found(owner, ghost)

    # --- evictions -------------------------------------------------------------------------------

    def begin(self, uid: str) -> None:
        """Its eviction is asked for."""
        plan = self.scheduled[uid]
        self._begun.add(uid)
        self.under_way.add(uid, plan.ref.namespace)
        if plan.owner:
            self._missing.setdefault(plan.owner, set()).add(uid)

    def succeed(self, uid: str, ref: PodRef) -> None:
        """It was evicted; what is to be done about it is to wait until it is gone."""
        self._begun.discard(uid)
        if self._uids.get(f"{ref.namespace}/{ref.name}") != uid:
            self._end(uid, ref)  # it went faster than the answer came
            return
        self.evicted[uid] = ref
        self._drop(uid, [], silent=True)

    def fail(self, uid: str, ref: PodRef) -> None:
        """It was not."""
        self._begun.discard(uid)
        self._end(uid, ref)

    def _end(self, uid: str, ref: PodRef) -> None:
        pod = self._inventory.pods.get(f"{ref.namespace}/{ref.name}")
        there = pod is not None and pod.meta.uid == uid
        if there and pod is not None and pod.deleting:
            return
        if self.under_way.discard(uid):
            self.freed.add(("namespace", ref.namespace))
        owner = self._owner_of.get(uid, "")
        if owner and there and pod is not None and pod.ready:
            self._found(owner, uid)
