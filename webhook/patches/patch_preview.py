"""What a patch would do before it is applied: its devices before and after, and what its taints do to their users."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import structs

from webhook.api.field import JSON
from webhook.api.patches import ResourceSlicePatch
from webhook.api.taints import DeviceTaint
from webhook.inventory.impact import Taint, allocated_on, impact_on_users, union
from webhook.inventory.pools import acts
from webhook.inventory.preview import Preview, rows_of
from webhook.inventory.state import Inventory
from webhook.inventory.targets import DeviceId, DeviceNames
from webhook.patches.expansion import ExpandedRule
from webhook.patches.patching import EffectiveDevices, Origin, PatchedDevice, origin_of, taints_of_patch
from webhook.patches.published import PublishedDevice


class PatchChange(NamedTuple):
    """One attribute, capacity or taint of a device, as the driver publishes it and as patches leave it.

    `before` and `after` are an attribute's or capacity's JSON, or the taints with this key and effect; None is nothing.
    `patch` is the patch that decides, which may be another one than was asked about.
    """

    device: DeviceId
    origin: Origin
    before: JSON | tuple[DeviceTaint, ...]
    after: JSON | tuple[DeviceTaint, ...]
    patch: str


def patch_changes(effective: EffectiveDevices, patch: ResourceSlicePatch) -> Iterator[PatchChange]:
    """Yield everything that the patch sets, device by device, in the order of the patch."""
    origins = [
        *[Origin("attribute", each.name) for each in patch.attributes],
        *[Origin("capacity", each.name) for each in patch.capacity],
        *taints_of_patch(patch),
    ]
    for address in effective.selected[patch.meta.name]:
        device = effective.devices[address]
        for origin in origins:
            if origin in device.origins:
                before, after = _state(device.published, origin), _state(device, origin)
                yield PatchChange(address, origin, before, after, device.origins[origin])


def _state(device: PublishedDevice | PatchedDevice, origin: Origin) -> JSON | tuple[DeviceTaint, ...]:
    match origin.kind:
        case "attribute":
            return device.attributes.get(origin.name)
        case "capacity":
            return device.capacity.get(origin.name)
        case _:
            return tuple([each for each in device.taints if origin_of(each) == origin]) or None


def patch_preview(
    inventory: Inventory,
    devices: Sequence[DeviceId],
    rules: Sequence[ExpandedRule],
    *,
    in_tree: bool,
    now: datetime,
) -> Preview:
    """Return what the rules of a patch would do to the users of devices, from `now` on; `devices` are those it selects.

    As for a slice, taints that do nothing are judged only if all of them do nothing.
    """
    simulated = bool(rules) and not any(acts(rule.taint.effect) for rule in rules)
    judged = [
        (rule.selector, _judged(rule, simulated=simulated, in_tree=in_tree))
        for rule in rules
        if simulated or acts(rule.taint.effect)
    ]
    pairs = tuple([(DeviceNames.of(selector), taint) for selector, taint in judged])
    pools = {(driver, pool) for driver, pool, _ in devices}
    names = {DeviceNames.of(rule.selector) for rule in rules} or {DeviceNames(*each) for each in devices}
    impact = structs.replace(
        union([impact_on_users(inventory, selector, taint, now) for selector, taint in judged]),
        devices=len(devices),
        pools=len(pools),
        drivers=len({driver for driver, _ in pools}),
        allocated=allocated_on(inventory, names),
        incomplete_pools=tuple(sorted(inventory.pools.incomplete & pools)),
    )
    return Preview(impact, pairs, simulated, *rows_of(inventory, pairs, now))


def _judged(rule: ExpandedRule, *, simulated: bool, in_tree: bool) -> Taint:
    taint = Taint.of_slice(rule.taint, in_tree=in_tree)
    return taint.as_if_evicting(in_tree=in_tree) if simulated else taint
