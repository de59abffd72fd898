"""Pods that are evicted together: a gang, and all pods that use one tainted claim. No I/O; times are arguments.

A claim is free only once the last of its pods has gone, and a gang that misses one member does not work, so evicting
them one by one empties no device, or breaks the work again and again. Units are formed from the plans when they are
asked for, and dissolved when a plan that belongs to them changes.

A PodGroup brings pods along that no taint evicts; `inventory.pod_groups` says which groups these are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from heapq import heappop, heappush
from sys import intern
from typing import Final

import msgspec

from webhook.api.pods import Pod
from webhook.eviction.pod_plan import PodPlan, later
from webhook.eviction.profiles import Profile
from webhook.inventory.evictions import Eviction, Evictions
from webhook.inventory.gangs import gang_in, root_owner
from webhook.inventory.pod_groups import goes_with_all, group_key, is_leaving, may_go_along
from webhook.inventory.state import Inventory, claim_keys

_STALE_MOST: Final = 4
"""How many entries a heap may have for each pod."""


class FormedUnit(msgspec.Struct, eq=False, gc=False):
    """Pods that are evicted together, or not at all."""

    plans: tuple[PodPlan, ...]
    due: datetime
    """When the last of them is due."""
    priority: int
    """The highest of its pods."""
    links: tuple[str, ...]
    """The gangs and shared claims of its pods, gangs last. The last one identifies it in limits."""
    deciding: tuple[PodPlan, ...]
    """Of all pods that wait for the same, apart from their due times, the one that is due last."""
    leader: PodPlan | None
    """One of those that a taint evicts; None if all would only go along."""
    failed: PodPlan | None = None
    """The pod whose request failed last, if any."""
    retry_at: float = 0.0
    """When that pod is tried again, and the others with it, in monotonic seconds."""
    rates: tuple[int, tuple[Hashable, ...]] = (-1, ())
    """The rates of all of its pods, and the state of the rules by which they are known."""

    @property
    def place(self) -> str:
        """What identifies it in limits: one of its gangs, else one of its claims."""
        return self.links[-1]


class Units:
    """All units of at least two pods. A pod that belongs to none goes alone."""

    def __init__(
        self,
        inventory: Inventory,
        evictions: Evictions,
        scheduled: Mapping[str, PodPlan],
        tight: Callable[[Pod], bool],
        never: Callable[[PodPlan], bool],
    ) -> None:
        """`scheduled`: all plans, by uid. `tight`: whether a pod goes only with its whole gang, however late that is.

        `never`: whether a pod is never evicted, so that no other pod waits for it.
        """
        self._inventory = inventory
        self._evictions = evictions
        self._scheduled = scheduled
        self._tight = tight
        self._never = never
        self._gangs: dict[str, dict[str, None]] = {}
        """Planned pods, by uid, of each gang."""
        self._units: dict[str, FormedUnit] = {}
        self._linked: dict[str, dict[FormedUnit, None]] = {}
        """Units by each of their links; the waves of a gang are several."""
        self.dissolved: set[str] = set()
        """Pods, by uid, whose unit was dissolved: what they wait for may have changed."""

    def of(self, plan: PodPlan) -> FormedUnit | None:
        """The unit of a pod; None if it goes alone."""
        unit = self._units.get(plan.uid)
        if unit is None:
            if not plan.gang and not self._inventory.shares(plan.key):
                return None
            unit = self._form(plan)
        return unit if len(unit.plans) > 1 else None

    # --- changes ---------------------------------------------------------------------------------

    def add(self, plan: PodPlan) -> None:
        """A pod was planned, or planned in another way after `remove`."""
        if plan.gang:
            self._gangs.setdefault(plan.gang, {})[plan.uid] = None
        elif not self._inventory.shares(plan.key):
            return  # as for most pods
        self.dissolve(plan)

    def remove(self, plan: PodPlan) -> None:
        """The plan is about to change or be dropped."""
        if plan.gang:
            members = self._gangs[plan.gang]
            del members[plan.uid]
            if not members:
                del self._gangs[plan.gang]
        unit = self._units.get(plan.uid)
        if unit is not None:  # other waves of its gang stay as they are
            self._end(unit)
        self.dissolved.discard(plan.uid)

    def dissolve(self, plan: PodPlan) -> None:
        """Units that the pod belongs to, or may belong to now, are formed again when they are asked for."""
        links = [plan.gang] if plan.gang else []
        if plan.uid in self._units or self._inventory.shares(plan.key):
            links += claim_keys(plan.pod)
        for link in links:
            for unit in tuple(self._linked.get(link, ())):
                self._end(unit)

    def _end(self, unit: FormedUnit) -> None:
        for each in unit.plans:
            del self._units[each.uid]
            self.dissolved.add(each.uid)
        for link in unit.links:
            units = self._linked[link]
            del units[unit]
            if not units:
                del self._linked[link]

    def retry_later(self, plan: PodPlan, at: float) -> None:
        """The request for a planned pod failed. Its unit waits until this time, in monotonic seconds, to try again."""
        unit = self.of(plan)
        if unit is not None and at > unit.retry_at:
            unit.failed, unit.retry_at = plan, at

    # --- forming ---------------------------------------------------------------------------------

    def _form(self, plan: PodPlan) -> FormedUnit:
        members, links, tight = self._connected(plan)
        if tight:
            for each in members:  # some were linked to fewer pods before
                unit = self._units.get(each.uid)
                if unit is not None:
                    self._end(unit)
            return self._register(members, links)
        formed: FormedUnit | None = None
        for wave in _waves(tuple([each for each in members if each.uid not in self._units]), plan):
            unit = self._register(wave, links)
            formed = unit if plan in wave else formed
        assert formed is not None
        return formed

    def _register(self, members: tuple[PodPlan, ...], links: list[str]) -> FormedUnit:
        deciding = _deciding(members)
        unit = FormedUnit(
            members,
            max([due_of(each) for each in deciding]),
            max([each.pod.priority for each in members]),
            tuple(links),
            deciding,
            next((each for each in members if not each.along and not self._never(each)), None),
        )
        for each in members:
            self._units[each.uid] = unit
        for link in links:
            self._linked.setdefault(link, {})[unit] = None
        return unit

    def _connected(self, plan: PodPlan) -> tuple[tuple[PodPlan, ...], list[str], bool]:
        """The pods linked to this one, what links them, and whether they have to wait for the last of them.

        The last of the links names the place of the unit.
        """
        if plan.gang:
            gang = self._planned(self._gangs[plan.gang])
            if not any(self._inventory.shares(each.key) for each in gang):  # as in most gangs
                members = [each for each in gang if each is plan or not self._never(each)]
                return tuple(sorted(members, key=_by_name)), [plan.gang], self._tight(plan.pod)
        return self._connected_by_claims(plan)

    def _connected_by_claims(self, plan: PodPlan) -> tuple[tuple[PodPlan, ...], list[str], bool]:
        found, seen, left, tight = {plan.uid: plan}, dict[str, None](), [plan], False
        while left:
            each = left.pop()
            gang = [each.gang] if each.gang else []
            claims = self._claims_of(each)
            tight = tight or bool(claims) or (bool(gang) and self._tight(each.pod))
            for link in [*gang, *claims]:
                if link in seen:
                    continue
                seen[link] = None
                for other in self._planned(self._gangs[link] if link == each.gang else self._users_of(link)):
                    if other.uid not in found and not self._never(other):
                        found[other.uid] = other
                        left.append(other)
        members = tuple(sorted(found.values(), key=_by_name))
        return members, sorted(seen, key=lambda link: (link in self._gangs, link)) or [plan.uid], tight

    def _planned(self, uids: Iterable[str]) -> list[PodPlan]:
        return [self._scheduled[uid] for uid in uids if uid in self._scheduled]

    def _claims_of(self, plan: PodPlan) -> list[str]:
        """The claims that the pod shares with others and that make it go."""
        if not self._inventory.shares(plan.key):
            return []
        shared = [key for key in claim_keys(plan.pod) if self._inventory.is_shared(key)]
        return [key for key in shared if self._evictions.evicts_users_of(key)]

    def _users_of(self, claim: str) -> list[str]:
        pods = self._inventory.pods
        return [pods[key].meta.uid for key in self._inventory.pods_of(claim)]


def _deciding(members: Iterable[PodPlan]) -> tuple[PodPlan, ...]:
    """One pod for each profile, with and without a hold, completing or not, stale or not: a few of thousands."""
    kinds: dict[tuple[int, bool, bool, bool], PodPlan] = {}
    for each in members:
        completes = each.profile.settings.wait_for_completion_seconds > 0 and each.pod.completes
        kind = each.profile.position, each.pod.hold is not None, completes, each.stale
        known = kinds.get(kind)
        if known is None or (known.eviction is not each.eviction and due_of(known) < due_of(each)):
            kinds[kind] = each
    return tuple(kinds.values())


def _by_name(plan: PodPlan) -> str:
    return plan.key


def due_of(plan: PodPlan) -> datetime:
    """When a pod may be evicted by its taints and the grace time of its profile alone."""
    grace = plan.profile.settings.grace_seconds
    return later(plan.eviction.due, grace) if grace else plan.eviction.due


def _waves(members: tuple[PodPlan, ...], plan: PodPlan) -> Iterator[tuple[PodPlan, ...]]:
    """The members, which are in order, by what waits for each other: each wave is due within the gang's window.

    The window is that of the profile of `plan`, and begins when the first pod of the wave is due.
    """
    window = timedelta(seconds=plan.profile.settings.gang_window_seconds)
    dues = [due_of(each) for each in members]
    if max(dues) - min(dues) <= window:  # as in most gangs
        yield members
        return
    wave: list[PodPlan] = []
    for each in sorted(members, key=due_of):
        if wave and due_of(each) - due_of(wave[0]) > window:
            yield tuple(sorted(wave, key=_by_name))
            wave = []
        wave.append(each)
    if wave:
        yield tuple(sorted(wave, key=_by_name))


class _Causes:
    """The pods of one group, by uid, that a taint evicts itself, and which of them is due first."""

    __slots__ = ("_by_due", "_count", "_left", "evictions", "known")

    def __init__(self) -> None:
        self.evictions: dict[str, Eviction] = {}
        self._by_due: list[tuple[datetime, int, str, Eviction]] = []
        """A heap; it keeps an eviction that has changed until that is first of all."""
        self._count = 0
        self.known: tuple[Eviction | None, bool] = None, False
        """The first, and whether any was left, when others were last planned for it."""
        self._left: dict[str, str] = {}
        """Pods that were not on their way out when last looked at; their `namespace/name` by uid."""

    @property
    def first(self) -> Eviction | None:
        """The eviction that is due first."""
        while self._by_due:
            _, _, uid, eviction = self._by_due[0]
            if self.evictions.get(uid) is eviction:
                return eviction
            heappop(self._by_due)
        return None

    def set(self, pod: Pod, eviction: Eviction) -> None:
        """A taint evicts the pod."""
        uid = pod.meta.uid
        if self.evictions.get(uid) == eviction:
            return
        self._left[uid] = f"{pod.meta.namespace}/{pod.meta.name}"
        self.evictions[uid] = eviction
        self._count += 1
        heappush(self._by_due, (eviction.due, self._count, uid, eviction))
        if len(self._by_due) > _STALE_MOST * len(self.evictions):
            self._by_due = sorted([each for each in self._by_due if self.evictions.get(each[2]) is each[3]])

    def discard(self, uid: str) -> None:
        """No taint evicts the pod, or it no longer exists."""
        if self.evictions.pop(uid, None) is not None:
            self._left.pop(uid, None)

    def any_left(self, pods: Mapping[str, Pod]) -> bool:
        """Whether one of them is still to be evicted. Those on their way out stay so, and are not looked at again."""
        while self._left:
            uid, key = next(iter(self._left.items()))
            pod = pods.get(key)
            if pod is not None and pod.meta.uid == uid and not is_leaving(pod):
                return True
            del self._left[uid]
        return False


class Companions:
    """The pods of such groups that a taint evicts, and what follows for the others."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._causes: dict[str, _Causes] = {}
        """By `namespace/name` of the group."""
        self.changed: set[str] = set()
        """Groups, by `namespace/name`, whose other pods are to be planned again, because of a pod that was planned."""

    def goes_with_all(self, pod: Pod) -> bool:
        """Whether the pod is disrupted only together with all others of its group."""
        return goes_with_all(self._inventory, pod)

    def eviction_of(self, pod: Pod, own: Eviction | None, *, stays: bool, begun: bool) -> Eviction | None:
        """When and why a pod goes; `own`: because of its own claims.

        `stays`: it is left alone all the same, so it takes no other pod along. `begun`: another one of those that it
        goes together with was evicted.
        """
        if not pod.pod_group:
            return own
        group = group_key(pod)
        if not self.goes_with_all(pod):
            self._set(group, pod, None)
            return own
        self._set(group, pod, None if stays else own)
        causes = self._causes.get(group)
        if causes is None or (own is not None and not own.waits) or not may_go_along(pod):
            return own
        return causes.first if begun or causes.any_left(self._inventory.pods) else own

    def forget(self, pod: Pod) -> None:
        """The pod no longer exists."""
        if pod.pod_group:
            self._set(group_key(pod), pod, None)

    def others_of(self, groups: Iterable[str]) -> list[str]:
        """The pods, by `namespace/name`, of these groups that may go along: those that no taint evicts itself."""
        pods, found = self._inventory.pods, list[str]()
        for group in groups:
            causes = self._causes.get(group)
            themselves = causes.evictions if causes is not None else {}
            found += [key for key in self._inventory.members_of(group) if pods[key].meta.uid not in themselves]
        return found

    def _set(self, group: str, pod: Pod, own: Eviction | None) -> None:
        uid, causes = pod.meta.uid, self._causes.get(group)
        if causes is None:
            if own is None:
                return
            causes = self._causes[group] = _Causes()
        if own is None:
            causes.discard(uid)
        else:
            causes.set(pod, own)
        if not causes.evictions:
            del self._causes[group]
        known, causes.known = causes.known, (causes.first, causes.any_left(self._inventory.pods))
        if causes.known != known:
            self.changed.add(group)


class Grouping:
    """Gangs and owners as text, which identifies them."""

    def __init__(self, inventory: Inventory, profile_of: Callable[[Pod], Profile]) -> None:
        self._inventory = inventory
        self._profile_of = profile_of

    def gang_of(self, pod: Pod, profile: Profile | None = None) -> str:
        """The gang of a pod, by its profile, which the caller may know already; empty if it has none."""
        settings = (profile or self._profile_of(pod)).settings
        if not (pod.pod_group or pod.gang or pod.labels or settings.gang_by_owner):
            return ""  # as for most pods
        gang = gang_in(self._inventory, pod, settings.gang_labels, by_owner=settings.gang_by_owner)
        return "" if gang is None else intern(f"{gang.kind} {gang.namespace}/{gang.name} {gang.key}")


def owner_of(pod: Pod) -> str:
    """The owner at the top, by uid or by name; empty for a pod without one."""
    if pod.owner is not None and not pod.labels:
        return intern(f"{pod.meta.namespace}/{pod.owner.uid}")  # as for most pods
    root = root_owner(pod)
    return "" if root is None else root.key
