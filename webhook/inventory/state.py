"""The contents of the caches as one value: apply changes, ask questions. One owner; no waiting, no clock.

A taint that is meant for a whole driver, or for all, hits claims by the ten thousand, and few of them differ in what
they tolerate. So claims are kept in groups of equal tolerations, and such a taint is judged once a group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, assert_never

from webhook.api.claims import Consumer, ResourceClaim
from webhook.api.meta import ObjectMeta
from webhook.api.pods import POD_GROUPS, Pod, PodClaim, PodGroup
from webhook.api.rules import DeviceTaintRule
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.api.slices import ResourceSlice
from webhook.api.taints import DeviceToleration
from webhook.inventory.pools import Check, PoolId, Pools, in_steps, unchecked

# --- which claims use which device ---------------------------------------------------------------

Several: TypeAlias = tuple[str, ...] | dict[str, None]
"""Names under a key in the order in which they were added, each once: few as a tuple, many as a dict.

Indexes have keys by the hundred thousand, nearly all with one name or two: for those a dict is four times the memory.
"""
_FEW: Final = 8
"""A tuple is copied with each change, which costs about as much as a dict up to this length."""
_FEW_AGAIN: Final = 4
"""A dict keeps the memory of all names that it ever had; less than _FEW, so that no key goes to and fro."""


def add_name(index: dict[str, Several], key: str, name: str) -> Several:
    """Add a name that the key does not have; return all names of the key."""
    known = index.get(key, ())
    if isinstance(known, dict):
        known[name] = None
    else:
        known = index[key] = (*known, name) if len(known) < _FEW else dict.fromkeys((*known, name))
    return known


def remove_name(index: dict[str, Several], key: str, name: str) -> Several:
    """Remove a name that the key has, and with the last name the key; return the names that are left."""
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
    """Tell whether an entry of `reservedFor` is a pod; otherwise it is a PodGroup, or something yet to come."""
    return consumer.resource == _PODS and not consumer.api_group


def is_pod_group(consumer: Consumer) -> bool:
    """Tell whether a claim is reserved for a PodGroup, and so for as long as that exists."""
    return (consumer.api_group, consumer.resource) == POD_GROUPS


def uses(pod: Pod, claim: ResourceClaim, *, generated: bool) -> bool:
    """Tell whether the claim is reserved for the pod or its group, and made for one of them if it was made at all.

    Of its group a pod knows the name and no uid (resourceclaim.IsForPod, IsReservedForPod).
    """
    uid, group = pod.meta.uid, pod.pod_group
    if generated and claim.controller_uid != uid and (not group or claim.pod_group != group):
        return False
    for consumer in claim.reserved_for:
        if consumer.uid == uid:
            return True
        if group and consumer.name == group and is_pod_group(consumer):
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
        """Count a claim that comes (`step` 1) or goes (-1)."""
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
    """Return driver, pool and name of each device of a claim; shares of one device are one."""
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
        self.monitors: set[str] = set()
        """Claims with admin access, as far as it is known what claims ask for."""

    def add(self, key: str, claim: ResourceClaim) -> None:
        """Add an allocated claim; one that is not allocated changes nothing."""
        for driver, pool, device in _devices_of(claim):
            users = self._users.get((driver, pool))
            if users is None:
                users = self._users[driver, pool] = {}
                self._pools.setdefault(driver, set()).add(pool)
            add_name(users, device, key)
        if claim.demand is not None and claim.demand.admin:
            self.monitors.add(key)
        self._count(key, claim, 1)

    def remove(self, key: str, claim: ResourceClaim) -> None:
        """Remove a claim, as it was added."""
        for driver, pool, device in _devices_of(claim):
            self._remove_user((driver, pool), device, key)
        self.monitors.discard(key)
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
        """Return the groups of one driver, or all."""
        return self.groups if driver is None else self._drivers.get(driver, {})

    def claims_on(self, driver: str | None, pool: str | None, device: str | None, check: Check = unchecked) -> set[str]:
        """Return the claims with a device of those names; None is any. `check` may raise to stop."""
        found: set[str] = set()
        for users in in_steps(self._users_in(driver, pool), check):
            if device is None:
                found.update(chain.from_iterable(users.values()))
            elif device in users:
                found.update(users[device])
        return found

    def users_on(self, driver: str | None, pool: str | None, device: str | None) -> Iterator[str]:
        """Return the same claims one by one, each once for each of its devices. Nothing may change meanwhile."""
        for users in self._users_in(driver, pool):
            yield from chain.from_iterable(users.values()) if device is None else users.get(device, ())

    def used_in(self, pool: PoolId) -> Mapping[str, Several]:
        """Return the devices of a pool that are in use, by name, with the claims that have them."""
        return self._users.get(pool, {})

    def count_on(self, driver: str | None) -> int:
        """Return how many devices of a driver, or of all, are in use."""
        return sum(map(len, self._users_in(driver, None)))

    def unpublished(self, pools: Pools, check: Check = unchecked) -> Iterator[tuple[str, str, str]]:
        """Return driver, pool and name of the devices in use that no slice shows. `check` as in `claims_on`."""
        for (driver, pool), users in in_steps(self._users.items(), check):
            found = pools.get((driver, pool))
            for device in users if found is None else users.keys() - found.devices.keys():
                yield driver, pool, device

    def in_use(self, driver: str | None, pool: str | None, device: str | None) -> bool:
        """Tell whether a device of those names is in use."""
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


# --- the caches ----------------------------------------------------------------------------------

_TWO: Final = 2
InventoryObject: TypeAlias = ResourceSlice | DeviceTaintRule | ResourceClaim | Pod | PodGroup


def key_of(meta: ObjectMeta) -> str:
    """Return `namespace/name`, or the name alone for what has no namespace."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class Inventory:
    """Slices, rules, claims and, in processes that may read them, pods and PodGroups.

    The same objects make the same inventory, in whatever order the changes of different objects arrive.
    """

    def __init__(self) -> None:
        self._rules: dict[str, DeviceTaintRule] = {}
        self._slices: dict[str, ResourceSlice] = {}
        self._claims: dict[str, ResourceClaim] = {}
        self._pods: dict[str, Pod] = {}
        self._pod_groups: dict[str, PodGroup] = {}
        self._claim_pods: dict[str, Several] = {}
        self._sharing: Counter[str] = Counter()
        """How many of its claims a pod shares with others, for those that share any; both as `namespace/name`."""
        self._members: dict[str, dict[str, None]] = {}
        """The pods of each PodGroup, whether it is there or not; a dict, as a group may have thousands."""
        self._rule_keys: dict[str, int] = {}
        """Keys of the rules' taints, and how many rules have each."""
        self.servers: ServerFacts = UNKNOWN
        """What the API servers and the controllers of this cluster do."""
        self.pools = Pools()
        self.usage = Usage()
        self.rules: Mapping[str, DeviceTaintRule] = MappingProxyType(self._rules)
        """By name."""
        self.slices: Mapping[str, ResourceSlice] = MappingProxyType(self._slices)
        """By name."""
        self.claims: Mapping[str, ResourceClaim] = MappingProxyType(self._claims)
        """By `namespace/name`."""
        self.pods: Mapping[str, Pod] = MappingProxyType(self._pods)
        """By `namespace/name`; only those that name a claim, or a PodGroup."""
        self.pod_groups: Mapping[str, PodGroup] = MappingProxyType(self._pod_groups)
        """By `namespace/name`."""

    def apply(self, old: InventoryObject | None, new: InventoryObject | None) -> None:
        """Apply the change of one object: `old` is None for what was added, `new` for what is gone.

        Objects are identified by kind and name; `old` serves for nothing else, as the inventory keeps its own copy. An
        object of the same name with another uid replaces the old one.
        """
        match new if new is not None else old:
            case ResourceSlice() as value:
                self._apply_slice(value, gone=new is None)
            case DeviceTaintRule() as rule:
                self._apply_rule(rule, gone=new is None)
            case ResourceClaim() as claim:
                self._apply_claim(claim, gone=new is None)
            case Pod() as pod:
                self._apply_pod(pod, gone=new is None)
            case PodGroup() as group:
                self._pod_groups.pop(key_of(group.meta), None)
                if new is not None:
                    self._pod_groups[key_of(group.meta)] = group
            case None:
                pass
            case unknown:
                assert_never(unknown)

    def _apply_rule(self, rule: DeviceTaintRule, *, gone: bool) -> None:
        known = self._rules.pop(rule.meta.name, None)
        if known is not None:
            _count(self._rule_keys, known.taint.key, -1)
        if not gone:
            self._rules[rule.meta.name] = rule
            _count(self._rule_keys, rule.taint.key, 1)

    def _apply_slice(self, value: ResourceSlice, *, gone: bool) -> None:
        name = value.meta.name
        known = self._slices.pop(name, None)
        if not gone:
            self._slices[name] = value
        self.pools.apply(known, None if gone else value)

    def _apply_claim(self, claim: ResourceClaim, *, gone: bool) -> None:
        key = key_of(claim.meta)
        known = self._claims.pop(key, None)
        if known is not None:
            self.usage.remove(key, known)
        if not gone:
            self._claims[key] = claim
            self.usage.add(key, claim)

    def _apply_pod(self, pod: Pod, *, gone: bool) -> None:
        key = key_of(pod.meta)
        known = self._pods.pop(key, None)
        if known is not None:
            self._unlist_pod(key, known)
        if gone or not pod.is_held:
            return
        self._pods[key] = pod
        for claim in claim_keys(pod):
            users = add_name(self._claim_pods, claim, key)
            if len(users) > 1:
                self._sharing.update(users if len(users) == _TWO else (key,))
        if pod.pod_group:
            self._members.setdefault(f"{pod.meta.namespace}/{pod.pod_group}", {})[key] = None

    def _unlist_pod(self, key: str, known: Pod) -> None:
        for claim in claim_keys(known):
            left = remove_name(self._claim_pods, claim, key)
            if not left:
                continue
            for each in (key, *left) if len(left) == 1 else (key,):
                _count(self._sharing, each, -1)
        if known.pod_group:
            group = f"{known.meta.namespace}/{known.pod_group}"
            del self._members[group][key]
            if not self._members[group]:
                del self._members[group]

    # --- questions -------------------------------------------------------------------------------

    def pods_of(self, claim: str) -> tuple[str, ...]:
        """Return the pods that name a claim, in whatever way, by name; both as `namespace/name`."""
        return tuple(sorted(self._claim_pods.get(claim, ())))

    def is_shared(self, claim: str) -> bool:
        """Tell whether several pods name a claim, by `namespace/name`."""
        return len(self._claim_pods.get(claim, ())) > 1

    def shares(self, pod: str) -> bool:
        """Tell whether a pod names a claim that other pods name as well, by `namespace/name`."""
        return pod in self._sharing

    def pods_using(self, claims: Iterable[str]) -> frozenset[str]:
        """Return the pods that name any of the claims, by `namespace/name`."""
        known = self._claim_pods
        return frozenset([pod for claim in claims for pod in known.get(claim, ())])

    def claims_of(self, pod: Pod) -> list[ResourceClaim]:
        """Return the allocated claims that are the pod's own to use (E-16 to E-18).

        The pod tells, as it tells the in-tree controller: what the claim says of itself is not asked.
        """
        found: list[ResourceClaim] = []
        for entry in (*pod.claims, PodClaim(pod.extended_claim, generated=True)):
            claim = self._claims.get(f"{pod.meta.namespace}/{entry.claim}") if entry.claim else None
            if claim is not None and claim.allocation and uses(pod, claim, generated=entry.generated):
                found.append(claim)
        return found

    def members_of(self, pod_group: str) -> tuple[str, ...]:
        """Return the pods of a PodGroup by name, with and without claims; both as `namespace/name`."""
        return tuple(sorted(self._members.get(pod_group, ())))

    def taint_keys(self) -> frozenset[str]:
        """Return the keys of all taints that are published, in slices or by rules."""
        return self.pools.taint_keys.union(self._rule_keys)

    def publishes(self, key: str) -> bool:
        """Tell whether a taint with this key is on any device or in any rule."""
        return key in self._rule_keys or key in self.pools.taint_keys


def claim_keys(pod: Pod) -> list[str]:
    """Return the claims that a pod names and that exist by name, each once."""
    names = {entry.claim for entry in pod.claims if entry.claim}
    if pod.extended_claim:
        names.add(pod.extended_claim)
    return [f"{pod.meta.namespace}/{name}" for name in sorted(names)]


class Sight(NamedTuple):
    """What is known of the cluster at this moment: an inventory, or in words why there is none to rely on."""

    inventory: Inventory | None
    unknown: str = ""
