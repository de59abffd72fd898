"""What a taint does to the users of the selected devices: how long it lets each of them stay.

A question may concern every claim of a cluster, so nothing is copied here that the inventory already holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from webhook.api.rules import DeviceSelector
from webhook.api.servers import UNKNOWN, ServerFacts
from webhook.api.taints import DeviceToleration
from webhook.inventory.pools import Check, in_steps, unchecked
from webhook.inventory.state import ClaimGroup, is_pod

if TYPE_CHECKING:
    from webhook.api.claims import AllocationResult, ResourceClaim
    from webhook.inventory.state import Inventory


FateOf = Callable[[tuple[DeviceToleration, ...]], int]
"""Seconds that a taint lets a pod with these tolerations stay, or one of the special values."""


_NO_PODS: Final[frozenset[str]] = frozenset()


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
        """At least the devices that a taint with this selector closes.

        With a field that is not known here that is any device, as `selects` has it. Without a selector it depends on
        the server (K-5).
        """
        if selector is None:
            return NOWHERE if servers.missing_selects_nothing else ANYWHERE
        return ANYWHERE if selector.unknown else cls(selector.driver, selector.pool, selector.device)

    def includes(self, result: AllocationResult | DeviceId) -> bool:
        """Whether a device has these names."""
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
        """The pods with this fate, whatever else applies to them."""
        return _NO_PODS.union(*[users.pods for users in self.users.get(fate, ())])


def fates_on(inventory: Inventory, names: DeviceNames, fate_of: FateOf, check: Check = unchecked) -> Fates:
    """What a taint does to the users of the named devices. `check` is called now and then and may raise to stop."""
    if names.pool is None and names.device is None:
        return _of_groups(inventory, names.driver, fate_of, check)
    return _of_claims(inventory, names, fate_of, check)


def _of_groups(inventory: Inventory, driver: str | None, fate_of: FateOf, check: Check) -> Fates:
    """Of whole drivers: group by group. Usually there are few; as many as claims, if no two tolerate the same."""
    fates = Fates()
    for shared, group in in_steps(inventory.usage.groups_of(driver).items(), check):
        fates.users.setdefault(fate_of(shared.tolerations), []).append(group)
        if shared.extended:
            fates.extended.append(group)
        fates.allocated += group.results
    return fates


def _of_claims(inventory: Inventory, names: DeviceNames, fate_of: FateOf, check: Check) -> Fates:
    """Of some devices: claim by claim. Few claims differ in their tolerations, so each sort is judged once."""
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
