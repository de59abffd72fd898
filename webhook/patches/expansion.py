"""The DeviceTaintRules that say together what patches say about taints, in a cluster that has no patches of its own.

A rule only adds its taint: the driver's own taint of the same key and effect stays beside it, where a patch would
overwrite it (`semantics.md` P-22). Otherwise a device has from the rules what `patching` gives it from the patches.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import structs

from webhook.api.patches import ResourceSlicePatch
from webhook.api.rules import (
    DATA,
    DESCRIPTION,
    EVICT,
    EVICTIONS_PER_SECOND,
    SOFTENED_FROM,
    DeviceSelector,
    DeviceTaintRule,
)
from webhook.api.taints import NO_EXECUTE, DeviceTaint
from webhook.inventory.pools import Pools
from webhook.inventory.rule_delta import narrower
from webhook.inventory.targets import DeviceId, is_named_for, is_same_taint, rule_name
from webhook.patches.covering import RULES_MAX, covering_selectors
from webhook.patches.patching import EffectiveDevices, Origin, taints_of_patch


class ExpandedRule(msgspec.Struct, frozen=True):
    """A DeviceTaintRule of a patch.

    `name` is the same wherever the same taint is put on the same selector by the same patch. `taint` has nothing that
    released servers would drop: that is in `annotations`.
    """

    name: str
    selector: DeviceSelector
    taint: DeviceTaint
    annotations: Mapping[str, str]


class PatchExpansion(msgspec.Struct, frozen=True):
    """The rules of one patch. `needed` is how many there would be; with more than the ceiling there are none at all."""

    rules: tuple[ExpandedRule, ...]
    needed: int


def expansion(
    pools: Pools, patches: Iterable[ResourceSlicePatch], effective: EffectiveDevices, ceiling: int = RULES_MAX
) -> dict[str, PatchExpansion]:
    """Return the rules of each patch by its name, for what `effective_devices` found in these pools for these patches.

    A patch whose filter has only names becomes one rule a taint with that very selector, so it holds for devices that
    are yet to be published as well. Where another patch takes precedence on some of the devices there are the fewest
    rules that select those where the taint is the patch's. With a class or CEL each device has a rule of its own, which
    selects nothing that is published later; the fewest are for patches that would need more than the ceiling.
    """
    known = {patch.meta.name: patch for patch in patches}
    won = _won_by(effective)
    found: dict[str, PatchExpansion] = {}
    for name in sorted(known):
        applies = name not in effective.inapplicable
        rules = tuple(_rules(pools, known[name], effective.selected[name], won, ceiling)) if applies else ()
        found[name] = PatchExpansion(rules if len(rules) <= ceiling else (), len(rules))
    return found


def has_only_names(selector: DeviceSelector) -> bool:
    """Tell whether a filter selects whatever has its names, published or not."""
    return selector.device_class_name is None and not selector.selectors


def _won_by(effective: EffectiveDevices) -> dict[tuple[str, Origin], list[DeviceId]]:
    """Return the devices on which a patch's taint counts, by patch and taint."""
    won: dict[tuple[str, Origin], list[DeviceId]] = defaultdict(list)
    for address, device in effective.devices.items():
        for origin, patch in device.origins.items():
            won[patch, origin].append(address)
    return won


def _rules(
    pools: Pools,
    patch: ResourceSlicePatch,
    selected: tuple[DeviceId, ...],
    won: Mapping[tuple[str, Origin], list[DeviceId]],
    ceiling: int,
) -> Iterator[ExpandedRule]:
    selector, taints = patch.filter or DeviceSelector(), taints_of_patch(patch)
    plain = has_only_names(selector)
    by_taint = [tuple(won.get((patch.meta.name, Origin("taint", each.key, each.effect)), ())) for each in taints]
    singly = not plain and sum(map(len, by_taint)) <= ceiling
    covers: dict[tuple[DeviceId, ...], tuple[DeviceSelector, ...]] = {}
    for taint, devices in zip(taints, by_taint, strict=True):
        if plain and len(devices) == len(selected):
            selectors: tuple[DeviceSelector, ...] = (selector,)
        elif singly:
            selectors = tuple([DeviceSelector(*each) for each in devices])
        else:
            if devices not in covers:
                covers[devices] = covering_selectors(pools, devices)
            selectors = covers[devices]
        yield from rules_of_taint(patch.meta.name, taint, selectors, softened=patch.is_softened(taint))


def rules_of_taint(
    patch: str, taint: DeviceTaint, selectors: Iterable[DeviceSelector], *, softened: bool
) -> Iterator[ExpandedRule]:
    """Yield the rules that put a taint of a patch, given by name, on what the selectors select.

    `softened`: our worker evicts pods for them, as it does for rules that were softened.
    """
    bare, annotations = structs.replace(taint, extras=None), annotations_of(taint)
    if softened:
        annotations |= {EVICT: "true", SOFTENED_FROM: NO_EXECUTE}
    for each in selectors:
        yield ExpandedRule(rule_name(patch, taint, each), each, bare, annotations)


def is_written_for_patch(rule: DeviceTaintRule, patch: ResourceSlicePatch) -> bool:
    """Tell whether the controller may have written a rule for a patch: name, taint, and the filter's names."""
    own = patch.filter or DeviceSelector()
    within = narrower(rule.selector, DeviceSelector(own.driver, own.pool, own.device))
    sets = any(is_same_taint(rule.taint, each) for each in taints_of_patch(patch))
    return sets and within and is_named_for(patch.meta.name, rule)


def annotations_of(taint: DeviceTaint) -> dict[str, str]:
    """Return data, description and rate of a taint, where our evictor finds them on a rule (N-9 to N-12)."""
    extras = taint.extras
    if extras is None:
        return {}
    found = {
        DATA: None if extras.data is None else json.dumps(extras.data, sort_keys=True, separators=(",", ":")),
        DESCRIPTION: extras.description,
        EVICTIONS_PER_SECOND: None if extras.evictions_per_second is None else str(extras.evictions_per_second),
    }
    return {name: text for name, text in found.items() if text is not None}
