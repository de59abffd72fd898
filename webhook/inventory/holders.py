"""Who holds the devices that a rule selects: every allocated claim, whatever it tolerates, and whether used or not.

Allocations with admin access hold a device like any other, and so do claims that no pod uses, claims that are being
deleted but still exist, and claims that the scheduler makes for extended resources. Until such a claim is gone or
deallocated, a driver may have the device prepared for it. A claim on another part of the same hardware counts too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import nsmallest
from typing import Final, NamedTuple

from webhook.api.claims import Consumer
from webhook.inventory.hardware import siblings_in
from webhook.inventory.state import Inventory, is_pod
from webhook.inventory.targets import DeviceNames

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
    """All devices that have to be free before those named are: themselves, and parts of the same hardware."""
    device = names.device
    if device is None:
        return (names,)
    beside = {names: None}
    for (driver, pool), value in inventory.pools.selected(names.driver, names.pool):
        if device in value.devices:
            parts = siblings_in(value.newest, {device: 1})
            beside |= {DeviceNames(driver, pool, each): None for each in parts if each != device}
    return tuple(beside)


def is_held(inventory: Inventory, places: Iterable[DeviceNames]) -> bool:
    """Whether any claim holds one of the named devices."""
    return any(inventory.usage.in_use(*names) for names in places)


def is_published(inventory: Inventory, names: DeviceNames) -> bool:
    """Whether the newest generation of any pool has a device of these names."""
    return any(
        bool(pool.devices) if names.device is None else names.device in pool.devices
        for _, pool in inventory.pools.selected(names.driver, names.pool)
    )


def holders_of(inventory: Inventory, places: Iterable[DeviceNames], most: int = COUNTED_MOST) -> Holders:
    """The claims that hold one of the named devices; stops as soon as there are more than `most`."""
    found: set[str] = set()
    more = False
    for key in (key for names in places for key in inventory.usage.users_on(*names)):
        if len(found) == most and key not in found:
            more = True
            break
        found.add(key)
    return named_holders(inventory, found, more=more)


def named_holders(inventory: Inventory, found: Collection[str], *, more: bool = False) -> Holders:
    """These claims as holders."""
    claims = inventory.claims
    first = [
        Holder(key, tuple([_user(each) for each in claims[key].reserved_for])) for key in nsmallest(_NAMED_MOST, found)
    ]
    return Holders(len(found), more, tuple(first))


def unused_claims(inventory: Inventory, names: DeviceNames) -> list[str]:
    """The claims that hold one of the named devices and are reserved for nothing, by `namespace/name` in order.

    No eviction gives those devices back.
    """
    return sorted(key for key in inventory.usage.claims_on(*names) if not inventory.claims[key].reserved_for)


def _user(consumer: Consumer) -> str:
    return f"pod {consumer.name}" if is_pod(consumer) else f"{consumer.resource}/{consumer.name}"
