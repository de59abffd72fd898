"""What a taint would do: how many devices, claims, pods and namespaces, and when. Guard, preview and status ask here.

Pods are counted as the consumers that claims are reserved for, so no access to pods is needed. Processes that follow
pods look them up: who goes along, and which gangs break.
Source: `semantics.md` E-5 to E-18, E-40.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from webhook.api.pods import Pod
from webhook.api.rules import NEVER, DeviceSelector, DeviceTaintRule, not_before_of
from webhook.api.servers import ServerFacts
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, DeviceTaint, DeviceToleration
from webhook.inventory.gangs import (
    BrokenGang,
    Gang,
    broken_gangs,
    companions_in,
    count_gangs,
    goes_as_a_whole,
    group_key,
    is_held,
)
from webhook.inventory.hardware import NO_SIBLINGS, Siblings
from webhook.inventory.placement import PodPlacement
from webhook.inventory.pools import (
    FOR_EVER,
    Check,
    Evictor,
    PoolId,
    acts,
    grace_seconds,
    in_steps,
    tolerates,
    unchecked,
)
from webhook.inventory.state import ClaimGroup, Inventory
from webhook.inventory.targets import DeviceNames, Extent, Users, fates_on

_NONE: Final[frozenset[str]] = frozenset()
_SECOND: Final = timedelta(seconds=1)
HARMLESS: Final = -2
"""Instead of seconds: the taint evicts no pod."""


class Wave(msgspec.Struct, frozen=True):
    """Pods that go at the same time, `seconds` from now; 0 is at once. Pods by uid, claims by `namespace/name`."""

    seconds: int
    pods: frozenset[str]
    claims: frozenset[str]


class Impact(msgspec.Struct, frozen=True):
    """What a taint would do, by the inventory of one moment. Pods are uids, claims and namespaces names.

    A pod with several claims counts once, at its earliest eviction time.
    """

    devices: int = 0
    """Published in newest generations, and selected."""
    pools: int = 0
    drivers: int = 0
    allocated: int = 0
    """Entries of allocation results that are selected, whether anybody uses them or not."""
    waves: tuple[Wave, ...] = ()
    """The pods that are evicted, soonest first."""
    tolerating: frozenset[str] = frozenset()
    """Pods that the taint would evict if they did not tolerate it."""
    extended: frozenset[str] = frozenset()
    """Of the pods that are evicted, those that the in-tree controller evicts only because of extended resources.

    Older ones leave them alone. They count all the same."""
    kept: frozenset[str] = frozenset()
    """Pods on devices that the taint only keeps from new allocations."""
    namespaces: frozenset[str] = frozenset()
    """Of the pods that are evicted."""
    pod_groups: frozenset[str] = frozenset()
    """PodGroups that would be evicted, by uid. How many pods they have is not known here."""
    incomplete_pools: tuple[PoolId, ...] = ()
    """Selected pools that their driver has not published in full."""
    siblings: Siblings = NO_SIBLINGS
    """Parts of the same hardware that stay in service. Only guard and preview look for them."""
    companions: frozenset[str] = frozenset()
    """Of the pods that are evicted, those that go only with others of their PodGroup. Known only if pods are."""
    gangs: tuple[BrokenGang, ...] = ()
    """Gangs that lose pods, those that lose most first. Only the guard looks for them, if pods are known."""
    places: tuple[PodPlacement, ...] | None = None
    """Where the evicted pods would go. None where that is not asked."""

    @property
    def pods(self) -> frozenset[str]:
        """All pods that are evicted, sooner or later."""
        return _all(wave.pods for wave in self.waves)

    @property
    def claims(self) -> frozenset[str]:
        """The claims of those pods that are the reason."""
        return _all(wave.claims for wave in self.waves)

    @property
    def now(self) -> frozenset[str]:
        """The pods that are evicted at once."""
        return _all(wave.pods for wave in self.waves if not wave.seconds)

    @property
    def later(self) -> frozenset[str]:
        """The pods that are evicted after some time."""
        return self.pods - self.now


class Taint(NamedTuple):
    """A taint and who evicts for it, if anything does.

    `evictor` None: the taint evicts no pod; at most it keeps devices from being allocated. `scheduling` is the
    taint as written, where our worker empties the devices of a NoSchedule rule: a pod that tolerates it would come
    back to the same device, so it is left alone. `not_before`: our worker evicts no pod before this time.
    """

    taint: DeviceTaint
    evictor: Evictor | None
    scheduling: DeviceTaint | None = None
    not_before: datetime | None = None

    @classmethod
    def of_rule(cls, rule: DeviceTaintRule, *, in_tree: bool) -> Taint:
        """Make it of a rule; `in_tree` says whether the in-tree controller carries out NoExecute in this cluster."""
        start = not_before_of(rule)
        start = None if start == NEVER else start
        if rule.taint.effect == NO_EXECUTE:
            return cls(rule.taint, Evictor.IN_TREE) if in_tree else cls(rule.taint, Evictor.OURS, not_before=start)
        if rule.effective_effect != NO_EXECUTE:
            return cls(rule.taint, None)
        acting = structs.replace(rule.taint, effect=NO_EXECUTE)
        return cls(acting, Evictor.OURS, rule.taint if rule.taint.effect == NO_SCHEDULE else None, start)

    @classmethod
    def of_slice(cls, taint: DeviceTaint, *, in_tree: bool) -> Taint:
        """Make it of a taint in a slice."""
        if taint.effect != NO_EXECUTE:
            return cls(taint, None)
        return cls(taint, Evictor.IN_TREE if in_tree else Evictor.OURS)

    def as_if_evicting(self, *, in_tree: bool) -> Taint:
        """Return the same with effect NoExecute."""
        return Taint.of_slice(structs.replace(self.taint, effect=NO_EXECUTE), in_tree=in_tree)

    def fate(self, servers: ServerFacts, tolerations: tuple[DeviceToleration, ...]) -> int:
        """Return the seconds after timeAdded that a pod may stay; FOR_EVER; or HARMLESS."""
        if self.evictor is None:
            return HARMLESS
        if self.scheduling is not None and any(tolerates(entry, self.scheduling) for entry in tolerations):
            return FOR_EVER
        return grace_seconds(tolerations, self.taint, self.evictor, servers)

    def due_seconds(self, grace: int, now: datetime) -> int:
        """Return how long from now such a grace lasts, or it is until `not_before`; 0 if both are over."""
        added = self.taint.time_added
        passed = 0 if added is None else (now - added) // _SECOND
        wait = 0 if self.not_before is None else -((now - self.not_before) // _SECOND)
        return max(grace - passed, wait, 0)


def impact_of(
    inventory: Inventory,
    selector: DeviceSelector | None,
    taint: Taint,
    now: datetime,
    check: Check = unchecked,
) -> Impact:
    """Return what the taint on the selected devices would do, from `now` on. `check` may raise to stop.

    A missing selector evicts no pod (E-6), but may keep every device from being allocated (K-5). A selector
    with fields that cannot be judged here is taken for wider than it is, so the answer is too high and never too low.
    """
    users = impact_on_users(inventory, selector, taint, now, check)
    return _published(inventory, users, [DeviceNames.of(selector, inventory.servers)], check)


def joint_impact(
    inventory: Inventory,
    taints: Sequence[tuple[DeviceSelector, Taint]],
    now: datetime,
    check: Check = unchecked,
) -> Impact:
    """Return what the taints would do from `now` on, each on the devices of its selector. `check` may raise to stop.

    As `impact_of` has it, a selector with fields that cannot be judged is taken for every device.
    """
    users: list[Impact] = []
    for selector, taint in taints:
        check()
        users.append(impact_on_users(inventory, selector, taint, now, check))
    names = list(dict.fromkeys([DeviceNames.of(selector) for selector, _ in taints]))
    whole = union(users)
    if len(users) > 1:
        allocated = users[0].allocated if len(names) == 1 else allocated_on(inventory, names, check)
        whole = structs.replace(whole, allocated=allocated)
    return _published(inventory, whole, names, check)


def impact_on_users(
    inventory: Inventory,
    selector: DeviceSelector | None,
    taint: Taint,
    now: datetime,
    check: Check = unchecked,
) -> Impact:
    """Return the same as `impact_of`, without the figures of what is published: those take a look at each pool."""
    return Impact() if selector is None else _on_users(inventory, DeviceNames.of(selector), taint, now, check)


def impact_on_devices(
    inventory: Inventory,
    pool: PoolId,
    taints: Mapping[str, Iterable[Taint]],
    now: datetime,
    check: Check = unchecked,
) -> Impact:
    """Return what new taints in a slice would do to the users of devices, by device name. `check` as in impact_of."""
    parts: list[Impact] = []
    allocated = 0
    for device, added in taints.items():
        names = DeviceNames(*pool, device)
        check()
        fared = [_on_users(inventory, names, taint, now) for taint in added]
        allocated += max((part.allocated for part in fared), default=0)  # the same for each taint of a device
        parts += fared
    return structs.replace(union(parts), devices=len(taints), pools=1, drivers=1, allocated=allocated)


def union(parts: Iterable[Impact]) -> Impact:
    """Return all of them together; devices and allocated results are added up, so should not be the same."""
    whole = tuple(parts)
    if len(whole) == 1:
        return whole[0]
    pods: dict[int, set[str]] = defaultdict(set)
    claims: dict[int, set[str]] = defaultdict(set)
    for part in whole:
        for wave in part.waves:
            pods[wave.seconds] |= wave.pods
            claims[wave.seconds] |= wave.claims
    waves = _waves((seconds, frozenset(pods[seconds]), frozenset(claims[seconds])) for seconds in sorted(pods))
    extended = _all(part.extended for part in whole)
    tolerating = _without(_all(part.tolerating for part in whole), waves)
    return Impact(
        devices=sum(part.devices for part in whole),
        pools=sum(part.pools for part in whole),
        drivers=sum(part.drivers for part in whole),
        allocated=sum(part.allocated for part in whole),
        waves=waves,
        tolerating=tolerating,
        extended=extended.difference(*[part.pods - part.extended for part in whole]) if extended else _NONE,
        kept=_without(_all(part.kept for part in whole), waves) - tolerating,
        namespaces=_all(part.namespaces for part in whole),
        pod_groups=_all(part.pod_groups for part in whole),
        incomplete_pools=tuple(sorted({pool for part in whole for pool in part.incomplete_pools})),
    )


def _published(inventory: Inventory, impact: Impact, places: Sequence[DeviceNames], check: Check) -> Impact:
    """Return the impact with the figures of the named devices: how many are published, each once, and where."""
    missing = inventory.pools.incomplete
    devices = 0
    found: list[PoolId] = []
    incomplete: set[PoolId] = set()
    for driver, name, device in in_steps(places, check):
        for identity, pool in in_steps(inventory.pools.selected(driver, name), check):
            if missing and identity in missing:
                incomplete.add(identity)
            count = len(pool.devices) if device is None else int(device in pool.devices)
            if count:
                devices += count
                found.append(identity)
    if len(places) != 1:
        devices, found = Extent(places).count(inventory.pools, None, check), list(dict.fromkeys(found))
    return structs.replace(
        impact,
        devices=devices,
        pools=len(found),
        drivers=len({driver for driver, _ in found}),
        incomplete_pools=tuple(sorted(incomplete)),
    )


def allocated_on(inventory: Inventory, names: Iterable[DeviceNames], check: Check = unchecked) -> int:
    """Count entries of allocation results that are named, each once."""
    found = {
        (key, position)
        for each in in_steps(names, check, size=1)
        for key in inventory.usage.claims_on(*each, check)
        for position, result in enumerate(inventory.claims[key].allocation or ())
        if each.includes(result)
    }
    return len(found)


def _on_users(
    inventory: Inventory, names: DeviceNames, taint: Taint, now: datetime, check: Check = unchecked
) -> Impact:
    """Return what the taint does to users: a pod with several fates takes the worst."""
    fates = fates_on(inventory, names, partial(taint.fate, inventory.servers), check)
    soonest: dict[int, list[Users | ClaimGroup]] = {}
    for grace in sorted(fates.users):
        if grace not in (FOR_EVER, HARMLESS):
            soonest.setdefault(taint.due_seconds(grace, now), []).extend(fates.users[grace])
    waves = _waves(
        (seconds, _all(users.pods for users in hit), _all(users.claims for users in hit))
        for seconds, hit in soonest.items()
    )
    every = [users for hit in soonest.values() for users in hit]
    extended = [users for users in every if users in fates.extended] if taint.evictor is Evictor.IN_TREE else []
    plain = [users.pods for users in every if users not in extended] if extended else []
    return Impact(
        allocated=fates.allocated,
        waves=waves,
        tolerating=_without(fates.pods(FOR_EVER), waves),
        extended=_all(users.pods for users in extended).difference(*plain),
        kept=fates.pods(HARMLESS) if acts(taint.taint.effect) else _NONE,
        namespaces=_all(users.namespaces for users in every),
        pod_groups=_all(users.pod_groups for users in every),
    )


def _waves(parts: Iterable[tuple[int, frozenset[str], frozenset[str]]]) -> tuple[Wave, ...]:
    """Make waves from pods and claims by seconds, soonest first, each of them in its first only."""
    waves: list[Wave] = []
    pods: AbstractSet[str] = _NONE
    claims: AbstractSet[str] = _NONE
    for seconds, going, using in parts:
        if waves:
            pods, claims = _with(pods, waves[-1].pods), _with(claims, waves[-1].claims)
        waves.append(Wave(seconds, _less(going, pods), _less(using, claims)))
    return tuple([wave for wave in waves if wave.pods or wave.claims])


def _with(some: AbstractSet[str], more: frozenset[str]) -> AbstractSet[str]:
    """Return both together. Nothing is copied for the first, which may be most of a cluster; then one set grows."""
    if not some:
        return more
    growing = some if isinstance(some, set) else set(some)
    growing |= more
    return growing


def _less(some: frozenset[str], others: AbstractSet[str]) -> frozenset[str]:
    """Return those that are not among the others; usually that is all of them, and then no set is built."""
    return some if some.isdisjoint(others) else some - others


def _without(pods: frozenset[str], waves: Iterable[Wave]) -> frozenset[str]:
    return pods.difference(*[wave.pods for wave in waves]) if pods else pods


def _all(sets: Iterable[Iterable[str]]) -> frozenset[str]:
    """Return what is in any of them; one frozenset alone is not copied."""
    whole = tuple(sets)
    return frozenset(whole[0]) if len(whole) == 1 else _NONE.union(*whole)


# --- where pods are known: who goes along, and which gangs break ---------------------------------

PODS_MOST: Final = 2000
"""If more pods are evicted, no gangs are looked for: that takes some 10 microseconds for each, on the event loop."""


class KnownPods(NamedTuple):
    """What a process that follows pods can say of them: `sizes` of all gangs, and by pod its gang.

    `exemption_of`: why our worker never evicts a pod, or None.
    """

    gang_of: Callable[[Pod], Gang | None]
    exemption_of: Callable[[Pod], StrEnum | None]
    sizes: Mapping[Gang, int]


def with_companions(
    inventory: Inventory, impact: Impact, evictor: Evictor | None, pods: KnownPods | None, check: Check = unchecked
) -> Impact:
    """Return the impact with the pods that our worker evicts along with others of their PodGroup, as the first goes.

    The in-tree controller takes no pod along. Without `pods` the impact is left as it is. `check` may raise to stop.
    """
    if pods is None or evictor is not Evictor.OURS:
        return impact
    hit, waves, along = impact.pods, list(impact.waves), set[str]()
    for key, group in in_steps(inventory.pod_groups.items(), check):
        if not goes_as_a_whole(group) or group.meta.namespace not in impact.namespaces:
            continue
        going = {
            pod.meta.uid
            for pod in in_steps(companions_in(inventory, key), check)
            if pods.exemption_of(pod) is None and not is_held(inventory, pod, impact.claims)
        }
        causes = going & hit
        if causes:
            first = next(number for number, wave in enumerate(waves) if not causes.isdisjoint(wave.pods))
            waves[first] = structs.replace(waves[first], pods=waves[first].pods | (going - hit))
            along |= going - hit
    if not along:
        return impact
    return structs.replace(
        impact,
        waves=tuple(waves),
        companions=frozenset(along),
        tolerating=impact.tolerating - along,
        kept=impact.kept - along,
    )


def with_gangs(inventory: Inventory, impact: Impact, pods: KnownPods | None, check: Check = unchecked) -> Impact:
    """Return the impact with the gangs that it breaks; as it is without `pods`. `check` may raise to stop."""
    evicted = impact.pods
    if pods is None or len(evicted) > PODS_MOST:
        return impact
    keys = set(inventory.pods_using(impact.claims))
    if impact.companions:
        for group in {group_key(inventory.pods[key]) for key in keys}:
            keys.update(inventory.members_of(group))
    going = [pod for pod in map(inventory.pods.__getitem__, keys) if pod.meta.uid in evicted]
    lost = count_gangs(going, pods.gang_of, check)
    return structs.replace(impact, gangs=broken_gangs(lost, pods.sizes))
