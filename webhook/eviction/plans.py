"""The plans: which pods are to be evicted and when, and the counts of pods that limits need. No I/O, no clock.

Places are what pods take in a limit. Pods of one gang take one place together, and so do pods that are evicted as one
unit: an owner of two gangs of eight misses one of two as soon as one pod is missing, until all of that gang are back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from webhook.api.pods import Pod
from webhook.eviction.hits import RuleHits
from webhook.eviction.pod_plan import Doubt, PodPlan, StepReason
from webhook.eviction.ports import EvictionFound, Freed, OwnerFreed, PodFreed, PodTerminating, ReplacementPending
from webhook.eviction.profiles import Profile
from webhook.eviction.units import Companions, Grouping, Units, owner_of
from webhook.inventory.evictions import Eviction, Evictions
from webhook.inventory.state import Inventory


class _Evicted(NamedTuple):
    """An evicted pod that is gone and not replaced."""

    owner: str
    gang: str


class Owners:
    """Counts pods by their owner. Evicted pods count as unavailable until they are replaced."""

    def __init__(self, freed: set[Freed]) -> None:
        """`freed` receives the owners that may have room again, and the replacements to wait for."""
        self._freed = freed
        self._pods: dict[str, Places] = {}
        """Pods that exist, and evicted ones that are not replaced."""
        self._unavailable: dict[str, Places] = {}
        self._replacements: dict[_Evicted, dict[str, None]] = {}
        """Evicted pods that are gone, in the order in which they went."""
        self._replaced_for: dict[str, _Evicted] = {}
        """What each of them was."""

    # --- queries ---------------------------------------------------------------------------------

    def unavailable(self, owner: str) -> int:
        """Places of an owner with a pod that is unavailable: not ready, being deleted, or evicted and not replaced."""
        return len(self._unavailable.get(owner, ()))

    def is_unavailable(self, owner: str, place: str) -> bool:
        """Whether a place counts as unavailable already, so that evicting from it does not raise the count."""
        known = self._unavailable.get(owner)
        return known is not None and known.has(place)

    def is_missing(self, owner: str, uid: str) -> bool:
        """Whether a pod is unavailable."""
        return uid in self._unavailable.get(owner, ())

    def place_count(self, owner: str) -> int:
        """Places of an owner: gangs and single pods that use devices, and evicted ones that are not replaced yet."""
        return len(self._pods.get(owner, ()))

    # --- changes ---------------------------------------------------------------------------------

    def observe(self, owner: str, uid: str, gang: str, *, missing: bool) -> None:
        """A pod of the owner exists; `missing`: it is not ready, or on its way out.

        `gang` identifies its gang, and is empty for a pod without one.
        """
        pods = self._pods.get(owner)
        if pods is None:
            pods = self._pods[owner] = Places()
        place = gang or uid
        if not pods.add(uid, place):
            self._move(owner, uid, place)
        else:
            pending = self._replacements.get(_Evicted(owner, gang))
            if pending:
                self.expire_replacement(next(iter(pending)))
            elif self._unavailable.get(owner):
                self._freed.add(OwnerFreed(owner))  # a share of more pods may be more
        (self.mark_unavailable(owner, uid, place) if missing else self.mark_available(owner, uid))

    def _move(self, owner: str, uid: str, place: str) -> None:
        """A pod belongs to another gang than before, or to none: its labels or the policy have changed."""
        before = self._pods[owner].move(uid, place)
        if before == place:
            return
        unavailable = self._unavailable.get(owner)
        if unavailable is not None and uid in unavailable and unavailable.place_of(uid) == before:
            unavailable.move(uid, place)
        self._freed.add(OwnerFreed(owner))

    def remove(self, owner: str, uid: str) -> None:
        """The pod no longer exists, or has another owner."""
        pods = self._pods.get(owner)
        if pods is not None and pods.discard(uid) and not pods:
            del self._pods[owner]

    def await_replacement(self, owner: str, uid: str, gang: str) -> None:
        """A pod is gone that was evicted by us: it counts as unavailable until a new pod appears, or the wait is over.

        A gang's pod is replaced by one of the same gang. Call it instead of `remove`.
        """
        evicted = _Evicted(owner, gang)
        self._replacements.setdefault(evicted, {})[uid] = None
        self._replaced_for[uid] = evicted
        self._freed.add(ReplacementPending(uid, of_gang=bool(gang)))

    def expire_replacement(self, uid: str) -> None:
        """The wait for the replacement of this pod is over."""
        evicted = self._replaced_for.pop(uid, None)
        if evicted is None:
            return
        pending = self._replacements[evicted]
        del pending[uid]
        if not pending:
            del self._replacements[evicted]
        self.remove(evicted.owner, uid)
        self.mark_available(evicted.owner, uid)

    def mark_unavailable(self, owner: str, uid: str, place: str) -> None:
        """The pod is missing from here on, in this place of its owner."""
        missing = self._unavailable.get(owner)
        if missing is None:
            missing = self._unavailable[owner] = Places()
        missing.add(uid, place)

    def mark_available(self, owner: str, uid: str) -> None:
        """The pod is missing no longer."""
        missing = self._unavailable.get(owner)
        if missing is not None and missing.discard(uid):
            if not missing:
                del self._unavailable[owner]
            self._freed.add(OwnerFreed(owner))


class Places:
    """Pods, by uid, and the place that each takes; several pods may share one."""

    __slots__ = ("_alone", "_place_of", "_shared")

    def __init__(self) -> None:
        self._place_of: dict[str, str] = {}
        self._alone = 0
        """How many pods have a place of their own, which is their uid."""
        self._shared: dict[str, int] = {}
        """How many pods share each of the other places."""

    def __len__(self) -> int:
        """Number of places taken."""
        return self._alone + len(self._shared)

    @property
    def pods(self) -> int:
        """Number of pods that take them."""
        return len(self._place_of)

    def __contains__(self, uid: object) -> bool:
        return uid in self._place_of

    def __bool__(self) -> bool:
        return bool(self._place_of)

    def place_of(self, uid: str) -> str:
        """The place of a pod that takes one."""
        return self._place_of[uid]

    def has(self, place: str) -> bool:
        """Whether any pod takes this place."""
        return place in self._shared or self._place_of.get(place) == place

    def add(self, uid: str, place: str) -> bool:
        """A pod takes a place; returns false, and changes nothing, if it has one already."""
        if uid in self._place_of:
            return False
        self._place_of[uid] = place
        if place == uid:
            self._alone += 1
        else:
            self._shared[place] = self._shared.get(place, 0) + 1
        return True

    def move(self, uid: str, place: str) -> str:
        """A pod that takes a place takes this one; returns the place that it took before."""
        before = self._place_of[uid]
        if before != place:
            self.discard(uid)
            self.add(uid, place)
        return before

    def discard(self, uid: str) -> bool:
        """A pod takes no place any longer; returns whether it had one."""
        place = self._place_of.pop(uid, None)
        if place is None:
            return False
        if place == uid:
            self._alone -= 1
            return True
        self._shared[place] -= 1
        if not self._shared[place]:
            del self._shared[place]
        return True


class StuckPod(NamedTuple):
    """A pod that stays in Terminating."""

    key: str
    """Its `namespace/name`."""
    rules: frozenset[str]
    """The rules that hit it, by uid."""


class Changes(NamedTuple):
    """The result of planning pods."""

    planned: list[PodPlan]
    """New or changed plans."""
    cancelled: list[PodPlan]
    """Dropped although the pod still exists."""
    gone: list[PodPlan]
    """Dropped because the pod is gone, finished or being deleted."""
    evicted: list[tuple[PodPlan, Doubt]]
    """Pods that were evicted, as it turns out, by requests without an answer. Their plans may be dropped already."""


class UnderWay:
    """Evictions from the request until the pod is gone, by uid; the places that they take in all and by namespace."""

    def __init__(self) -> None:
        self._namespaces: dict[str, str] = {}
        self._everywhere = Places()
        self._places: dict[str, Places] = {}
        self._begun: set[str] = set()

    def __len__(self) -> int:
        return len(self._namespaces)

    def __contains__(self, uid: object) -> bool:
        return uid in self._namespaces

    @property
    def places(self) -> int:
        """Number of places taken: pods of one unit take one together."""
        return len(self._everywhere)

    def count(self, namespace: str) -> int:
        """Number of places taken in a namespace."""
        return len(self._places.get(namespace, ()))

    def pod_count(self, namespace: str) -> int:
        """Number of pods of a namespace that take places."""
        places = self._places.get(namespace)
        return 0 if places is None else places.pods

    def has(self, place: str) -> bool:
        """Whether a place is taken."""
        return self._everywhere.has(place)

    def grant(self, uid: str) -> None:
        """The pod was evicted: its unit has begun to go."""
        if uid in self._namespaces:
            self._begun.add(self._everywhere.place_of(uid))

    def begun(self, place: str) -> bool:
        """Whether a pod was evicted that took this place, or shared it with those that still do."""
        return place in self._begun

    def add(self, uid: str, namespace: str, place: str) -> None:
        """An eviction has begun, or was found to be under way. Adding it twice changes nothing."""
        if self._everywhere.add(uid, place):
            self._namespaces[uid] = namespace
            self._places.setdefault(namespace, Places()).add(uid, place)

    def discard(self, uid: str) -> bool:
        """The pod is gone or was not evicted after all; returns whether its eviction was under way."""
        namespace = self._namespaces.pop(uid, None)
        if namespace is None:
            return False
        place = self._everywhere.place_of(uid)
        self._everywhere.discard(uid)
        if not self.has(place):
            self._begun.discard(place)
        places = self._places[namespace]
        places.discard(uid)
        if not places:
            del self._places[namespace]
        return True


class Plans:
    """All plans, and the pods that limits count. Pods and owners are identified by uid."""

    def __init__(
        self,
        inventory: Inventory,
        evictions: Evictions,
        profile_of: Callable[[Pod], Profile],
        never: Callable[[PodPlan], bool],
        seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`never`: whether a pod is never evicted, so that no unit waits for it; `seconds`: the monotonic clock."""
        self._inventory = inventory
        self._evictions = evictions
        self._profile_of = profile_of
        self._never = never
        self._seconds = seconds
        self._grouping = Grouping(inventory, profile_of)
        self.companions = Companions(inventory)
        self.scheduled: dict[str, PodPlan] = {}
        self.units = Units(inventory, evictions, self.scheduled, self.companions.goes_with_all, never)
        self.evicted: set[str] = set()
        """Pods, by uid, that we evicted and that the watch still shows."""
        self.revision = 0
        """Grows with each plan that is added, changed or dropped, so that a reader that pauses notices changes."""
        self.under_way = UnderWay()
        self._to_regroup: set[str] = set()
        self._requested: set[str] = set()
        self._doubtful: dict[str, PodPlan] = {}
        """Dropped plans whose last request was not answered, by the uid of the pod, which still exists."""
        self._known: dict[str, Pod] = {}
        """The pods tracked here, as they were last observed, by `namespace/name`."""
        self.hits = RuleHits()
        self.freed: set[Freed] = set()
        """What has changed for limits since the controller last emptied this set."""
        self.owners = Owners(self.freed)
        self._terminating: set[str] = set()
        self.put_off: dict[str, StepReason] = {}
        """Planned pods, by uid, that are due and kept: by a hold, a window, their end, or others of their unit."""
        self.stuck: dict[str, StuckPod] = {}
        """Pods, by uid, that are terminating for too long to be counted any longer."""

    # --- queries ---------------------------------------------------------------------------------

    def stuck_of(self, rule_uid: str) -> list[str]:
        """The pods, by `namespace/name`, that a rule hits and that stay in Terminating."""
        return [pod.key for pod in self.stuck.values() if rule_uid in pod.rules]

    def left_alone(self, plan: PodPlan) -> bool:
        """Whether no pod goes that this one goes along with, or one is asked for already, without it."""
        if not plan.along or self.under_way.begun(plan.place):
            return False
        unit = self.units.of(plan)
        leader = None if unit is None else unit.leader
        return leader is None or (leader.uid in self._requested and plan.uid not in self._requested)

    # --- changes ---------------------------------------------------------------------------------

    def replan(self, keys: Iterable[str]) -> Changes:
        """Plans these pods again, by `namespace/name`; returns the plans that changed."""
        changes = Changes([], [], [], [])
        pods, all_known = self._inventory.pods, self._known
        for key in keys:
            pod, known = pods.get(key), all_known.get(key)
            if pod is not known:
                self._observe(key, known, pod, changes)
            elif pod is not None and key in self._to_regroup:
                self._count(key, pod.meta.uid, owner_of(pod), pod)
            if pod is not None:
                self._plan_pod(key, pod, changes)
            self._to_regroup.discard(key)
        return changes

    def regroup(self, keys: Iterable[str]) -> None:
        """These pods, by `namespace/name`, may be in other gangs when they are planned again."""
        self._to_regroup.update(keys)

    def _observe(self, key: str, known: Pod | None, pod: Pod | None, changes: Changes) -> None:
        """Updates the tracked pod and its owner after it was created, changed, replaced or removed."""
        if known is not None and (pod is None or pod.meta.uid != known.meta.uid):
            self._forget(key, known, changes)
            known = None
        if pod is None:
            return
        uid, owner = pod.meta.uid, owner_of(pod)
        if known is not None and (before := owner_of(known)) != owner:
            self.owners.remove(before, uid)
            self.owners.mark_available(before, uid)
        if known is not None or owner:
            self._known[key] = pod
            self._count(key, uid, owner, pod)

    def _plan_pod(self, key: str, pod: Pod, changes: Changes) -> None:
        uid = pod.meta.uid
        own = self._evictions.eviction_of(pod)
        eviction, held_by = self._eviction_in_group(key, pod, own) if pod.pod_group else (own, "")
        if pod.deleting or pod.finished:
            self._end_doubt(uid, changes, finished=not pod.deleting)
        gone = pod.deleting or pod.finished or uid in self.evicted
        if gone or eviction is None:
            if pod.deleting and eviction is not None and uid not in self.stuck:
                if not (uid in self.under_way or uid in self.scheduled):
                    self.freed.add(EvictionFound(key, uid))
                self._known[key] = pod
                self.under_way.add(uid, pod.meta.namespace, self._grouping.gang_of(pod) or uid)
                self._count(key, uid, owner_of(pod), pod)
            self._drop(uid, changes.gone if gone else changes.cancelled)
            return
        profile, owner = self._profile_of(pod), owner_of(pod)
        gang = self._grouping.gang_of(pod, profile)
        plan = self.scheduled.get(uid)
        if plan is None:
            if not owner:  # else `_observe` tracks it already
                self._known[key] = pod
            plan = self.scheduled[uid] = PodPlan(key, uid, pod, eviction, profile, owner, gang, held_by)
            plan.along = eviction is not own
            before = self._doubtful.pop(uid, None)
            plan.doubt = None if before is None else before.doubt
        else:
            fresh = eviction, profile, owner, gang, held_by, _read_by_steps(pod), eviction is not own
            same = fresh == (*_planned_by(plan), _read_by_steps(plan.pod), plan.along)
            if same and plan.outdated in ("", pod.meta.resource_version):
                plan.pod = pod
                return
            self._unlist(plan)
            if plan.outdated != pod.meta.resource_version:
                plan.outdated = ""
            plan.pod, plan.along = pod, eviction is not own
            plan.eviction, plan.profile, plan.owner, plan.gang, plan.held_by = fresh[:5]
        self.units.add(plan)
        self.revision += 1
        self.hits.add(plan)
        changes.planned.append(plan)

    def _eviction_in_group(self, key: str, pod: Pod, own: Eviction | None) -> tuple[Eviction | None, str]:
        """When and why a pod goes that names a PodGroup, and that group if it keeps its claims reserved."""
        uid, known = pod.meta.uid, self.scheduled.get(pod.meta.uid)
        held_by = self._evictions.holding_group(pod) if own is not None else ""
        begun = known is not None and self.under_way.begun(known.place)
        stays = own is not None and self._never(PodPlan(key, uid, pod, own, self._profile_of(pod), held_by=held_by))
        return self.companions.eviction_of(pod, own, stays=stays, begun=begun), held_by

    def _drop(self, uid: str, dropped: list[PodPlan]) -> None:
        plan = self.scheduled.pop(uid, None)
        if plan is not None:
            self.put_off.pop(uid, None)
            self._unlist(plan)
            dropped.append(plan)
            if plan.doubt is not None and uid not in self.evicted:
                self._doubtful[uid] = plan

    def _end_doubt(self, uid: str, changes: Changes, *, finished: bool) -> None:
        """A pod has `finished`, or is terminating or gone: because of the last request, if that got no answer.

        If a request is in flight, its answer decides.
        """
        plan = self.scheduled.get(uid) or self._doubtful.get(uid)
        if plan is None or plan.doubt is None or uid in self._requested or uid in self.evicted:
            return
        if finished:
            plan.doubt = None
        elif self._seconds() < plan.doubt.until:
            changes.evicted.append((plan, plan.doubt))
            self.evicted.add(uid)
        self._doubtful.pop(uid, None)

    def _unlist(self, plan: PodPlan) -> None:
        self.revision += 1
        self.units.remove(plan)
        self.hits.discard(plan)

    def _forget(self, key: str, pod: Pod, changes: Changes) -> None:
        """Drops a pod that no longer exists."""
        uid, owner = pod.meta.uid, owner_of(pod)
        del self._known[key]
        self._end_doubt(uid, changes, finished=False)
        self._drop(uid, changes.gone)
        self._doubtful.pop(uid, None)
        self.companions.forget(pod)
        # The watch may be faster than the response to our request.
        was_ours = uid in self.evicted or uid in self._requested
        if was_ours:
            self.under_way.grant(uid)
        for uids in (self.evicted, self._requested, self._terminating):
            uids.discard(uid)
        was_stuck = self.stuck.pop(uid, None) is not None
        if self.under_way.discard(uid):
            self.freed.add(PodFreed(pod.meta.namespace))
        if not owner:
            return
        if was_ours and not was_stuck:
            self.owners.await_replacement(owner, uid, self._grouping.gang_of(pod))
        else:
            self.owners.remove(owner, uid)
            self.owners.mark_available(owner, uid)

    def _count(self, key: str, uid: str, owner: str, pod: Pod) -> None:
        """Counts a pod for its owner, and notes when it begins to terminate."""
        if pod.deleting and uid not in self._terminating:
            self._terminating.add(uid)
            if uid in self._requested:
                self.under_way.grant(uid)  # the watch is faster than the answer
            self.freed.add(PodTerminating(key, uid))
        if owner:
            missing = pod.deleting or not (pod.ready or pod.finished) or uid in self.under_way
            gang = self._grouping.gang_of(pod)
            self.owners.observe(owner, uid, gang, missing=missing and uid not in self.stuck)

    def give_up(self, key: str, uid: str) -> bool:
        """A terminating pod is stuck: limits count it no longer. Returns whether it still exists."""
        pod = self._known.get(key)
        if pod is None or pod.meta.uid != uid:
            return False
        eviction = self._evictions.eviction_of(pod)
        self.stuck[uid] = StuckPod(key, frozenset(rule for rule, _ in eviction.rules) if eviction else frozenset())
        if self.under_way.discard(uid):
            self.freed.add(PodFreed(pod.meta.namespace))
        self.owners.mark_available(owner_of(pod), uid)
        return True

    # --- evictions -------------------------------------------------------------------------------

    def begin(self, plan: PodPlan, place: str, of_owner: str) -> None:
        """The eviction of the pod is about to be requested; `place` is what it takes, `of_owner` that of its owner."""
        plan.place = place
        self._requested.add(plan.uid)
        self.under_way.add(plan.uid, plan.pod.meta.namespace, place)
        if plan.owner:
            self.owners.mark_unavailable(plan.owner, plan.uid, of_owner)

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
        """The pod was not evicted, or that is not known."""
        self._requested.discard(plan.uid)
        current = self.scheduled.get(plan.uid)
        if current is not None:
            current.doubt = plan.doubt
        elif plan.doubt is not None:
            self._doubtful[plan.uid] = plan
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
            self.freed.add(PodFreed(key.partition("/")[0]))
        if pod is not None and (pod.ready or pod.finished):
            self.owners.mark_available(owner_of(pod), uid)


def _planned_by(plan: PodPlan) -> tuple[Eviction, Profile, str, str, str]:
    """What a plan follows from."""
    return plan.eviction, plan.profile, plan.owner, plan.gang, plan.held_by


def _read_by_steps(pod: Pod) -> tuple[object, ...]:
    """Names what the next step of a pod and of its unit depends on."""
    return pod.priority, pod.hold, pod.owner, pod.completes
