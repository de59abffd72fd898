"""The indexes of the inventory answer as a full scan of its objects does.

The scan is written from the facts about the cluster (`semantics.md` E-2, E-5 to E-18, M-1 to M-5) with nothing of the
inventory's own.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.properties.inventories import (
    DEVICES,
    DRIVERS,
    NOW,
    POOLS,
    acting_taints,
    after,
    clusters,
    histories,
    interleaved,
    inventory_of,
    left_by,
    selectors,
)
from tests.unit.inventory.values import taints_on
from webhook.api.claims import ResourceClaim
from webhook.api.rules import DeviceTaintRule
from webhook.api.slices import ResourceSlice
from webhook.inventory.impact import Impact, Taint, Wave, impact_of
from webhook.inventory.pools import Evictor

if TYPE_CHECKING:
    from tests.properties.inventories import History
    from webhook.api.rules import DeviceSelector
    from webhook.api.taints import DeviceTaint, DeviceToleration
    from webhook.inventory.state import InventoryObject

NEVER: Final = "never"
HARMLESS: Final = "harmless"


def matches(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    effects = {"NoSchedule", "NoExecute", "None"} if toleration.effect == "" else {toleration.effect}
    keys = {"k", "l"} if toleration.key == "" else {toleration.key}
    match toleration.operator:
        case "Exists":
            values = {"", "v"}
        case "Equal" | "":
            values = {toleration.value}
        case _:
            values = set()
    return taint.effect in effects and taint.key in keys and taint.value in values


def seconds_left(tolerations: tuple[DeviceToleration, ...], acting: Taint) -> int | str:
    """How long from NOW who has these tolerations may stay with a device."""
    if acting.scheduling is not None and any(matches(each, acting.scheduling) for each in tolerations):
        return NEVER
    relevant = [each for each in tolerations if matches(each, acting.taint)]
    if acting.evictor is Evictor.IN_TREE:
        relevant = [each for each in relevant if each.effect == "NoExecute"]
    if any(each.toleration_seconds is None for each in relevant):
        return NEVER
    grace = min((max(each.toleration_seconds or 0, 0) for each in relevant), default=0)
    if acting.evictor is Evictor.IN_TREE:
        # int64 nanoseconds, of which whole seconds count here. Below zero the pod is due before timeAdded.
        wrapped = int.from_bytes((grace * 10**9 % 2**64).to_bytes(8, "little"), "little", signed=True)
        grace = wrapped // 10**9
    added = acting.taint.time_added
    passed = 0.0 if added is None else (NOW - added).total_seconds()
    rest = grace - passed
    return max(0, int(rest) + (rest > int(rest)))


def is_named(selector: DeviceSelector, driver: str, pool: str, device: str) -> bool:
    asked = (selector.driver, selector.pool, selector.device)
    return all(want is None or want == have for want, have in zip(asked, (driver, pool, device), strict=True))


def current(objects: list[InventoryObject]) -> list[ResourceSlice]:
    """The slices of newest generations."""
    slices = [each for each in objects if isinstance(each, ResourceSlice)]
    newest: dict[tuple[str, str], int] = defaultdict(int)
    for each in slices:
        newest[each.driver, each.pool] = max(newest[each.driver, each.pool], each.pool_generation)
    return [each for each in slices if each.pool_generation == newest[each.driver, each.pool]]


def scan_published(objects: list[InventoryObject], selector: DeviceSelector) -> Impact:
    slices = current(objects)
    devices = [(each.driver, each.pool, device.name) for each in slices for device in each.devices]
    hit = [device for device in devices if is_named(selector, *device)]
    by_pool: dict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
    for each in slices:
        if selector.driver in (None, each.driver) and selector.pool in (None, each.pool):
            by_pool[each.driver, each.pool].append(each)
    incomplete = [
        identity for identity, parts in by_pool.items() if any(part.slice_count != len(parts) for part in parts)
    ]
    return Impact(
        devices=len(hit),
        pools=len({(driver, pool) for driver, pool, _ in hit}),
        drivers=len({driver for driver, _, _ in hit}),
        incomplete_pools=tuple(sorted(incomplete)),
    )


def scan(objects: list[InventoryObject], selector: DeviceSelector, acting: Taint) -> Impact:
    """The same answer, without an index."""
    fates: dict[str, set[int | str]] = defaultdict(set)
    plain: set[str] = set()
    claims: dict[str, int] = {}
    namespaces: set[str] = set()
    groups: set[str] = set()
    allocated = 0
    for claim in objects:
        if not isinstance(claim, ResourceClaim):
            continue
        for result in claim.allocation or ():
            if not is_named(selector, result.driver, result.pool, result.device):
                continue
            allocated += 1
            fate = seconds_left(result.tolerations, acting) if acting.evictor else HARMLESS
            for consumer in claim.reserved_for:
                if consumer.resource == "pods":
                    fates[consumer.uid].add(fate)
                    if isinstance(fate, int) and not claim.extended_resource:
                        plain.add(consumer.uid)
                elif isinstance(fate, int):
                    groups.add(consumer.uid)
            if isinstance(fate, int) and claim.reserved_for:
                name = f"{claim.meta.namespace}/{claim.meta.name}"
                claims[name] = min(fate, claims.get(name, fate))
                namespaces.add(claim.meta.namespace)
    due = {pod: [fate for fate in met if isinstance(fate, int)] for pod, met in fates.items()}
    pods = {pod: min(times) for pod, times in due.items() if times}
    harmless = frozenset(pod for pod, met in fates.items() if HARMLESS in met)
    published = scan_published(objects, selector)
    keeps = acting.taint.effect in ("NoSchedule", "NoExecute") and acting.evictor is None
    return Impact(
        devices=published.devices,
        pools=published.pools,
        drivers=published.drivers,
        allocated=allocated,
        waves=tuple(
            Wave(
                seconds,
                frozenset(pod for pod, time in pods.items() if time == seconds),
                frozenset(claim for claim, time in claims.items() if time == seconds),
            )
            for seconds in sorted({*pods.values(), *claims.values()})
        ),
        tolerating=frozenset(pod for pod, met in fates.items() if met == {NEVER}),
        extended=frozenset(pods.keys() - plain if acting.evictor is Evictor.IN_TREE else ()),
        kept=harmless if keeps else frozenset(),
        namespaces=frozenset(namespaces),
        pod_groups=frozenset(groups),
        incomplete_pools=published.incomplete_pools,
    )


@given(clusters(), selectors, acting_taints)
def test_impact_is_what_a_scan_finds(objects: list[InventoryObject], selector: DeviceSelector, acting: Taint) -> None:
    assert impact_of(inventory_of(objects), selector, acting, NOW) == scan(objects, selector, acting)


@given(st.data(), histories(), selectors, acting_taints)
def test_impact_after_changes_is_what_a_scan_finds(
    data: st.DataObject, of_each: list[History], selector: DeviceSelector, acting: Taint
) -> None:
    inventory = after(data.draw(interleaved(of_each)))
    assert impact_of(inventory, selector, acting, NOW) == scan(left_by(of_each), selector, acting)


@given(st.data(), histories(), selectors)
def test_claims_on_devices_are_those_a_scan_finds(
    data: st.DataObject, of_each: list[History], selector: DeviceSelector
) -> None:
    usage = after(data.draw(interleaved(of_each))).usage
    assert usage.claims_on(selector.driver, selector.pool, selector.device) == {
        f"{claim.meta.namespace}/{claim.meta.name}"
        for claim in left_by(of_each)
        if isinstance(claim, ResourceClaim)
        for result in claim.allocation or ()
        if is_named(selector, result.driver, result.pool, result.device)
    }


@given(st.data(), histories(), st.sampled_from(DRIVERS), st.sampled_from(POOLS), st.sampled_from(DEVICES))
def test_taints_of_a_device_are_those_a_scan_finds(
    data: st.DataObject, of_each: list[History], driver: str, pool: str, device: str
) -> None:
    objects = left_by(of_each)
    parts = [each for each in current(objects) if (each.driver, each.pool) == (driver, pool)]
    found = [each for part in parts for each in part.devices if each.name == device]
    own = [taint for each in found for taint in each.taints]
    beside = [
        entry.taint
        for part in sorted(parts, key=lambda part: part.meta.name)
        for entry in part.slice_taints
        if found and entry.device == device
    ]
    rules = [each for each in objects if isinstance(each, DeviceTaintRule)]
    by_rules = [
        rule.taint
        for rule in sorted(rules, key=lambda rule: rule.meta.name)
        if rule.selector is not None and is_named(rule.selector, driver, pool, device)
    ]
    inventory = after(data.draw(interleaved(of_each)))
    assert taints_on(inventory, driver, pool, device) == (*own, *beside, *by_rules)
