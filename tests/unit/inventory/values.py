"""Values for tests of the inventory: small clusters, written as short as they can be read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from webhook.api.claims import AllocationResult, Consumer, ResourceClaim
from webhook.api.meta import ObjectMeta
from webhook.api.pods import Pod, PodClaim
from webhook.api.rules import EVICT, DeviceSelector, DeviceTaintRule
from webhook.api.slices import Device, ResourceSlice, SliceTaint
from webhook.api.taints import DeviceTaint, DeviceToleration
from webhook.inventory.impact import Impact, Taint, impact_of
from webhook.inventory.pools import selects
from webhook.inventory.state import Inventory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from webhook.inventory.state import InventoryObject

NOW: Final = datetime(2026, 6, 1, 12, tzinfo=UTC)
DRIVER: Final = "gpu.example.com"
POOL: Final = "node-0"
KEY: Final = "example.com/unhealthy"
EMPTY: Final = DeviceSelector()


def taint(effect: str = "NoExecute", key: str = KEY, value: str = "", added: datetime | None = NOW) -> DeviceTaint:
    return DeviceTaint(key, value, effect, added)


def in_tree(effect: str = "NoExecute", added: datetime | None = NOW) -> Taint:
    """A taint in a slice, in a cluster whose own controller evicts."""
    return Taint.of_slice(taint(effect, added=added), in_tree=True)


def ours(effect: str = "NoExecute", added: datetime | None = NOW) -> Taint:
    """The same where that is left to us."""
    return Taint.of_slice(taint(effect, added=added), in_tree=False)


def lets_stay(seconds: int | None = None, effect: str = "NoExecute", key: str = KEY) -> DeviceToleration:
    """A toleration; without seconds for ever."""
    return DeviceToleration(key, "Exists", "", effect, seconds)


def on(
    device: str = "gpu-0", *tolerations: DeviceToleration, pool: str = POOL, driver: str = DRIVER
) -> AllocationResult:
    return AllocationResult("gpu", driver, pool, device, tolerations)


def used_by(*uids: str) -> tuple[Consumer, ...]:
    return tuple([Consumer("", "pods", f"pod-{uid}", uid) for uid in uids])


def group(uid: str) -> Consumer:
    return Consumer("scheduling.k8s.io", "podgroups", f"group-{uid}", uid)


def claim(
    name: str,
    *results: AllocationResult,
    users: Iterable[str | Consumer] = (),
    namespace: str = "ml",
    extended: bool = False,
) -> ResourceClaim:
    """Allocated if there are results; a user is a pod's uid unless it says what it is."""
    return ResourceClaim(
        meta=ObjectMeta(name, "", namespace, f"uid-of-{name}"),
        allocation=results or None,
        reserved_for=tuple(
            [user for each in users for user in ([each] if isinstance(each, Consumer) else used_by(each))]
        ),
        extended_resource=extended,
    )


def pool_slice(
    *devices: str | Device,
    name: str = "slice-0",
    pool: str = POOL,
    driver: str = DRIVER,
    generation: int = 1,
    count: int = 1,
    beside: Iterable[SliceTaint] = (),
    node: str | None = None,
    created: datetime | None = None,
) -> ResourceSlice:
    """A slice of a pool that has `count` of them; `beside` are the taints that stand beside the devices.

    Its node has the name of the pool, unless it is given; an empty text is none.
    """
    return ResourceSlice(
        ObjectMeta(name),
        driver,
        pool,
        generation,
        count,
        pool if node is None else node or None,
        devices=tuple([each if isinstance(each, Device) else Device(each) for each in devices]),
        has_devices=True,
        slice_taints=tuple(beside),
        created=created,
    )


def rule(
    name: str = "rule-0",
    selector: DeviceSelector | None = EMPTY,
    effect: str = "NoExecute",
    *,
    evict: bool = False,
    key: str = KEY,
) -> DeviceTaintRule:
    return DeviceTaintRule(ObjectMeta(name, annotations={EVICT: "true"} if evict else {}), selector, taint(effect, key))


def pod(name: str, *claims: str, namespace: str = "ml", extended_claim: str = "") -> Pod:
    """A pod that names its claims directly."""
    return Pod(
        ObjectMeta(name, "", namespace, f"uid-of-{name}"),
        "node-0",
        tuple([PodClaim(each) for each in claims]),
        extended_claim,
    )


def inventory_of(*objects: InventoryObject) -> Inventory:
    inventory = Inventory()
    for each in objects:
        inventory.apply(None, each)
    return inventory


def impact(
    *objects: InventoryObject, selector: DeviceSelector | None = EMPTY, acting: Taint | None = None, now: datetime = NOW
) -> Impact:
    """What a NoExecute taint, or another, does to a cluster of these."""
    return impact_of(inventory_of(*objects), selector, acting or in_tree(), now)


def taints_on(inventory: Inventory, driver: str, pool: str, device: str) -> tuple[DeviceTaint, ...]:
    """The effective taints of a device: those of its slices, then those of rules that select it, by rule name.

    Upstream promises no order among rules (K-2). Rules without selector count as eviction reads them (E-6).
    """
    found = inventory.pools.get((driver, pool))
    taints = found.taints_of(device) if found is not None else ()
    matching = [rule for rule in inventory.rules.values() if selects(rule.selector, driver, pool, device)]
    return (*taints, *[rule.taint for rule in sorted(matching, key=lambda rule: rule.meta.name)])
