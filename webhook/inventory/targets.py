"""What a taint is on: devices by name, and how long it lets each of their users stay; what our evictor acts on.

Rules for devices by name have names of their own, which tell what they are on.

A question may concern every claim of a cluster, so nothing is copied here that the inventory already holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from webhook.api.claims import AllocationResult, ResourceClaim
from webhook.api.rules import DeviceSelector, DeviceTaintRule, not_before_of
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.api.taints import NO_EXECUTE, NO_SCHEDULE, DeviceTaint, DeviceToleration
from webhook.inventory.pools import BETWEEN_CHECKS, Check, Evictor, Pool, Pools, in_steps, tolerates, unchecked
from webhook.inventory.state import ClaimGroup, Inventory, is_pod

# --- devices by name, and who uses them ----------------------------------------------------------

FateOf = Callable[[tuple[DeviceToleration, ...]], int]
"""Seconds that a taint lets a pod with these tolerations stay, or one of the special values."""
_NONE: Final[frozenset[str]] = frozenset()


class DeviceId(NamedTuple):
    """One device by name."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class DeviceNames(NamedTuple):
    """Which devices, by name; None is any."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    @classmethod
    def of(cls, selector: DeviceSelector | None, servers: ServerFacts = UNKNOWN) -> DeviceNames:
        """Return at least the devices that a taint with this selector closes.

        With a field that is not known here that is any device, as `selects` has it. Without a selector it depends on
        the server (K-5).
        """
        if selector is None:
            return NOWHERE if servers.missing_selects_nothing else ANYWHERE
        return ANYWHERE if selector.unknown else cls(selector.driver, selector.pool, selector.device)

    def includes(self, result: AllocationResult | DeviceId) -> bool:
        """Tell whether a device has these names."""
        return (
            (self.pool is None or result.pool == self.pool)
            and (self.driver is None or result.driver == self.driver)
            and (self.device is None or result.device == self.device)
        )


ANYWHERE: Final = DeviceNames()
NOWHERE: Final = DeviceNames("", "", "")
"""No device has an empty name."""


class Users:
    """Pods by uid, the claims that they use by key, and their namespaces; PodGroups by uid."""

    __slots__ = ("claims", "namespaces", "pod_groups", "pods")

    def __init__(self) -> None:
        self.claims: set[str] = set()
        self.namespaces: set[str] = set()
        self.pod_groups: set[str] = set()
        self.pods: set[str] = set()

    def add(self, key: str, claim: ResourceClaim) -> None:
        """Add the users of the claim, if it has any."""
        if not claim.reserved_for:
            return
        self.claims.add(key)
        self.namespaces.add(claim.meta.namespace)
        for consumer in claim.reserved_for:
            (self.pods if is_pod(consumer) else self.pod_groups).add(consumer.uid)


class Fates:
    """Users by the seconds that a taint lets them stay, or by one of the special values.

    A pod may appear under several of these, since it may use several devices, and in several groups under one.
    """

    __slots__ = ("allocated", "extended", "users")

    def __init__(self) -> None:
        self.users: dict[int, list[ClaimGroup | Users]] = {}
        self.extended: list[ClaimGroup | Users] = []
        """Those of them that have their devices through extended resources."""
        self.allocated = 0
        """Entries of allocation results that the taint is on, used or not."""

    def pods(self, fate: int) -> frozenset[str]:
        """Return the pods with this fate, whatever else applies to them."""
        return _NONE.union(*[users.pods for users in self.users.get(fate, ())])


def fates_on(inventory: Inventory, names: DeviceNames, fate_of: FateOf, check: Check = unchecked) -> Fates:
    """Return what a taint does to the users of the named devices. `check` may raise to stop."""
    if names.pool is None and names.device is None:
        return _of_groups(inventory, names.driver, fate_of, check)
    return _of_claims(inventory, names, fate_of, check)


def _of_groups(inventory: Inventory, driver: str | None, fate_of: FateOf, check: Check) -> Fates:
    """Ask for whole drivers, group by group. Usually there are few; as many as claims, if no two tolerate the same."""
    fates = Fates()
    for shared, group in in_steps(inventory.usage.groups_of(driver).items(), check):
        fates.users.setdefault(fate_of(shared.tolerations), []).append(group)
        if shared.extended:
            fates.extended.append(group)
        fates.allocated += group.results
    return fates


def _of_claims(inventory: Inventory, names: DeviceNames, fate_of: FateOf, check: Check) -> Fates:
    """Ask for some devices, claim by claim. Few claims differ in their tolerations, so each sort is judged once."""
    driver, pool, device = names
    fates = Fates()
    known: dict[tuple[tuple[DeviceToleration, ...], bool], Users] = {}
    by_fate: dict[tuple[int, bool], Users] = {}
    claims = inventory.claims
    for key in in_steps(inventory.usage.claims_on(driver, pool, device, check), check):
        claim = claims[key]
        last: Users | None = None
        for result in claim.allocation or ():
            if (
                (pool is not None and result.pool != pool)
                or (driver is not None and result.driver != driver)
                or (device is not None and result.device != device)
            ):
                continue
            fates.allocated += 1
            sort = result.tolerations, claim.extended_resource
            users = known.get(sort)
            if users is None:
                fate = fate_of(result.tolerations)
                users = known[sort] = by_fate.setdefault((fate, claim.extended_resource), Users())
            if users is not last:
                users.add(key, claim)
                last = users
    for (fate, extended), users in by_fate.items():
        fates.users.setdefault(fate, []).append(users)
        if extended:
            fates.extended.append(users)
    return fates


# --- devices of several selectors, each counted once ---------------------------------------------


class Extent:
    """Devices by names, of any number of rules. They are indexed by driver and pool: each pool is looked at once."""

    __slots__ = ("_at",)

    def __init__(self, names: Iterable[DeviceNames] = ()) -> None:
        self._at: dict[str | None, dict[str | None, set[str] | None]] = {}
        """Names of devices by driver and pool, as a selector gives them; None instead of names is every device."""
        for each in names:
            self.add(each)

    def add(self, names: DeviceNames) -> None:
        """Add devices."""
        driver, pool, device = names
        pools = self._at.setdefault(driver, {})
        if device is None:
            pools[pool] = None
            return
        known = pools.setdefault(pool, set())
        if known is not None:
            known.add(device)

    def count(self, pools: Pools, driver: str | None = None, check: Check = unchecked) -> int:
        """Return how many of the named devices are published, of one driver or of all.

        `check` is called every thousand devices and may raise to stop the count.
        """
        drivers = pools.drivers if driver is None else (driver,)
        return sum([self._count_of(pools, name, check) for name in drivers])

    def holds(self, driver: str, pool: str, device: str) -> bool:
        """Tell whether the device is among them."""
        for places in self._places(driver):
            for name in (pool, None):
                named = places.get(name, _NONE)
                if named is None or device in named:
                    return True
        return False

    def holds_all(self, names: DeviceNames, pools: Pools, driver: str | None = None, check: Check = unchecked) -> bool:
        """Tell whether every published device of those names is among them, of one driver or of all.

        `check` is called as by `count`.
        """
        if driver is not None and names.driver not in (None, driver):
            return True
        selected = pools.selected(driver if names.driver is None else names.driver, names.pool)
        for (of, name), pool in _looked_at(selected, check):
            own = pool.devices.keys() if names.device is None else {names.device} & pool.devices.keys()
            if own and not self._all_of(of) and not own <= self._names_in(of, name, pool):
                return False
        return True

    def _places(self, driver: str) -> list[Mapping[str | None, set[str] | None]]:
        return [self._at[name] for name in (driver, None) if name in self._at]

    def _all_of(self, driver: str) -> bool:
        """Tell whether every device of a driver is named, whatever its pool."""
        return any(places.get(None, _NONE) is None for places in self._places(driver))

    def _count_of(self, pools: Pools, driver: str, check: Check) -> int:
        places = self._places(driver)
        if not places:
            return 0
        if self._all_of(driver):
            return pools.device_count(driver, check)
        found: Iterable[tuple[tuple[str, str], Pool]]
        if any(None in each for each in places):
            found = pools.selected(driver, None)
        else:
            named = {name for each in places for name in each}
            found = (each for name in in_steps(named, check) for each in pools.selected(driver, name))
        return sum(len(self._names_in(driver, name, pool)) for (_, name), pool in _looked_at(found, check))

    def _names_in(self, driver: str, name: str, pool: Pool) -> AbstractSet[str]:
        """Return the published devices of a pool that are named."""
        devices: AbstractSet[str] = _NONE
        for places in self._places(driver):
            for where in (name, None):
                named = places.get(where, _NONE)
                if named is None:
                    return pool.devices.keys()
                devices = devices | named if devices else named
        return devices & pool.devices.keys()


def _looked_at(pools: Iterable[tuple[tuple[str, str], Pool]], check: Check) -> Iterator[tuple[tuple[str, str], Pool]]:
    """Return the pools; `check` is called for every thousand devices that they have."""
    left = 0
    for identity, pool in pools:
        if left <= 0:
            check()
            left = BETWEEN_CHECKS
        left -= len(pool.devices) + 1
        yield identity, pool


# --- which taints our evictor acts on ------------------------------------------------------------


class EvictionScope(msgspec.Struct, frozen=True):
    """Which taints count.

    `no_execute`: who carries out NoExecute, and so how tolerations are read; None leaves those taints out. `asked`:
    rules of effect NoSchedule that ask for eviction with `/evict` count too.
    """

    no_execute: Evictor | None = None
    asked: bool = False


def is_ours(rule: DeviceTaintRule, scope: EvictionScope) -> bool:
    """Tell whether the scope has eviction for the rule in it, by its effect and `/evict`.

    A rule that is being deleted cannot ask with `/evict` any more. A taint of effect NoExecute acts until the rule is
    gone, as the in-tree controller has it, which never looks at a rule's deletionTimestamp.
    """
    if rule.taint.effect == NO_EXECUTE:
        return scope.no_execute is not None
    return (
        scope.asked and not rule.deleting and rule.effective_effect == NO_EXECUTE and rule.taint.effect == NO_SCHEDULE
    )


def start_of(rule: DeviceTaintRule, scope: EvictionScope) -> datetime | None:
    """Return before when no pod is due, by `/not-before`; None if it does not say, or the in-tree controller evicts."""
    ours = rule.taint.effect != NO_EXECUTE or scope.no_execute is Evictor.OURS
    return not_before_of(rule) if ours else None


def can_judge(selector: DeviceSelector | None) -> bool:
    """Tell whether the selector uses names only. With anything else, evicting could hit more pods than intended.

    A missing one evicts no pod (E-6).
    """
    return selector is not None and not (selector.device_class_name or selector.selectors or selector.unknown)


def tolerating_scheduling(inventory: Inventory, rule: DeviceTaintRule) -> frozenset[str]:
    """Return pods, by uid, that a rule with `/evict` leaves alone because they would come back to the same device."""
    if rule.taint.effect != NO_SCHEDULE or rule.effective_effect != NO_EXECUTE or not can_judge(rule.selector):
        return _NONE

    def fate_of(tolerations: tuple[DeviceToleration, ...]) -> int:
        return int(any(tolerates(toleration, rule.taint) for toleration in tolerations))

    return fates_on(inventory, DeviceNames.of(rule.selector), fate_of).pods(1)


# --- names of rules that the controller writes ---------------------------------------------------

_NAME_MAX: Final = 200
_DIGEST_BYTES: Final = 8
_NUMBER_DIGITS: Final = 9


def rule_name(owner: str, taint: DeviceTaint, selector: DeviceSelector) -> str:
    """Return a name that starts with the owner's, the same wherever it puts the same taint on the same selector."""
    identity = [owner, taint.key, taint.effect, selector.driver, selector.pool, selector.device]
    digest = hashlib.blake2b(json.dumps(identity).encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{owner[:_NAME_MAX].rstrip('-.')}-{digest}"


def is_named_for(owner: str, rule: DeviceTaintRule) -> bool:
    """Tell whether a rule has a name that the controller gives for an owner with this taint and selector."""
    selector = rule.selector
    if selector is None or not can_judge(selector):
        return False
    return number_of(rule.meta.name, rule_name(owner, rule.taint, selector)) > 0


def numbered(first: str, number: int) -> str:
    """Return one of the names that a rule may have; the next is for when those before are held, maybe for ever."""
    return first if number == 1 else f"{first}-{number}"


def number_of(name: str, first: str) -> int:
    """Return which of these names it is, from 1 on; 0 if it is none of them."""
    last = name.rpartition("-")[2]
    number = int(last) if name != first and last.isdecimal() and len(last) <= _NUMBER_DIGITS else 1
    return number if numbered(first, number) == name else 0


def is_same_taint(one: DeviceTaint, other: DeviceTaint) -> bool:
    """Tell whether two taints have the same key, value and effect."""
    return (one.key, one.value, one.effect) == (other.key, other.value, other.effect)
