"""Devices that are parts of the same hardware, which of them stay in service beside a tainted one, and who holds them.

Drivers publish a GPU and its partitions as devices of one pool that draw on a common counter set (KEP-4815). A taint on
one of them says nothing of the others: schedulers look at the taints of the very device that they allocate.

Siblings of a device are those that draw on a counter set together with it. It is not followed further: of three devices
on the sets {a}, {a, b} and {b} the first and the last have nothing in common, and what is wrong with the one is not
wrong with the other. Where each device draws on one set, as GPUs and their partitions do, that is the same.

Holders of a device are all claims that it is allocated to, whatever they tolerate, and whether used or not: also those
with admin access, those that are being deleted but still exist, and those that the scheduler makes for extended
resources. Until such a claim is gone or deallocated, a driver may have the device prepared for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from heapq import nsmallest
from typing import Final, NamedTuple

import msgspec

from webhook.api.claims import Consumer
from webhook.api.rules import DeviceSelector, DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.api.taints import NO_SCHEDULE, DeviceTaint
from webhook.inventory.pools import Check, PoolId, Pools, in_steps, taints_of_slice, unchecked
from webhook.inventory.rule_delta import EFFECT_RANK, is_for_hardware
from webhook.inventory.state import Inventory, is_pod
from webhook.inventory.targets import DeviceNames, Extent, can_judge, is_named_for, is_same_taint

_CLOSES: Final = EFFECT_RANK[NO_SCHEDULE]
"""The rank from which on a device is not allocated any more."""


class CounterSetId(NamedTuple):
    """A counter set of a pool. `slice_name` is empty, as its name is unique in the pool; see `drawing`."""

    slice_name: str
    name: str


class Sibling(NamedTuple):
    """A device beside a tainted one that stays in service, with who uses it, each by `namespace/name`."""

    driver: str
    pool: str
    device: str
    claims: tuple[str, ...] = ()
    """The claims to which it is allocated, in use or not."""
    pods: tuple[str, ...] = ()
    pod_groups: tuple[str, ...] = ()
    """PodGroups that reserve one of the claims."""

    @property
    def in_use(self) -> bool:
        """Whether pods use it."""
        return bool(self.pods or self.pod_groups)


class Siblings(msgspec.Struct, frozen=True):
    """Devices that are parts of the same hardware as tainted ones, and that nothing takes out of service as they do."""

    devices: tuple[Sibling, ...] = ()
    """By driver, pool and name."""

    def __bool__(self) -> bool:
        return bool(self.devices)

    @property
    def in_use(self) -> int:
        """How many of them pods use."""
        return sum(each.in_use for each in self.devices)

    @property
    def pods(self) -> frozenset[str]:
        """The pods that use them, by `namespace/name`."""
        return frozenset([pod for each in self.devices for pod in each.pods])

    @property
    def pod_groups(self) -> frozenset[str]:
        """The PodGroups that use them, by `namespace/name`."""
        return frozenset([group for each in self.devices for group in each.pod_groups])


NO_SIBLINGS: Final = Siblings()


def drawing(
    slices: Iterable[ResourceSlice], check: Check = unchecked
) -> Iterator[tuple[str, tuple[CounterSetId, ...]]]:
    """Return the devices of slices of one pool that draw on counter sets, by name, and on which.

    Of two devices of one name the first counts. Up to 1.34 a slice may publish counter sets beside devices: the devices
    draw on those then, and the names are unique in the slice only. Otherwise another slice of the pool publishes them.
    """
    devices = ((value, device) for value in slices for device in value.devices)
    seen: set[str] = set()
    for value, device in in_steps(devices, check):
        if device.name not in seen:
            seen.add(device.name)
            if device.counter_sets:
                own, drawn = value.counter_sets, device.counter_sets
                yield device.name, tuple([CounterSetId(value.meta.name if each in own else "", each) for each in drawn])


def siblings_in(
    slices: Iterable[ResourceSlice], ranks: Mapping[str, int], check: Check = unchecked
) -> Mapping[str, int]:
    """Return the devices that draw on a counter set together with one of the given devices, themselves among them.

    `ranks` are the given devices by name, each with the rank of an effect (EFFECT_RANK). Each sibling has the highest
    rank of those beside it. `check` is called every thousand devices and may raise.
    """
    every = tuple(drawing(slices, check))
    highest: dict[CounterSetId, int] = {}
    for name, drawn in every:
        rank = ranks.get(name, 0)
        if rank:
            for each in drawn:
                highest[each] = max(rank, highest.get(each, rank))
    if not highest:
        return {}
    found = {name: max([highest.get(each, 0) for each in drawn]) for name, drawn in every}
    return {name: rank for name, rank in found.items() if rank}


# --- which of them stay in service ---------------------------------------------------------------


def siblings_of_rule(
    inventory: Inventory, rule: DeviceTaintRule, effect: str = "", check: Check = unchecked
) -> Siblings:
    """Return the siblings of what a rule selects that stay in service; none if it does not act.

    Left out are those that it selects itself, those that have a taint of the same effect or a stronger one anyway, and
    those that are closed to new claims and allocated to none. `effect`: instead of the rule's own. Counter sets belong
    to a pool, so only a rule for devices by name can select one sibling and not the other.
    """
    rank = EFFECT_RANK.get(effect or rule.effective_effect, 0)
    beside = _beside_named(inventory.pools, DeviceNames.of(rule.selector), rank, check) if rank else ()
    return _in_service(inventory, beside, rule.meta.name, check)


def devices_beside(pools: Pools, rule: DeviceTaintRule, pool: PoolId, check: Check = unchecked) -> AbstractSet[str]:
    """Return the devices of a pool that are on the same hardware as one that a rule selects, itself among them."""
    found, names = pools.get(pool), DeviceNames.of(rule.selector)
    if found is None or names.driver not in (None, pool[0]) or names.pool not in (None, pool[1]):
        return frozenset()
    given = found.devices if names.device is None else {names.device} & found.devices.keys()
    return siblings_in(found.newest, dict.fromkeys(given, 1), check).keys()


def is_written_for_hardware(rule: DeviceTaintRule, owner: DeviceTaintRule, pools: Pools) -> bool:
    """Tell whether the controller may have written a rule for hardware that its owner is about: name, taint and device.

    While a pool is not published in full, its devices may be on any hardware.
    """
    scoped = is_for_hardware(owner) and is_same_taint(rule.taint, owner.taint)
    driver, name, device = DeviceNames.of(rule.selector)
    if not scoped or driver is None or name is None or device is None or not is_named_for(owner.meta.name, rule):
        return False
    pool = pools.get((driver, name))
    return pool is None or not pool.complete or device in devices_beside(pools, owner, (driver, name))


def written_for_hardware(
    owner: DeviceTaintRule, rules: Iterable[DeviceTaintRule]
) -> AbstractSet[DeviceSelector | None]:
    """Return what rules select that are there because of `/scope: hardware` on their owner."""
    uid, name = owner.meta.uid, owner.meta.name
    return {
        rule.selector
        for rule in rules
        if rule.origin.rule and rule.origin.belongs_to == uid != "" and not rule.deleting and is_named_for(name, rule)
    }


def selectors_in_scope(
    inventory: Inventory, rule: DeviceTaintRule, check: Check = unchecked
) -> tuple[DeviceSelector, ...]:
    """Return the devices for which the controller adds rules because of `/scope: hardware`; usually none."""
    if not is_for_hardware(rule) or not can_judge(rule.selector):
        return ()
    beside = _beside_named(inventory.pools, DeviceNames.of(rule.selector), _CLOSES, check)
    return tuple([DeviceSelector(*each.pool, each.device) for each in beside])


def siblings_of_slice(
    inventory: Inventory, value: ResourceSlice, ranks: Mapping[str, int], check: Check = unchecked
) -> Siblings:
    """Return the siblings of devices of a new or changed slice that stay in service, as in `siblings_of_rule`.

    `ranks` are the devices on which it puts further taints, with the highest rank of these. Of the pool's other slices
    the newest generation that is there counts, even if the slice begins the next one.
    """
    identity = value.driver, value.pool
    pool = inventory.pools.get(identity)
    others = [each for each in pool.newest if each.meta.name != value.meta.name] if pool is not None else []
    own = dict(ranks)
    for name, taint in taints_of_slice(value):
        own[name] = max(own.get(name, 0), _highest((taint,)))
    published = {device.name for device in value.devices}
    beside: list[_Beside] = []
    for name, needed in siblings_in((value, *others), ranks, check).items():
        elsewhere = pool.taints_of(name) if pool is not None and name not in published else ()
        beside.append(_Beside(identity, name, needed, max(own.get(name, 0), _highest(elsewhere))))
    return _in_service(inventory, beside, "", check)


class _Beside(NamedTuple):
    """A device, the highest rank of the taints on its siblings that are asked about, and of its own taints."""

    pool: PoolId
    device: str
    needed: int
    own: int


def _beside_named(pools: Pools, names: DeviceNames, rank: int, check: Check) -> Iterator[_Beside]:
    """Return the siblings of published devices of one name, themselves left out; none without the name of a device."""
    if names.device is None:
        return
    for identity, pool in in_steps(pools.selected(names.driver, names.pool), check):
        if names.device in pool.devices:
            for name, needed in siblings_in(pool.newest, {names.device: rank}, check).items():
                if name != names.device:
                    yield _Beside(identity, name, needed, _highest(pool.taints_of(name)))


def _highest(taints: Iterable[DeviceTaint]) -> int:
    return max([EFFECT_RANK.get(taint.effect, 0) for taint in taints], default=0)


def _in_service(inventory: Inventory, beside: Iterable[_Beside], apart_from: str, check: Check) -> Siblings:
    """Return those that no taint takes out of service, in slices or by a stored rule other than the one named."""
    left = [each for each in beside if each.own < each.needed]
    if not left:
        return NO_SIBLINGS
    closing = _closing(inventory, apart_from, check)
    found: list[Sibling] = []
    for each in in_steps(left, check):
        if closing[each.needed].holds(*each.pool, each.device):
            continue
        sibling = _sibling(inventory, *each.pool, each.device)
        if sibling.claims or not (each.own or closing[_CLOSES].holds(*each.pool, each.device)):
            found.append(sibling)
    return Siblings(tuple(sorted(found)))


def _closing(inventory: Inventory, apart_from: str, check: Check) -> dict[int, Extent]:
    """Return what stored rules close, by rank: with that effect or a stronger one.

    Rules that are being deleted are about to open their devices, and of those with more than names in the selector it
    is not known which devices they select.
    """
    closing = {rank: Extent() for rank in EFFECT_RANK.values()}
    for rule in in_steps(inventory.rules.values(), check):
        if rule.meta.name == apart_from or rule.deleting or not can_judge(rule.selector):
            continue
        for rank in range(_CLOSES, EFFECT_RANK.get(rule.effective_effect, 0) + 1):
            closing[rank].add(DeviceNames.of(rule.selector))
    return closing


def _sibling(inventory: Inventory, driver: str, pool: str, device: str) -> Sibling:
    claims = sorted(inventory.usage.claims_on(driver, pool, device))
    pods: set[str] = set()
    groups: set[str] = set()
    for key in claims:
        claim = inventory.claims[key]
        for consumer in claim.reserved_for:
            (pods if is_pod(consumer) else groups).add(f"{claim.meta.namespace}/{consumer.name}")
    return Sibling(driver, pool, device, tuple(claims), tuple(sorted(pods)), tuple(sorted(groups)))


# --- who holds devices ---------------------------------------------------------------------------

COUNTED_MOST: Final = 1000
"""Up to this number claims are counted exactly: a rule for a whole driver may have a hundred thousand."""
_NAMED_MOST: Final = 3


class Holder(NamedTuple):
    """A claim by `namespace/name`, and for whom it is reserved: `pod name`, or `resource/name` of another kind."""

    claim: str
    users: tuple[str, ...] = ()


class Holders(NamedTuple):
    """The claims that hold a device. `claims`: how many, at most COUNTED_MOST. `more`: whether there are further ones.

    `first`: of those that were counted, the first by name.
    """

    claims: int
    more: bool
    first: tuple[Holder, ...]


def devices_to_look_at(inventory: Inventory, names: DeviceNames) -> tuple[DeviceNames, ...]:
    """Return all devices that have to be free before those named are: themselves, and parts of the same hardware."""
    beside = _beside_named(inventory.pools, names, 1, unchecked)
    return names, *[DeviceNames(*each.pool, each.device) for each in beside]


def is_held(inventory: Inventory, places: Iterable[DeviceNames]) -> bool:
    """Tell whether any claim holds one of the named devices."""
    return any(inventory.usage.in_use(*names) for names in places)


def is_published(inventory: Inventory, names: DeviceNames) -> bool:
    """Tell whether the newest generation of any pool has a device of these names."""
    return any(
        bool(pool.devices) if names.device is None else names.device in pool.devices
        for _, pool in inventory.pools.selected(names.driver, names.pool)
    )


def holders_of(inventory: Inventory, places: Iterable[DeviceNames], most: int = COUNTED_MOST) -> Holders:
    """Return the claims that hold one of the named devices; stop as soon as there are more than `most`."""
    found: set[str] = set()
    more = False
    for key in (key for names in places for key in inventory.usage.users_on(*names)):
        if len(found) == most and key not in found:
            more = True
            break
        found.add(key)
    return named_holders(inventory, found, more=more)


def named_holders(inventory: Inventory, found: Collection[str], *, more: bool = False) -> Holders:
    """Return these claims as holders."""
    claims = inventory.claims
    first = [
        Holder(key, tuple([_user(each) for each in claims[key].reserved_for])) for key in nsmallest(_NAMED_MOST, found)
    ]
    return Holders(len(found), more, tuple(first))


def unused_claims(inventory: Inventory, names: DeviceNames) -> list[str]:
    """Return the claims that hold one of the named devices and are reserved for nothing, by `namespace/name` in order.

    No eviction gives those devices back.
    """
    return sorted(key for key in inventory.usage.claims_on(*names) if not inventory.claims[key].reserved_for)


def _user(consumer: Consumer) -> str:
    return f"pod {consumer.name}" if is_pod(consumer) else f"{consumer.resource}/{consumer.name}"
