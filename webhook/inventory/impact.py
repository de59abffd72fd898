"""What a taint would do: how many devices, claims, pods and namespaces, and when. Guard, preview and status ask here.

Pods are counted as the consumers that claims are reserved for, so that nobody need read pods for it.
Source: `semantics.md` E-5 to E-18, E-40.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import structs

from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, DeviceTaint
from webhook.inventory.matching import FOR_EVER, Evictor, grace_seconds, keeps_from_allocation, tolerates
from webhook.inventory.pools import PoolId
from webhook.inventory.usage import is_pod, results_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from webhook.api.claims import ResourceClaim
    from webhook.api.rules import DeviceSelector, DeviceTaintRule
    from webhook.api.taints import DeviceToleration
    from webhook.inventory.state import Inventory

_UNSEEN: Final = -2
"""Instead of seconds: the in-tree controller does not look at such claims."""


class Wave(msgspec.Struct, frozen=True):
    """Pods that go at the same time, `seconds` from now; 0 is at once. Pods by uid, claims by `namespace/name`."""

    seconds: int
    pods: frozenset[str]
    claims: frozenset[str]


class Impact(msgspec.Struct, frozen=True):
    """What a taint would do, by the inventory of one moment. Pods are uids, claims and namespaces names.

    A pod with several claims counts once, where it fares worst. `unknown` says what could not be counted.
    """

    devices: int = 0
    """Published in newest generations, and selected."""
    pools: int = 0
    drivers: int = 0
    allocated: int = 0
    """Entries of allocation results that are selected, whether anybody uses them or not."""
    waves: tuple[Wave, ...] = ()
    """Who is evicted, soonest first."""
    tolerating: frozenset[str] = frozenset()
    """Pods that the taint would evict if they did not tolerate it."""
    unseen: frozenset[str] = frozenset()
    """Pods with extended resources: the in-tree controller leaves them where they are."""
    kept: frozenset[str] = frozenset()
    """Pods on devices that the taint only keeps from new allocations."""
    namespaces: frozenset[str] = frozenset()
    """Of the pods that are evicted."""
    pod_groups: frozenset[str] = frozenset()
    """PodGroups that would be evicted, by uid; nobody here knows how many pods they have."""
    incomplete_pools: tuple[PoolId, ...] = ()
    """Selected pools that their driver has not published in full."""

    @property
    def pods(self) -> frozenset[str]:
        """All pods that are evicted, sooner or later."""
        return frozenset().union(*[wave.pods for wave in self.waves])

    @property
    def claims(self) -> frozenset[str]:
        """The claims of those pods that are the reason."""
        return frozenset().union(*[wave.claims for wave in self.waves])

    @property
    def now(self) -> frozenset[str]:
        """The pods that are evicted at once."""
        return frozenset().union(*[wave.pods for wave in self.waves if not wave.seconds])

    @property
    def later(self) -> frozenset[str]:
        """The pods that are evicted after some time."""
        return self.pods - self.now


class Taint(NamedTuple):
    """A taint as it acts: who evicts for it, if anybody does.

    `evictor` None: nobody, it only keeps devices from being allocated, if that. `scheduling` is the taint as it
    stands, where our worker empties the devices of a NoSchedule rule: who tolerates that would come back to the
    same device, so is left alone.
    """

    taint: DeviceTaint
    evictor: Evictor | None
    scheduling: DeviceTaint | None = None

    @classmethod
    def of_rule(cls, rule: DeviceTaintRule, *, in_tree: bool) -> Taint:
        """Of a rule; `in_tree` says whether the in-tree controller carries out NoExecute in this cluster."""
        if rule.taint.effect == NO_EXECUTE:
            return cls(rule.taint, Evictor.IN_TREE if in_tree else Evictor.OURS)
        if rule.effective_effect != NO_EXECUTE:
            return cls(rule.taint, None)
        acting = structs.replace(rule.taint, effect=NO_EXECUTE)
        return cls(acting, Evictor.OURS, rule.taint if rule.taint.effect == NO_SCHEDULE else None)

    @classmethod
    def of_slice(cls, taint: DeviceTaint, *, in_tree: bool) -> Taint:
        """Of a taint in a slice."""
        if taint.effect != NO_EXECUTE:
            return cls(taint, None)
        return cls(taint, Evictor.IN_TREE if in_tree else Evictor.OURS)

    def fate(self, tolerations: tuple[DeviceToleration, ...], *, extended: bool) -> int:
        """Seconds after timeAdded that a pod may stay, FOR_EVER, or that nobody looks (extended resources)."""
        if self.evictor is None or (self.evictor is Evictor.IN_TREE and extended):
            return _UNSEEN
        if self.scheduling is not None and any(tolerates(entry, self.scheduling) for entry in tolerations):
            return FOR_EVER
        return grace_seconds(tolerations, self.taint, self.evictor)

    def due_seconds(self, grace: int, now: datetime) -> int:
        """How long from now such a grace lasts; 0 if it is over."""
        added = self.taint.time_added
        passed = 0 if added is None else int((now - added).total_seconds())
        return max(grace - passed, 0)


class Names(NamedTuple):
    """Which devices, by name; None is any."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


ANYWHERE: Final = Names()


class _Found:
    """Pods and claims of one fate."""

    __slots__ = ("claims", "namespaces", "pod_groups", "pods")

    def __init__(self) -> None:
        self.pods: set[str] = set()
        self.claims: set[str] = set()
        self.namespaces: set[str] = set()
        self.pod_groups: set[str] = set()


_Fates: TypeAlias = defaultdict[int, _Found]
"""By seconds of grace, or one of the numbers that stand instead."""


def impact_of(inventory: Inventory, selector: DeviceSelector | None, taint: Taint, now: datetime) -> Impact:
    """What the taint on the selected devices would do, from `now` on.

    A missing selector evicts nobody, but keeps every device from being allocated (K-5, E-6). Fields of a selector
    that cannot be judged here are passed over, so the answer is then too high and never too low.
    """
    names = ANYWHERE if selector is None else Names(selector.driver, selector.pool, selector.device)
    published = _published(inventory, names)
    if selector is None:
        return published
    fates: _Fates = defaultdict(_Found)
    if names.pool is None and names.device is None:
        allocated = _in_groups(inventory, names.driver, taint, fates)
    else:
        allocated = _in_claims(inventory, names, taint, fates)
    return _impact(published, allocated, fates, taint, now)


def impact_on_devices(
    inventory: Inventory, pool: PoolId, taints: Mapping[str, Iterable[Taint]], now: datetime
) -> Impact:
    """What new taints in a slice would do to those who use the devices, by device name."""
    parts = []
    for device, added in taints.items():
        for taint in added:
            fates: _Fates = defaultdict(_Found)
            allocated = _in_claims(inventory, Names(*pool, device), taint, fates)
            parts.append(_impact(Impact(), allocated, fates, taint, now))
    return structs.replace(union(parts), devices=len(taints), pools=1, drivers=1)


def union(parts: Iterable[Impact]) -> Impact:
    """All of them together; devices are added up, so must not be the same."""
    whole = tuple(parts)
    pods: dict[int, set[str]] = defaultdict(set)
    claims: dict[int, set[str]] = defaultdict(set)
    for part in whole:
        for wave in part.waves:
            pods[wave.seconds] |= wave.pods
            claims[wave.seconds] |= wave.claims
    waves, evicted, _ = _waves((seconds, pods[seconds], claims[seconds]) for seconds in sorted(pods))
    empty: frozenset[str] = frozenset()
    unseen = empty.union(*[part.unseen for part in whole]) - evicted
    tolerating = empty.union(*[part.tolerating for part in whole]) - evicted - unseen
    return Impact(
        devices=sum(part.devices for part in whole),
        pools=sum(part.pools for part in whole),
        drivers=sum(part.drivers for part in whole),
        allocated=sum(part.allocated for part in whole),
        waves=waves,
        tolerating=tolerating,
        unseen=unseen,
        kept=empty.union(*[part.kept for part in whole]) - evicted - unseen - tolerating,
        namespaces=empty.union(*[part.namespaces for part in whole]),
        pod_groups=empty.union(*[part.pod_groups for part in whole]),
        incomplete_pools=tuple(sorted({pool for part in whole for pool in part.incomplete_pools})),
    )


def _published(inventory: Inventory, names: Names) -> Impact:
    """The devices that are selected."""
    pools = devices = 0
    drivers: set[str] = set()
    missing = inventory.pools.incomplete
    incomplete: list[PoolId] = []
    for identity, pool in inventory.pools.selected(names.driver, names.pool):
        if missing and identity in missing:
            incomplete.append(identity)
        count = len(pool.devices) if names.device is None else int(names.device in pool.devices)
        if count:
            devices += count
            pools += 1
            drivers.add(identity[0])
    return Impact(devices=devices, pools=pools, drivers=len(drivers), incomplete_pools=tuple(sorted(incomplete)))


def _in_groups(inventory: Inventory, driver: str | None, taint: Taint, fates: _Fates) -> int:
    """Sorts the users of whole drivers into fates, group by group; gives the allocation results that were met."""
    allocated = 0
    for kin, group in inventory.usage.groups_of(driver).items():
        found = fates[taint.fate(kin.tolerations, extended=kin.extended)]
        found.pods |= group.consumers.keys()
        found.claims |= group.claims.keys()
        found.namespaces |= group.namespaces.keys()
        found.pod_groups |= group.pod_groups.keys()
        allocated += group.results
    return allocated


def _in_claims(inventory: Inventory, names: Names, taint: Taint, fates: _Fates) -> int:
    """The same, claim by claim."""
    allocated = 0
    for key in inventory.usage.claims_on(*names):
        claim = inventory.claims[key]
        extended = claim.extended_resource
        met = {taint.fate(result.tolerations, extended=extended) for result in results_on(claim, *names)}
        allocated += sum(1 for _ in results_on(claim, *names))
        if claim.reserved_for:
            for fate in met:
                _sort_in(claim, key, fates[fate])
    return allocated


def _sort_in(claim: ResourceClaim, key: str, found: _Found) -> None:
    found.claims.add(key)
    found.namespaces.add(claim.meta.namespace)
    for consumer in claim.reserved_for:
        (found.pods if is_pod(consumer) else found.pod_groups).add(consumer.uid)


def _impact(published: Impact, allocated: int, fates: _Fates, taint: Taint, now: datetime) -> Impact:
    """From fates to waves: whoever has several takes the worst."""
    soonest = sorted((taint.due_seconds(grace, now), grace) for grace in fates if grace >= 0)
    waves, evicted, _ = _waves((seconds, fates[grace].pods, fates[grace].claims) for seconds, grace in soonest)
    others = fates[_UNSEEN].pods - evicted
    empty: frozenset[str] = frozenset()
    hit = [fates[grace] for _, grace in soonest]
    return structs.replace(
        published,
        allocated=allocated,
        waves=waves,
        tolerating=frozenset(fates[FOR_EVER].pods - evicted - others),
        unseen=frozenset(others) if taint.evictor is not None else empty,
        kept=frozenset(others) if taint.evictor is None and keeps_from_allocation(taint.taint) else empty,
        namespaces=empty.union(*[found.namespaces for found in hit]),
        pod_groups=empty.union(*[found.pod_groups for found in hit]),
    )


def _waves(parts: Iterable[tuple[int, set[str], set[str]]]) -> tuple[tuple[Wave, ...], set[str], set[str]]:
    """Waves from pods and claims by seconds, soonest first, each of them in its first only; and all pods and claims."""
    waves: list[Wave] = []
    pods: set[str] = set()
    claims: set[str] = set()
    for seconds, going, using in parts:
        fresh, new = (going - pods, using - claims) if waves else (going, using)
        if waves and waves[-1].seconds == seconds:
            last = waves.pop()
            fresh, new = fresh | last.pods, new | last.claims
        if fresh or new:
            waves.append(Wave(seconds, frozenset(fresh), frozenset(new)))
        pods |= going
        claims |= using
    return tuple(waves), pods, claims
