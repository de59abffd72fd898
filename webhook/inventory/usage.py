"""Which claims use which device, indexed by device and by toleration.

A taint that is meant for a whole driver, or for all, hits claims by the ten thousand, and few of them differ in what
they tolerate. So claims are kept in groups of equal tolerations, and such a taint is judged once a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from webhook.api.owners import POD_GROUPS
from webhook.api.taints import DeviceToleration
from webhook.inventory.steps import Check, in_steps, unchecked

if TYPE_CHECKING:
    from webhook.api.claims import Consumer, ResourceClaim
    from webhook.api.pods import Pod
    from webhook.inventory.pools import PoolId, Pools


Several: TypeAlias = tuple[str, ...] | dict[str, None]
"""Names under a key in the order in which they were added, each once: few as a tuple, many as a dict.

Indexes have keys by the hundred thousand, nearly all with one name or two: for those a dict is four times the memory.
"""
_FEW: Final = 8
"""A tuple is copied with each change, which costs about as much as a dict up to this length."""
_FEW_AGAIN: Final = 4
"""A dict keeps the memory of all names that it ever had; less than _FEW, so that no key goes to and fro."""


def add_name(index: dict[str, Several], key: str, name: str) -> Several:
    """Adds a name that the key does not have; returns all names of the key."""
    known = index.get(key, ())
    if isinstance(known, dict):
        known[name] = None
    else:
        known = index[key] = (*known, name) if len(known) < _FEW else dict.fromkeys((*known, name))
    return known


def remove_name(index: dict[str, Several], key: str, name: str) -> Several:
    """Removes a name that the key has, and with the last name the key; returns the names that are left."""
    known = index[key]
    if isinstance(known, dict):
        del known[name]
        left: Several = known
        if len(known) <= _FEW_AGAIN:
            left = index[key] = tuple(known)
    else:
        left = index[key] = tuple([each for each in known if each != name])
    if not left:
        del index[key]
    return left


_PODS: Final = "pods"


def is_pod(consumer: Consumer) -> bool:
    """Whether an entry of `reservedFor` is a pod; otherwise it is a PodGroup, or something yet to come."""
    return consumer.resource == _PODS and not consumer.api_group


def is_pod_group(consumer: Consumer) -> bool:
    """Whether a claim is reserved for a PodGroup, and so for as long as that exists."""
    return (consumer.api_group, consumer.resource) == POD_GROUPS


def uses(pod: Pod, claim: ResourceClaim, *, generated: bool) -> bool:
    """Whether the claim is reserved for the pod or its group, and made for one of them if it was made at all.

    Of its group a pod knows the name and no uid (resourceclaim.IsForPod, IsReservedForPod).
    """
    uid, group = pod.meta.uid, pod.pod_group
    if generated and claim.controller_uid != uid and (not group or claim.pod_group != group):
        return False
    for consumer in claim.reserved_for:
        if consumer.uid == uid:
            return True
        if group and consumer.name == group and (consumer.api_group, consumer.resource) == POD_GROUPS:
            return True
    return False


class GroupKey(NamedTuple):
    """What the claims of a group share: driver, tolerations, and whether they were made for extended resources."""

    driver: str
    tolerations: tuple[DeviceToleration, ...]
    extended: bool


class ClaimGroup:
    """Claims with devices of one driver and equal tolerations. The counts say in how many entries each appears."""

    __slots__ = ("claims", "namespaces", "pod_groups", "pods", "results")

    def __init__(self) -> None:
        self.claims: dict[str, int] = {}
        """Claims in use, by `namespace/name`."""
        self.pods: dict[str, int] = {}
        """Their pods, by uid."""
        self.pod_groups: dict[str, int] = {}
        """Consumers that are not pods, by uid; how many pods they stand for is not known."""
        self.namespaces: dict[str, int] = {}
        """Their namespaces."""
        self.results = 0
        """Entries of allocation results, used or not."""

    def count(self, key: str, claim: ResourceClaim, results: int, step: int) -> None:
        """A claim comes (`step` 1) or goes (-1)."""
        self.results += results * step
        if not claim.reserved_for:
            return
        _count(self.claims, key, step)
        _count(self.namespaces, claim.meta.namespace, step)
        for consumer in claim.reserved_for:
            _count(self.pods if is_pod(consumer) else self.pod_groups, consumer.uid, step)


def _count(counts: dict[str, int], key: str, step: int) -> None:
    count = counts.get(key, 0) + step
    if count:
        counts[key] = count
    else:
        counts.pop(key, None)


def _devices_of(claim: ResourceClaim) -> Iterable[tuple[str, str, str]]:
    """Driver, pool and name of each device of a claim; shares of one device are one."""
    return dict.fromkeys([(result.driver, result.pool, result.device) for result in claim.allocation or ()])


class Usage:
    """The allocated claims, indexed. They go by the keys under which the caller has them."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, ClaimGroup] = {}
        self._drivers: dict[str, dict[GroupKey, ClaimGroup]] = {}
        self._users: dict[PoolId, dict[str, Several]] = {}
        """Claims by device, pool by pool."""
        self._pools: dict[str, set[str]] = {}
        """Names of pools in use, by driver."""

    def add(self, key: str, claim: ResourceClaim) -> None:
        """An allocated claim; one that is not allocated changes nothing."""
        for driver, pool, device in _devices_of(claim):
            users = self._users.get((driver, pool))
            if users is None:
                users = self._users[driver, pool] = {}
                self._pools.setdefault(driver, set()).add(pool)
            add_name(users, device, key)
        self._count(key, claim, 1)

    def remove(self, key: str, claim: ResourceClaim) -> None:
        """The same claim, as it was added."""
        for driver, pool, device in _devices_of(claim):
            self._remove_user((driver, pool), device, key)
        self._count(key, claim, -1)

    def _remove_user(self, pool: PoolId, device: str, key: str) -> None:
        users = self._users[pool]
        remove_name(users, device, key)
        if not users:
            del self._users[pool]
            driver, name = pool
            self._pools[driver].discard(name)
            if not self._pools[driver]:
                del self._pools[driver]

    def _count(self, key: str, claim: ResourceClaim, step: int) -> None:
        entries: dict[GroupKey, int] = {}
        for result in claim.allocation or ():
            one = GroupKey(result.driver, result.tolerations, claim.extended_resource)
            entries[one] = entries.get(one, 0) + 1
        for one, results in entries.items():
            group = self.groups.get(one)
            if group is None:
                group = self.groups[one] = self._drivers.setdefault(one.driver, {})[one] = ClaimGroup()
            group.count(key, claim, results, step)
            if not group.results:
                del self.groups[one]
                del self._drivers[one.driver][one]
                if not self._drivers[one.driver]:
                    del self._drivers[one.driver]

    # --- questions -------------------------------------------------------------------------------

    def groups_of(self, driver: str | None) -> Mapping[GroupKey, ClaimGroup]:
        """The groups of one driver, or all."""
        return self.groups if driver is None else self._drivers.get(driver, {})

    def claims_on(self, driver: str | None, pool: str | None, device: str | None, check: Check = unchecked) -> set[str]:
        """The claims with a device of those names; None is any. `check` is called now and then, and may raise."""
        found: set[str] = set()
        for users in in_steps(self._users_in(driver, pool), check):
            if device is None:
                found.update(chain.from_iterable(users.values()))
            elif device in users:
                found.update(users[device])
        return found

    def users_on(self, driver: str | None, pool: str | None, device: str | None) -> Iterator[str]:
        """The same claims one by one, each once for each of its devices. Nothing may change meanwhile."""
        for users in self._users_in(driver, pool):
            yield from chain.from_iterable(users.values()) if device is None else users.get(device, ())

    def count_on(self, driver: str | None) -> int:
        """How many devices of a driver, or of all, are in use."""
        return sum(map(len, self._users_in(driver, None)))

    def unpublished(self, pools: Pools, check: Check = unchecked) -> Iterator[tuple[str, str, str]]:
        """Driver, pool and name of the devices in use that no slice shows. `check` as in `claims_on`."""
        for (driver, pool), users in in_steps(self._users.items(), check):
            found = pools.get((driver, pool))
            for device in users if found is None else users.keys() - found.devices.keys():
                yield driver, pool, device

    def in_use(self, driver: str | None, pool: str | None, device: str | None) -> bool:
        """Whether a device of those names is in use."""
        return any(device is None or device in users for users in self._users_in(driver, pool))

    def _users_in(self, driver: str | None, pool: str | None) -> Iterator[Mapping[str, Several]]:
        if driver is not None and pool is not None:
            users = self._users.get((driver, pool))
            if users is not None:
                yield users
            return
        for name in (driver,) if driver is not None else tuple(self._pools):
            for found in (pool,) if pool is not None else self._pools.get(name, ()):
                users = self._users.get((name, found))
                if users is not None:
                    yield users
